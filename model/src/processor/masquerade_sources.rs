//! The addresses that masqueraded connections get. Pure.
//!
//! The kernel masquerades with an address of the output interface (of another one, if that has none), whatever its routes and
//! the cluster say. Answers to such an address may never return, where the network knows only the node's own address.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnetwork::IpNetwork;

use super::event::{LocalInterface, LocalInterfaces};
use crate::{InterfaceName, NodeFacts};

/// The address that connections get where they are masqueraded and leave by these interfaces: the one that the node is known
/// by. Other interfaces are left to the kernel.
pub(super) fn masquerade_sources(
    interfaces: &LocalInterfaces,
    facts: &NodeFacts,
) -> BTreeMap<InterfaceName, BTreeSet<IpAddr>> {
    let of_interface = |(name, interface): (&InterfaceName, &LocalInterface)| {
        let sources: BTreeSet<IpAddr> = [true, false]
            .into_iter()
            .filter_map(|ipv4| source(interface, facts, ipv4))
            .collect();
        (!sources.is_empty()).then(|| (name.clone(), sources))
    };
    interfaces.iter().filter_map(of_interface).collect()
}

/// The address of one family; none if the kernel's choice is right, or could not be another.
fn source(interface: &LocalInterface, facts: &NodeFacts, ipv4: bool) -> Option<IpAddr> {
    if !interface.has_routes(ipv4) {
        return None;
    }
    let own: Vec<&IpNetwork> = interface
        .networks
        .iter()
        .filter(|network| network.is_ipv4() == ipv4)
        .collect();
    let named = || {
        interface
            .route_sources
            .iter()
            .filter(|ip| ip.is_ipv4() == ipv4)
    };
    // The routes of an interface without such an address let the kernel search all others.
    let others = || {
        facts
            .local_ips
            .iter()
            .filter(|ip| ip.is_ipv4() == ipv4 && !is_confined(ip))
            .copied()
    };
    let choices: BTreeSet<IpAddr> = if own.is_empty() {
        others().collect()
    } else {
        own.iter().map(|network| network.ip()).collect()
    };
    let is_right = |address: &IpAddr| {
        let is_own = own.iter().any(|network| network.ip() == *address);
        let is_wanted = if is_own {
            // With several networks the kernel chooses by the next hop; single addresses are no network.
            own.iter()
                .all(|network| is_single(network) || network.contains(*address))
        } else {
            // An overlay has an address of its own, to which answers return through it, unless its routes name another.
            own.is_empty() || named().any(|source| source == address)
        };
        is_wanted && named().all(|source| source == address)
    };
    let known = facts
        .primary_ips
        .iter()
        .filter(|ip| ip.is_ipv4() == ipv4 && facts.local_ips.contains(ip));
    known
        .copied()
        .find(is_right)
        .filter(|address| choices.iter().any(|choice| choice != address))
}

/// True if the kernel masquerades with the address on no interface but its own, or on none.
const fn is_confined(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unicast_link_local(),
    }
}

fn is_single(network: &IpNetwork) -> bool {
    network.prefix() == if network.is_ipv4() { 32 } else { 128 }
}

#[cfg(test)]
mod tests {
    use contiv_model_testing::mirror;

    use super::*;

    const KNOWN: &str = "192.168.50.2";

