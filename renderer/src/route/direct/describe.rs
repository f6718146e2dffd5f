//! The text form of direct mode's state.

use std::{fmt::Write, fs};

use super::{Direct, id_allocator::Group, table};
use crate::{
    Rejected,
    renderer::LEFT_TO_NFTABLES,
    route::{kernel_route::KernelRoute, nexthop::Nexthop},
};

impl Direct {
    /// The services that routes cannot carry at present.
    pub(in crate::route) fn rejected(&self) -> Vec<Rejected> {
        let rejected = self.refused.iter().filter_map(|(address, reason)| {
            let service = self.desired.owner(*address)?.clone();
            Some(Rejected { service, reason: reason.clone(), active_state: LEFT_TO_NFTABLES })
        });
        rejected.collect()
    }

    /// The number of objects of each kind.
    pub(in crate::route) fn sizes(&self) -> [(&'static str, usize); 3] {
        [("direct", self.routes.len()), ("groups", self.groups.len()), ("next-hops", self.hops.len())]
    }

    /// In the format of `ip nexthop` and `ip route`.
    pub(in crate::route) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        for (hop, id) in self.hops.iter() {
            let _ = writeln!(text, "id {id} {hop}");
        }
        for Group { id, members } in self.groups.values() {
            let group = Nexthop::Group { grouping: self.options.grouping, members: members.clone() };
            let _ = writeln!(text, "id {id} {group}");
        }
        for (address, next_hop) in &self.routes {
            let next_hop = *next_hop;
            let route = KernelRoute { table: table(self.options, next_hop), address: *address, next_hop };
            let _ = writeln!(text, "{route}");
        }
        text
    }

    /// Advice to the administrator: without ports in the hash all connections of a client use one backend.
    pub(in crate::route) fn notes(&self) -> Vec<String> {
        let spreads =
            |ipv4| self.groups.iter().any(|(ip, group)| ip.is_ipv4() == ipv4 && group.members.len() > 1);
        let hashes_addresses = |family: &str| {
            let path = format!("/proc/sys/net/{family}/fib_multipath_hash_policy");
            fs::read_to_string(path).is_ok_and(|policy| policy.trim() == "0")
        };
        let families = [("ipv4", true), ("ipv6", false)];
        let weak = families.into_iter().filter(|(family, ipv4)| spreads(*ipv4) && hashes_addresses(family));
        let note = |(family, _)| {
            format!(
                "net.{family}.fib_multipath_hash_policy is 0: all connections of a client to a service that routes carry \
                 go to one backend; with 1 they are spread"
            )
        };
        weak.map(note).collect()
    }
}
