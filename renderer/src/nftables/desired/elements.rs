//! The elements that implement a frontend's plan. Pure.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use contiv_model::{ClusterIpMasquerade, InterfacePattern, NodeFacts};
use ipnetwork::IpNetwork;

use super::{
    element::{Element, FrontendKey, Key, Value},
    plan::{self, ConnectionAction, ExternalClients, FrontendPlan, Masquerade, Shares},
    programmed_elements::of_slot,
    slots,
};
use crate::nftables::layout::{
    Choice, DemandChain, Family, LearnChain, PickChain, PodRanges, Set, SetKind,
};

/// Interval sets. They have so few elements that they are emptied and filled in one transaction: the kernel stores an interval
/// as two elements, which cannot be compared one by one.
pub(crate) const INTERVALS: [SetKind; 8] = [
    SetKind::Pods,
    SetKind::PodInterfaces,
    SetKind::NoMasquerade,
    SetKind::NoMasqueradeInterfaces,
    SetKind::Loopback,
    SetKind::ServiceCidrs,
    SetKind::NonMasqueradeCidrs,
    SetKind::ServiceInterfaces,
];

/// The elements of one frontend, sorted. `before` are its current elements, so that slots stay in place.
pub(crate) fn of_frontend(
    frontend: FrontendKey,
    plan: &FrontendPlan,
    before: &[Element],
) -> Vec<Element> {
    let mut elements = Vec::new();
    let mut put = |kind, value| {
        let set = Set::new(kind, frontend.family());
        elements.push(Element {
            set,
            key: Key::Frontend(frontend),
            value,
        });
    };
    match plan.masquerade {
        Masquerade::ClusterIp => (),
        Masquerade::Always => put(SetKind::MasqueradeAlways, Value::None),
        Masquerade::Local => put(SetKind::MasqueradeLocal, Value::None),
    }
    match &plan.serving {
        ConnectionAction::Backends(_) => (),
        ConnectionAction::Reject => put(SetKind::NoEndpoints, Value::None),
        ConnectionAction::Drop => put(SetKind::NoLocalEndpoints, Value::None),
        // Unknown cluster IPs would be dropped.
        ConnectionAction::Pass => put(SetKind::RoutedFrontends, Value::None),
    }
    if let Some(ranges) = &plan.sources {
        put(SetKind::Restricted, Value::None);
        elements.extend(source_range_elements(frontend, ranges));
    }
    if let ConnectionAction::Backends(shares) = &plan.serving {
        elements.extend(backend_elements(frontend, shares, plan, before));
        elements.extend(affinity_element(frontend, plan.choice));
    }
    elements.sort_unstable();
    elements
}

/// The elements that send new connections to backends.
fn backend_elements(
    frontend: FrontendKey,
    shares: &Shares,
    plan: &FrontendPlan,
    before: &[Element],
) -> Vec<Element> {
    let (family, node_port) = (frontend.family(), frontend.is_node_port());
    let mut elements = slot_elements(frontend, SetKind::Backends, shares, plan.choice, before);
    #[allow(clippy::cast_possible_truncation)]
    let slots = elements.len() as u32;
    let external_slots = match &plan.external_clients {
        ExternalClients::Same => None,
        ExternalClients::Drop => Some(0),
        ExternalClients::Backends(shares) => {
            elements.extend(slot_elements(
                frontend,
                SetKind::BackendsExternal,
                shares,
                plan.choice,
                before,
            ));
            #[allow(clippy::cast_possible_truncation)]
            Some(elements.len() as u32 - slots)
        }
    };
    let choice = match plan.choice {
        plan::Choice::Random => Choice::Random,
        plan::Choice::Sticky(_) => Choice::Sticky,
        plan::Choice::Client => Choice::Client,
    };
    let pick = PickChain {
        family,
        node_port,
        choice,
        slots,
        external_slots,
    };
    elements.push(Element {
        set: Set::new(SetKind::Services, family),
        key: Key::Frontend(frontend),
        value: Value::Goto(DemandChain::Pick(pick)),
    });
    elements
}

