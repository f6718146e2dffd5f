//! A packet on its way, with what the kernel knows of its connection.

use std::net::{IpAddr, SocketAddr};

use contiv_model::{InterfaceName, Protocol};

use super::{RouteQuery, registers::Bits};
use crate::nftables::netlink::constants::expr;

/// What conntrack has done with a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tracking {
    /// Nothing yet.
    NotYet,
    /// It belongs to a connection.
    Tracked,
    /// A rule kept conntrack from seeing it.
    Untracked,
    /// It belongs to no connection and begins none.
    Invalid,
}

/// The packet as it is now.
#[derive(Debug, Clone)]
pub(super) struct PacketState {
    pub(super) protocol: Protocol,
    pub(super) source: SocketAddr,
    pub(super) destination: SocketAddr,
    pub(super) input: Option<InterfaceName>,
    pub(super) output: Option<InterfaceName>,
    pub(super) mark: u32,
    /// The bits of the mark that are unknown.
    pub(super) unknown_mark: u32,
    /// Its priority as a rule has set it; none if no rule has, or to an unknown value.
    pub(super) priority: Option<[u8; 4]>,
    /// The packet is the answer to the first one.
    pub(super) is_answer: bool,
    /// It is an ICMP error about a packet of the connection that is too large: "fragmentation needed", or "packet too big".
    pub(super) is_size_error: bool,
    /// A process of this node has sent it.
    pub(super) is_sent_here: bool,
    pub(super) connection: Connection,
}

/// What conntrack knows of its connection.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    pub(super) tracking: Tracking,
    /// The packet is the first one that conntrack sees.
    pub(super) is_new: bool,
    /// Source and destination of the first packet, as conntrack saw it.
    pub(super) original: (SocketAddr, SocketAddr),
    /// Source and destination of its answers, before they are translated back.
    pub(super) reply: (SocketAddr, SocketAddr),
    pub(super) mark: u32,
    pub(super) unknown_mark: u32,
    /// The nat chains have had their say about the destination.
    pub(super) is_destination_decided: bool,
    /// The same about the source.
    pub(super) is_source_decided: bool,
}

impl PacketState {
    /// Whether it is of IPv4.
    pub(super) const fn is_v4(&self) -> bool {
        self.destination.is_ipv4()
    }

    /// What routes it, at this point.
    pub(super) fn route_query(&self) -> RouteQuery {
        RouteQuery {
            source: Some(self.source.ip()),
            destination: self.destination.ip(),
            input: self.input.clone(),
            mark: self.mark,
            ports: (!self.is_size_error).then_some((
                self.protocol,
                self.source.port(),
                self.destination.port(),
            )),
        }
    }

    /// The number of its protocol.
    pub(super) const fn protocol_number(&self) -> u8 {
        const ICMP: u8 = 1;
        const ICMPV6: u8 = 58;
        match (self.is_size_error, self.is_v4()) {
            (false, _) => self.protocol.number(),
            (true, true) => ICMP,
            (true, false) => ICMPV6,
        }
    }

    /// Type and code of the error that it is.
    pub(super) const fn error_type(&self) -> (u8, u8) {
        if self.is_v4() { (3, 4) } else { (2, 0) }
    }

    /// Conntrack sees it, unless a rule prevented that.
    pub(super) fn track(&mut self) {
        if self.connection.tracking == Tracking::NotYet {
            // TCP and SCTP know from an answer that it is no beginning.
            let is_invalid =
                self.is_answer && self.connection.is_new && self.protocol != Protocol::Udp;
            self.connection.tracking = if is_invalid {
                Tracking::Invalid
            } else {
                Tracking::Tracked
            };
            if self.connection.is_new {
                self.connection.original = (self.source, self.destination);
                self.connection.reply = (self.destination, self.source);
            }
        }
    }

    /// Its destination is translated.
    pub(super) fn translate_destination(&mut self, to: SocketAddr) {
        self.destination = to;
        self.connection.reply.0 = to;
        self.connection.is_destination_decided = true;
    }

    /// Its source is translated.
    pub(super) fn translate_source(&mut self, to: SocketAddr) {
        self.source = to;
        self.connection.reply.1 = to;
        self.connection.is_source_decided = true;
    }

    /// Its connection's state, as `ct state` has it.
    pub(super) fn connection_state(&self) -> u32 {
        match self.connection.tracking {
            Tracking::NotYet | Tracking::Invalid => expr::CT_STATE_INVALID,
            Tracking::Untracked => expr::CT_STATE_UNTRACKED,
            Tracking::Tracked if self.is_size_error => expr::CT_STATE_RELATED,
            Tracking::Tracked if !self.connection.is_new => expr::CT_STATE_ESTABLISHED,
            Tracking::Tracked => expr::CT_STATE_NEW,
        }
    }