    /// The node's address on an interface with these networks, to which routes with these sources lead. The mirror image has the
    /// mirror image of it.
    fn source_of(networks: &[&str], route_sources: &[&str], local_ips: &[&str]) -> Option<String> {
        let of_family = |ipv4: bool| {
            let ip = |text: &&str| -> IpAddr {
                let ip = text.parse().unwrap();
                if ipv4 { ip } else { mirror::address(ip) }
            };
            let network = |text: &&str| -> IpNetwork {
                let network = text.parse().unwrap();
                if ipv4 {
                    network
                } else {
                    mirror::range(network)
                }
            };
            let networks: BTreeSet<IpNetwork> = networks.iter().map(network).collect();
            let interface = LocalInterface {
                addresses: networks.iter().map(IpNetwork::ip).collect(),
                networks,
                route_sources: route_sources.iter().map(ip).collect(),
                has_ipv4_routes: ipv4,
                has_ipv6_routes: !ipv4,
                ..LocalInterface::default()
            };
            let local_ips: BTreeSet<IpAddr> = local_ips.iter().map(ip).collect();
            let local_ips = &local_ips | &interface.addresses;
            let primary_ips = [ip(&KNOWN)].into();
            let facts = NodeFacts {
                primary_ips,
                local_ips,
                ..NodeFacts::default()
            };
            let name = InterfaceName::new("eth0");
            let sources =
                masquerade_sources(&[(name.clone(), interface)].into(), &facts).remove(&name);
            sources.unwrap_or_default().into_iter().next()
        };
        let source = of_family(true);
        assert_eq!(of_family(false), source.map(mirror::address), "IPv6");
        source.map(|source| source.to_string())
    }

    #[test]
    fn known_address_is_taken_where_routes_agree() {
        let known = Some(KNOWN.to_owned());
        let loopback = &["127.0.0.1", KNOWN][..];
        let alias = &["127.0.0.1", KNOWN, "10.99.0.1"][..];
        for (networks, route_sources, local_ips, expected) in [
            // The node's address on `lo`, and another one on the link.
            (
                &["169.254.50.2/30"][..],
                &[KNOWN][..],
                loopback,
                known.clone(),
            ),
            // The interface of a pod without an address, and an alias on `lo`.
            (&[], &[], alias, known.clone()),
            // A second address of the same network, or a single one.
            (
                &["192.168.50.1/24", "192.168.50.2/24"],
                &[],
                loopback,
                known.clone(),
            ),
            (
                &["192.168.50.2/24", "203.0.113.9/32"],
                &[KNOWN],
                loopback,
                known,
            ),
        ] {
            assert_eq!(
                source_of(networks, route_sources, local_ips),
                expected,
                "{networks:?} {route_sources:?}"
            );
        }
    }

    #[test]
    fn link_local_address_of_ipv6_is_confined_to_its_interface() {
        let (known, link_local) = ("fd00::2".parse().unwrap(), "fe80::1".parse().unwrap());
        let interface = LocalInterface {
            has_ipv6_routes: true,
            ..LocalInterface::default()
        };
        let source = |local_ips: &[IpAddr]| {
            let local_ips = local_ips.iter().copied().collect();
            source(
                &interface,
                &NodeFacts {
                    primary_ips: [known].into(),
                    local_ips,
                    ..NodeFacts::default()
                },
                false,
            )
        };
        assert_eq!(
            source(&[known, link_local]),
            None,
            "the kernel has no other choice"
        );
        assert_eq!(
            source(&[known, link_local, "fd00::3".parse().unwrap()]),
            Some(known)
        );
    }

    #[test]
    fn choice_is_left_to_kernel_where_it_is_right() {
        let loopback = &["127.0.0.1", KNOWN][..];
        for (networks, route_sources, local_ips, why) in [
            (
                &["192.168.50.2/24"][..],
                &[KNOWN][..],
                &["127.0.0.1"][..],
                "it has no other address",
            ),
            (&[], &[], loopback, "no interface has another"),
            (&["10.244.1.0/32"], &[], loopback, "an overlay"),
            (
                &["192.168.50.2/24", "10.0.0.5/24"],
                &[],
                loopback,
                "the network of the next hop decides",
            ),
            (
                &["169.254.50.2/30"],
                &[KNOWN, "169.254.50.2"],
                loopback,
                "routes name different ones",
            ),
            (
                &[],
                &["10.99.0.1"],
                &[KNOWN, "10.99.0.1"],
                "routes name another one",
            ),
            (
                &["169.254.50.2/30"],
                &[KNOWN],
                &["127.0.0.1"],
                "the address is elsewhere",
            ),
        ] {
            assert_eq!(source_of(networks, route_sources, local_ips), None, "{why}");
        }
    }
}
