//! Settings of the kernel that decide about packets. Source: the kernel's `Documentation/networking/ip-sysctl.rst`, and
//! `include/linux/inetdevice.h` for those that an interface shares with `all`.

use std::sync::Arc;

use contiv_model::InterfaceName;
use serde::Serialize;

use crate::{
    kernel::Kernel,
    shared_tables::{self, TableUse},
};

/// Whether the kernel checks that the route back to a packet's source leads out by the interface of the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReversePathFilter {
    /// It does not.
    Off,
    /// By that interface.
    Strict,
    /// By any interface.
    Loose,
}

/// Reads settings in the network namespace of the calling thread.
#[derive(Debug)]
pub struct KernelSettings {
    kernel: Arc<dyn Kernel>,
}

impl KernelSettings {
    pub(super) fn of(kernel: Arc<dyn Kernel>) -> Self {
        Self { kernel }
    }

    /// A setting by its path below `/proc/sys`; none if there is no such one.
    pub fn text(&self, path: &str) -> Option<String> {
        self.kernel.setting(path).ok()
    }

    /// A setting that is a number.
    pub fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// The active filter of IPv4 of an interface: the larger one of its own setting and that of `all`.
    pub fn reverse_path_filter(&self, interface: &InterfaceName) -> Option<ReversePathFilter> {
        let own = self.number(&of_ipv4(interface, "rp_filter"))?;
        let all = self.number("net/ipv4/conf/all/rp_filter")?;
        Some(match own.max(all) {
            0 => ReversePathFilter::Off,
            1 => ReversePathFilter::Strict,
            _ => ReversePathFilter::Loose,
        })
    }

    /// Whether packets that come in by an interface are forwarded. For IPv6 the setting of `all` decides, and since Linux 6.17 also
    /// `force_forwarding` of the interface.
    pub fn is_forwarding(&self, interface: &InterfaceName, is_ipv4: bool) -> Option<bool> {
        if is_ipv4 {
            return self.switch(&of_ipv4(interface, "forwarding"));
        }
        let all = self.switch("net/ipv6/conf/all/forwarding")?;
        let forced = self.switch(&of_ipv6(interface, "force_forwarding"));
        Some(all || forced == Some(true))
    }

    /// Whether addresses of 127.0.0.0/8 may come in and leave by an interface.
    pub fn routes_loopback(&self, interface: &InterfaceName) -> Option<bool> {
        self.own_or_all(interface, "route_localnet")
    }

    /// Whether packets of IPv4 may come in by an interface from an address of this node.
    pub fn accepts_own_addresses(&self, interface: &InterfaceName) -> Option<bool> {
        self.own_or_all(interface, "accept_local")
    }

    /// Whether an interface has no IPv6.
    pub fn is_ipv6_disabled(&self, interface: &InterfaceName) -> Option<bool> {
        self.switch(&of_ipv6(interface, "disable_ipv6"))
    }

    /// Whether packets between ports of a bridge pass the rules of a family; none if the module `br_netfilter` is not loaded: they
    /// do not.
    pub fn filters_bridges(&self, is_ipv4: bool) -> Option<bool> {
        let version = if is_ipv4 { "" } else { "6" };
        self.switch(&format!("net/bridge/bridge-nf-call-ip{version}tables"))
    }

    /// Whether the kernel does not choose a next hop whose link is down.
    pub(super) fn ignores_linkdown(&self, interface: &InterfaceName, is_ipv4: bool) -> bool {
        let setting = "ignore_routes_with_linkdown";
        let path = if is_ipv4 {
            of_ipv4(interface, setting)
        } else {
            of_ipv6(interface, setting)
        };
        self.switch(&path) == Some(true)
    }

    /// Whether the ports of a connection count for the choice among several next hops of a route; otherwise all connections between two
    /// addresses take the same one.
    pub fn chooses_by_ports(&self, is_ipv4: bool) -> bool {
        let version = if is_ipv4 { 4 } else { 6 };
        self.switch(&format!("net/ipv{version}/fib_multipath_hash_policy")) == Some(true)
    }

    /// How full the table of connections is; none if conntrack is not loaded.
    pub fn conntrack(&self) -> Option<TableUse> {
        shared_tables::conntrack(&self.kernel)
    }

    /// The first and the last port that the kernel gives to sockets that do not name one.
    pub fn local_ports(&self) -> Option<(u16, u16)> {
        let range = self.text("net/ipv4/ip_local_port_range")?;
        let mut ends = range.split_whitespace().map(str::parse);
        Some((ends.next()?.ok()?, ends.next()?.ok()?))
    }

    /// The ports that the kernel does not give to sockets that do not name one, as in "30000-32767,8080".
    pub fn reserved_ports(&self) -> Option<String> {
        self.text("net/ipv4/ip_local_reserved_ports")
    }

    fn own_or_all(&self, interface: &InterfaceName, name: &str) -> Option<bool> {
        let own = self.switch(&of_ipv4(interface, name))?;
        let all = self.switch(&format!("net/ipv4/conf/all/{name}"))?;
        Some(own || all)
    }

    fn switch(&self, path: &str) -> Option<bool> {
        Some(self.number(path)? != 0)
    }
}

fn of_ipv4(interface: &InterfaceName, name: &str) -> String {
    format!("net/ipv4/conf/{}/{name}", interface.0)
}

fn of_ipv6(interface: &InterfaceName, name: &str) -> String {
    format!("net/ipv6/conf/{}/{name}", interface.0)
}