    /// Whether its source and its destination are translated.
    pub(super) fn translations(&self) -> (bool, bool) {
        let Connection {
            original, reply, ..
        } = self.connection;
        (reply.1 != original.0, reply.0 != original.1)
    }

    /// Its connection's status, as `ct status` has it.
    pub(super) fn connection_status(&self) -> u32 {
        // The kernel's bits that say that the nat chains have decided: `IPS_SRC_NAT_DONE`, `IPS_DST_NAT_DONE`.
        let done = (u32::from(self.connection.is_source_decided) << 7)
            | (u32::from(self.connection.is_destination_decided) << 8);
        let (is_source_translated, is_destination_translated) = self.translations();
        let bit = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
        done | bit(is_source_translated, expr::CT_STATUS_SNAT)
            | bit(is_destination_translated, expr::CT_STATUS_DNAT)
            | bit(
                !self.connection.is_new,
                expr::CT_STATUS_SEEN_REPLY | expr::CT_STATUS_CONFIRMED,
            )
    }

    /// The flags of TCP: SYN, and in the answer ACK too.
    pub(super) fn tcp_flags(&self) -> u8 {
        const SYN: u8 = 0x02;
        const ACK: u8 = 0x10;
        if self.is_answer { SYN | ACK } else { SYN }
    }

    /// A header; none if there is none.
    pub(super) fn header(&self, base: u32) -> Option<Bits> {
        match base {
            expr::PAYLOAD_LINK_HEADER => self.input.is_some().then(|| self.link_header()),
            expr::PAYLOAD_NETWORK_HEADER => Some(self.network_header()),
            expr::PAYLOAD_TRANSPORT_HEADER => Some(self.transport_header()),
            _ => None,
        }
    }

    /// Addresses of the link, which are unknown, and the protocol.
    fn link_header(&self) -> Bits {
        let mut header = Bits::unknown(14, "a field of the link's header");
        set(&mut header, 12, &self.ethertype().to_be_bytes());
        header
    }

    /// The protocol of the network, as Ethernet has it.
    pub(super) fn ethertype(&self) -> u16 {
        if self.is_v4() { 0x0800 } else { 0x86dd }
    }

    fn network_header(&self) -> Bits {
        let mut header;
        let source = address_bytes(self.source.ip());
        let destination = address_bytes(self.destination.ip());
        if self.is_v4() {
            header = Bits::unknown(20, "a field of the IP header");
            set(&mut header, 0, &[0x45]);
            // It is no fragment; whether it may become one is unknown.
            header.known[6] = 0xbf;
            set(&mut header, 7, &[0]);
            set(&mut header, 9, &[self.protocol_number()]);
            set(&mut header, 12, &source);
            set(&mut header, 16, &destination);
        } else {
            header = Bits::unknown(40, "a field of the IPv6 header");
            header.bytes[0] = 0x60;
            header.known[0] = 0xf0;
            set(&mut header, 6, &[self.protocol_number()]);
            set(&mut header, 8, &source);
            set(&mut header, 24, &destination);
        }
        header
    }

    fn transport_header(&self) -> Bits {
        if self.is_size_error {
            let mut header = Bits::unknown(8, "a field of the ICMP header");
            let (kind, code) = self.error_type();
            set(&mut header, 0, &[kind, code]);
            return header;
        }
        let len = match self.protocol {
            Protocol::Tcp => 20,
            Protocol::Udp => 8,
            Protocol::Sctp => 12,
        };
        let mut header = Bits::unknown(len, "a field of the transport header");
        set(&mut header, 0, &self.source.port().to_be_bytes());
        set(&mut header, 2, &self.destination.port().to_be_bytes());
        match self.protocol {
            Protocol::Tcp => {
                // The reserved bits; the offset of the data depends on the options.
                header.known[12] = 0x0f;
                set(&mut header, 13, &[self.tcp_flags()]);
            }
            Protocol::Sctp if !self.is_answer => set(&mut header, 4, &[0; 4]),
            Protocol::Udp | Protocol::Sctp => {}
        }
        header
    }
}

fn set(header: &mut Bits, offset: usize, bytes: &[u8]) {
    header.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    header.known[offset..offset + bytes.len()].fill(u8::MAX);
}

/// The bytes of an address.
pub(super) fn address_bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