/// The elements that assign slots to backends.
fn slot_elements(
    frontend: FrontendKey,
    kind: SetKind,
    shares: &Shares,
    choice: plan::Choice,
    before: &[Element],
) -> Vec<Element> {
    let backends = Set::new(kind, frontend.family());
    let slots = match choice {
        plan::Choice::Random | plan::Choice::Sticky(_) => {
            slots::assign(&slots_of(before, backends), shares)
        }
        plan::Choice::Client => slots::by_client(shares),
    };
    let slot =
        |(slot, backend): (u32, SocketAddr)| of_slot(backends, frontend, slot, backend.into());
    (0..).zip(slots).map(slot).collect()
}

/// The element that makes the kernel remember the backend of a client.
fn affinity_element(frontend: FrontendKey, choice: plan::Choice) -> Option<Element> {
    let plan::Choice::Sticky(timeout) = choice else {
        return None;
    };
    let (family, node_port) = (frontend.family(), frontend.is_node_port());
    let learn = DemandChain::Learn(LearnChain {
        family,
        node_port,
        timeout,
    });
    let set = Set::new(SetKind::Sticky, family);
    Some(Element {
        set,
        key: Key::Frontend(frontend),
        value: Value::Goto(learn),
    })
}

/// The elements of the source ranges.
fn source_range_elements(
    frontend: FrontendKey,
    ranges: &BTreeSet<IpNetwork>,
) -> impl Iterator<Item = Element> {
    let set = Set::new(SetKind::SourceRanges, frontend.family());
    let element = move |range| Element {
        set,
        key: Key::Source(frontend, range),
        value: Value::None,
    };
    without_overlaps(ranges).into_iter().map(element)
}

/// The backend of each slot; none for a missing one.
fn slots_of(elements: &[Element], backends: Set) -> Vec<Option<SocketAddr>> {
    let mut slots = Vec::new();
    for element in elements.iter().filter(|element| element.set == backends) {
        if let (Key::Slot(_, slot), Value::Backend(backend)) = (element.key, element.value) {
            let slot = slot as usize;
            // A foreign element with a huge slot number must not cause a huge allocation.
            if slot < elements.len() {
                slots.resize(slots.len().max(slot + 1), None);
                slots[slot] = Some(backend.into());
            }
        }
    }
    slots
}

/// The element that leads from the number of a chain to it; none for a chain that a hook leads to.
pub(crate) fn of_chain(chain: DemandChain) -> Option<Element> {
    let kind = match chain {
        DemandChain::Pick(_) => SetKind::PickChains,
        DemandChain::Learn(_) => SetKind::LearnChains,
        DemandChain::Base(_) => return None,
    };
    let (family, number) = chain.number()?;
    Some(Element {
        set: Set::new(kind, family),
        key: Key::Number(number),
        value: Value::Goto(chain),
    })
}

/// The elements for the addresses of the node.
pub(crate) fn of_node(node: &NodeFacts) -> impl Iterator<Item = Element> {
    let of_ip = |address: &IpAddr| {
        let set = Set::new(SetKind::NodeIps, Family::of(address));
        Element {
            set,
            key: Key::Address(*address),
            value: Value::None,
        }
    };
    node.node_port_ips()
        .map(of_ip)
        .chain(masquerade_sources(node))
}

/// The elements for the addresses that masqueraded connections get.
pub(crate) fn masquerade_sources(node: &NodeFacts) -> impl Iterator<Item = Element> {
    let sources = node.masquerade_sources.iter();
    let sources =
        sources.flat_map(|(name, sources)| sources.iter().map(move |source| (name, *source)));
    sources.filter_map(|(name, source)| {
        let set = Set::new(SetKind::MasqueradeSources, Family::of(&source));
        // nft would read a name that ends in an asterisk as a prefix.
        let name = name
            .0
            .parse()
            .ok()
            .filter(|name: &InterfacePattern| !name.is_prefix())?;
        Some(Element {
            set,
            key: Key::Output(name),
            value: Value::Address(source),
        })
    })
}

