//! The first packet of a connection during its traversal of the hooks.

use std::net::{IpAddr, SocketAddr};

use crate::kernel::{
    ruleset::hook,
    uapi::{NFPROTO_IPV4, NFPROTO_IPV6, expr, verdict},
};

/// The first packet of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewConnection {
    /// The number of the IP protocol: 6, 17 or 132.
    pub protocol: u8,
    /// The sender of the first packet.
    pub client: SocketAddr,
    /// Its destination.
    pub destination: SocketAddr,
    /// The input interface; none if the node itself sends it.
    pub interface: Option<String>,
}

/// How the traversal of a chain, or of all chains of a hook, ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HookVerdict {
    Accept,
    Drop,
    Reject,
}

/// A packet during its traversal of the hooks.
#[derive(Debug, Clone)]
pub(super) struct Packet {
    pub(super) protocol: u8,
    pub(super) source: SocketAddr,
    pub(super) destination: SocketAddr,
    /// The original destination.
    pub(super) original: SocketAddr,
    /// The input interface.
    pub(super) interface: Option<String>,
    /// The output interface; empty where routing has not chosen it.
    pub(super) output: &'static str,
    /// The conntrack status bits of the connection.
    pub(super) status: u32,
    pub(super) is_masqueraded: bool,
    /// Fields that rules set: its priority and its mark.
    pub(super) priority: u32,
    pub(super) mark: u32,
    /// Whether DNAT and SNAT have been decided. Each is decided once per connection.
    pub(super) is_nat_decided: [bool; 2],
}

impl Packet {
    pub(super) fn new(connection: &NewConnection) -> Self {
        Self {
            protocol: connection.protocol,
            source: connection.client,
            destination: connection.destination,
            original: connection.destination,
            interface: connection.interface.clone(),
            output: "",
            status: 0,
            is_masqueraded: false,
            priority: 0,
            mark: 0,
            is_nat_decided: [false; 2],
        }
    }

    /// The field for this key of `meta`, if rules can set it: the mark or the priority.
    pub(super) const fn meta_field(&mut self, key: u32) -> &mut u32 {
        if key == expr::META_MARK {
            &mut self.mark
        } else {
            &mut self.priority
        }
    }

    /// The index in `is_nat_decided`: 1 for the hooks of SNAT, 0 for those of DNAT.
    const fn nat_index(hook: u32) -> usize {
        matches!(hook, hook::POSTROUTING | hook::INPUT) as usize
    }

    /// True if the NAT decision of this hook has been made.
    pub(super) const fn is_nat_decided_at(&self, hook: u32) -> bool {
        self.is_nat_decided[Self::nat_index(hook)]
    }

    /// Marks the NAT decision of a hook as made. Must be called when the packet has passed the hook.
    pub(super) const fn on_hook_passed(&mut self, hook: u32) {
        if hook != hook::FORWARD {
            self.is_nat_decided[Self::nat_index(hook)] = true;
        }
    }

    pub(super) fn network_header(&self) -> Vec<u8> {
        match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut header = vec![0; 20];
                (header[0], header[9]) = (0x45, self.protocol);
                header[12..16].copy_from_slice(&source.octets());
                header[16..20].copy_from_slice(&destination.octets());
                header
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let mut header = vec![0; 40];
                (header[0], header[6]) = (0x60, self.protocol);
                header[8..24].copy_from_slice(&source.octets());
                header[24..40].copy_from_slice(&destination.octets());
                header
            }
            _ => Vec::new(),
        }
    }

    pub(super) fn transport_header(&self) -> Vec<u8> {
        let ports = [
            self.source.port().to_be_bytes(),
            self.destination.port().to_be_bytes(),
        ];
        [ports.concat(), vec![0; 16]].concat()
    }

    pub(super) const fn family(&self) -> u8 {
        if self.source.is_ipv4() {
            NFPROTO_IPV4
        } else {
            NFPROTO_IPV6
        }
    }
}

/// The verdict of a hook from the code of a chain's last verdict: `NF_DROP` or `NF_ACCEPT`.
pub(super) const fn hook_verdict(code: i32) -> HookVerdict {
    if code == verdict::DROP {
        HookVerdict::Drop
    } else {
        HookVerdict::Accept
    }
}
