//! The text form of direct mode's state.

use std::{fmt::Write, fs, net::IpAddr};

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
            Some(Rejected {
                service,
                reason: reason.clone(),
                active_state: LEFT_TO_NFTABLES,
            })
        });
        rejected.collect()
    }

    /// The number of objects of each kind.
    pub(in crate::route) fn sizes(&self) -> [(&'static str, usize); 3] {
        [
            ("direct", self.routes.len()),
            ("groups", self.groups.len()),
            ("next-hops", self.hops.len()),
        ]
    }

    /// In the format of `ip nexthop` and `ip route`.
    pub(in crate::route) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        for (hop, id) in self.hops.iter() {
            let _ = writeln!(text, "id {id} {hop}");
        }
        for Group { id, members } in self.groups.values() {
            let group = Nexthop::Group {
                grouping: self.options.grouping,
                members: members.clone(),
            };
            let _ = writeln!(text, "id {id} {group}");
        }
        for (address, next_hop) in &self.routes {
            let next_hop = *next_hop;
            let route = KernelRoute {
                table: table(self.options, next_hop),
                address: *address,
                next_hop,
            };
            let _ = writeln!(text, "{route}");
        }
        text
    }

    /// Advice to the administrator: without ports in the hash all connections of a client use one backend.
    pub(in crate::route) fn notes(&self) -> Vec<String> {
        let hashes_addresses = |family: &str| {
            let path = format!("/proc/sys/net/{family}/fib_multipath_hash_policy");
            fs::read_to_string(path).is_ok_and(|policy| policy.trim() == "0")
        };
        notes(
            &self
                .groups
                .iter()
                .map(|(ip, group)| (*ip, group.members.len())),
            hashes_addresses,
        )
    }
}

/// The notes about groups, each with its address and the number of its members, where the kernel chooses by addresses alone.
fn notes(
    groups: &(impl Iterator<Item = (IpAddr, usize)> + Clone),
    hashes_addresses: impl Fn(&str) -> bool,
) -> Vec<String> {
    let spreads = |ipv4| {
        groups
            .clone()
            .any(|(ip, members)| ip.is_ipv4() == ipv4 && members > 1)
    };
    let families = [("ipv4", true), ("ipv6", false)];
    let weak = families
        .into_iter()
        .filter(|(family, ipv4)| spreads(*ipv4) && hashes_addresses(family));
    let note = |(family, _)| {
        format!(
            "net.{family}.fib_multipath_hash_policy is 0: all connections of a client to a service that routes carry \
             go to one backend; with 1 they are spread"
        )
    };
    weak.map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn family_without_ports_in_its_hash_is_noted_if_it_spreads() {
        let (v4, v6): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "fd00::1".parse().unwrap());
        for (groups, families, expected) in [
            (&[(v4, 2)][..], &["ipv4", "ipv6"][..], &["ipv4"][..]),
            (&[(v6, 3)], &["ipv4", "ipv6"], &["ipv6"]),
            (&[(v4, 1), (v6, 2)], &["ipv4", "ipv6"], &["ipv6"]),
            (&[(v4, 2), (v6, 2)], &["ipv4"], &["ipv4"]),
            (&[(v4, 2)], &["ipv6"], &[]),
        ] {
            let notes = notes(&groups.iter().copied(), |family| families.contains(&family));
            assert_eq!(notes.len(), expected.len(), "{groups:?} {families:?}");
            assert!(
                notes
                    .iter()
                    .zip(expected)
                    .all(|(note, family)| note.contains(family)),
                "{notes:?}"
            );
        }
    }
}