/// The elements of an interval set derived from the node's facts, sorted; none for any other set.
pub(crate) fn of_intervals(kind: SetKind, node: &NodeFacts) -> Vec<Element> {
    match kind {
        SetKind::Pods => range_elements(kind, &node.pod_cidrs),
        SetKind::PodInterfaces => interface_elements(kind, &node.pod_interfaces),
        SetKind::NoMasquerade => match node.cluster_ip_masquerade {
            ClusterIpMasquerade::AllButPods => range_elements(kind, &node.pod_cidrs),
            ClusterIpMasquerade::All => Vec::new(),
            ClusterIpMasquerade::None => range_elements(kind, &all_addresses()),
        },
        SetKind::NoMasqueradeInterfaces => match node.cluster_ip_masquerade {
            ClusterIpMasquerade::AllButPods => interface_elements(kind, &node.pod_interfaces),
            ClusterIpMasquerade::All | ClusterIpMasquerade::None => Vec::new(),
        },
        SetKind::Loopback => range_elements(kind, &loopback(node)),
        SetKind::ServiceCidrs => range_elements(kind, &node.service_cidrs),
        SetKind::NonMasqueradeCidrs => node
            .non_masquerade_cidrs
            .as_ref()
            .map(|ranges| range_elements(kind, ranges))
            .unwrap_or_default(),
        SetKind::ServiceInterfaces => node
            .service_interfaces
            .as_ref()
            .map(|names| interface_elements(kind, names))
            .unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// The ranges of pods that rules compare with.
pub(crate) fn pod_ranges(node: &NodeFacts) -> PodRanges {
    let kept = of_intervals(SetKind::NoMasquerade, node);
    let ranges = kept.iter().filter_map(|element| match element.key {
        Key::Range(range) => Some(range),
        _ => None,
    });
    PodRanges::new(&ranges.collect::<Vec<_>>())
}

/// All addresses of both families.
fn all_addresses() -> BTreeSet<IpNetwork> {
    Family::ALL
        .into_iter()
        .filter_map(|family| IpNetwork::new(family.unspecified(), 0).ok())
        .collect()
}

/// All loopback addresses in the families where node ports answer there.
fn loopback(node: &NodeFacts) -> BTreeSet<IpNetwork> {
    let prefix = |ip: &IpAddr| if ip.is_ipv4() { 8 } else { 128 };
    let loopback = node.node_ips.iter().filter(|ip| ip.is_loopback());
    loopback
        .filter_map(|ip| IpNetwork::new(*ip, prefix(ip)).ok())
        .collect()
}

fn interface_elements(kind: SetKind, patterns: &BTreeSet<InterfacePattern>) -> Vec<Element> {
    let covers = |outer: &InterfacePattern, inner: &InterfacePattern| {
        outer != inner && outer.is_prefix() && outer.matches(inner.stem())
    };
    // The kernel refuses overlapping intervals.
    let outermost: Vec<&InterfacePattern> = patterns
        .iter()
        .filter(|one| !patterns.iter().any(|other| covers(other, one)))
        .collect();
    let element = |family| {
        let set = Set::new(kind, family);
        outermost.iter().map(move |pattern| Element {
            set,
            key: Key::Interface(**pattern),
            value: Value::None,
        })
    };
    Family::ALL.into_iter().flat_map(element).collect()
}

fn range_elements(kind: SetKind, ranges: &BTreeSet<IpNetwork>) -> Vec<Element> {
    let element = |range: IpNetwork| {
        let set = Set::new(kind, Family::of(&range.ip()));
        Element {
            set,
            key: Key::Range(range),
            value: Value::None,
        }
    };
    without_overlaps(ranges).into_iter().map(element).collect()
}

/// Removes ranges within others: the kernel refuses overlapping intervals.
fn without_overlaps(ranges: &BTreeSet<IpNetwork>) -> BTreeSet<IpNetwork> {
    let covers = |outer: &IpNetwork, inner: &IpNetwork| {
        outer != inner && outer.prefix() <= inner.prefix() && outer.contains(inner.network())
    };
    let ranges = ranges
        .iter()
        .filter_map(|range| IpNetwork::new(range.network(), range.prefix()).ok());
    let ranges: BTreeSet<IpNetwork> = ranges.collect();
    let outermost = |range: &&IpNetwork| !ranges.iter().any(|other| covers(other, range));
    ranges.iter().filter(outermost).copied().collect()
}
