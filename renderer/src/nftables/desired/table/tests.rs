//! Properties of the remembered table, with a kernel that is only a set of elements.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use contiv_model::{
    Backend, BackendState, Balance, ChangeSet, ClusterIpMasquerade, ContivService, NodeFacts,
    Protocol, ServiceId, ServicePort, Snapshot, TrafficPolicy,
};
use proptest::{collection, option, prelude::*, sample};

use super::*;
use crate::nftables::desired::element::{Element, Key, Value};

/// A model of the kernel, as strict as the real one: no removal of a missing element, no duplicate addition, no verdict to a
/// missing chain.
#[derive(Debug, Default)]
struct Kernel {
    elements: BTreeMap<(Set, Key), Value>,
    chains: BTreeSet<DemandChain>,
}

impl Kernel {
    fn commit(&mut self, transaction: Transaction) {
        let mut transaction = transaction;
        let late = transaction.take_late();
        self.commit_at_once(&transaction);
        self.commit_at_once(&late);
    }

    fn commit_at_once(&mut self, transaction: &Transaction) {
        self.chains.extend(&transaction.chains);
        self.elements
            .retain(|(set, _), _| !transaction.flush.contains(set));
        // The elements that lead to a chain are added with it.
        let verdicts = transaction
            .chains
            .iter()
            .filter_map(|chain| elements::of_chain(*chain));
        self.elements
            .extend(verdicts.map(|verdict| ((verdict.set, verdict.key), verdict.value)));
        let (remove, add) = transaction.elements();
        for element in remove.into_values().flatten() {
            assert_eq!(
                self.elements.remove(&(element.set, element.key)),
                Some(element.value),
                "{element} was not there"
            );
        }
        for element in add.into_values().flatten() {
            assert_eq!(
                self.elements
                    .insert((element.set, element.key), element.value),
                None,
                "{element} was there"
            );
            for chain in needed_chains(element) {
                assert!(self.chains.contains(&chain), "{chain} does not exist");
            }
        }
    }

    /// All elements, without those that lead to chains in no use any more.
    fn elements(&self) -> Vec<Element> {
        let all = || {
            self.elements.iter().map(|((set, key), value)| Element {
                set: *set,
                key: *key,
                value: *value,
            })
        };
        let leads_to_chain = |element: &Element| element.set.kind.form() == Form::Chains;
        let used: BTreeSet<DemandChain> = all()
            .filter(|element| !leads_to_chain(element))
            .flat_map(|element| needed_chains(&element).collect::<Vec<_>>())
            .collect();
        let is_used = |element: &Element| needed_chains(element).all(|chain| used.contains(&chain));
        all()
            .filter(|element| !leads_to_chain(element) || is_used(element))
            .collect()
    }

    /// The elements as from a dump.
    fn read(&self) -> Elements {
        let mut read = Elements::default();
        for element in self.elements() {
            match element.key {
                Key::Frontend(frontend) | Key::Slot(frontend, _) | Key::Source(frontend, _) => {
                    read.frontends.entry(frontend).or_default().push(element);
                }
                Key::Address(_) | Key::Pair(_) => drop(read.others.insert(element)),
                // Only rules write affinity entries.
                Key::Number(_)
                | Key::Range(_)
                | Key::Interface(_)
                | Key::Client(..)
                | Key::Output(_) => (),
            }
        }
        read
    }
}

/// A resync with all groups of its transaction.
fn resync(snapshot: &Snapshot, kernel: Elements) -> (Table, Transaction) {
    let (table, mut transaction) = Table::resync(snapshot, kernel);
    if std::mem::take(&mut transaction.adds_all) {
        transaction.groups.extend(table.creation());
    }
    (table, transaction)
}

/// The order of a backend's slots depends on history and does not matter; their number does.
fn without_slot_numbers(elements: &[Element]) -> BTreeMap<(Set, Key, Value), usize> {
    let mut counted = BTreeMap::new();
    for element in elements {
        let key = if let Key::Slot(frontend, _) = element.key {
            Key::Frontend(frontend)
        } else {
            element.key
        };
        *counted
            .entry((element.set, key, element.value))
            .or_default() += 1;
    }
    counted
}

/// The number of elements of services in each set, one by one.
fn counts_of_services(table: &Table) -> Counts {
    let of_node: BTreeSet<Element> = elements::of_node(&table.node).collect();
    let mut counts = Counts::new();
    for element in table
        .elements()
        .iter()
        .filter(|element| !of_node.contains(element))
    {
        if element.set.kind.form() != Form::Chains && !INTERVALS.contains(&element.set.kind) {
            *counts.entry(element.set).or_default() += 1;
        }
    }
    counts
}

fn address(number: u8) -> IpAddr {
    if number.is_multiple_of(2) {
        IpAddr::from([10, 0, 0, number])
    } else {
        IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(number)])
    }
}

fn backend() -> impl Strategy<Value = Backend> {
    (100u8..108, 80u16..82, any::<bool>(), 1u16..4, 0..3_usize).prop_map(
        |(number, port, local, weight, state)| Backend {
            local,
            weight,
            state: [
                BackendState::Ready,
                BackendState::Terminating,
                BackendState::Failing,
            ][state],
            ..Backend::new(SocketAddr::new(address(number), port))
        },
    )
}

/// Frontends that choose by client address have a thousand elements, which makes them slow.
fn rarely() -> impl Strategy<Value = bool> {
    proptest::bool::weighted(0.05)
}

fn policy() -> impl Strategy<Value = TrafficPolicy> {
    prop_oneof![Just(TrafficPolicy::Cluster), Just(TrafficPolicy::Local)]
}

/// Services with distinct frontends: conflicts are resolved before a renderer sees them.
fn service(number: u8) -> impl Strategy<Value = ContivService> {
    let ports = collection::btree_map(
        (
            80u16..82,
            prop_oneof![Just(Protocol::Tcp), Just(Protocol::Udp)],
        ),
        (
            option::of(Just(())),
            collection::btree_map((100u8..108, 80u16..82), backend(), 0..5),
        ),
        1..3,
    );
    let who = (
        prop_oneof![Just(0u32), Just(60), Just(10_800)],
        any::<[bool; 2]>(),
        rarely(),
        rarely(),
    );
    (policy(), policy(), any::<[bool; 3]>(), ports, who).prop_map(
        move |(external, internal, has, ports, who)| {
            let (timeout, [restricted, on_node_ports], shared, by_client) = who;
            let own = |offset: u8, present: bool| present.then(|| address(number * 4 + offset));
            ContivService {
                external_policy: external,
                internal_policy: internal,
                cluster_ips: [own(0, has[0]), own(1, has[1])]
                    .into_iter()
                    .flatten()
                    .collect(),
                external_ips: [own(2, has[2]), own(3, has[2])]
                    .into_iter()
                    .flatten()
                    .collect(),
                load_balancer_ips: own(2, has[2]).into_iter().collect(),
                session_affinity_timeout: timeout,
                affinity_shared: shared,
                balance: if by_client {
                    Balance::ClientAddress
                } else {
                    Balance::Random
                },
                source_ranges: ["192.0.2.0/24", "192.0.2.0/28", "2001:db8::/32"]
                    .iter()
                    .filter_map(|range| range.parse().ok().filter(|_| restricted))
                    .collect(),
                source_ranges_on_node_ports: on_node_ports,
                ports: ports
                    .into_iter()
                    .map(|((port, protocol), (node_port, backends))| ServicePort {
                        port,
                        protocol,
                        name: "".into(),
                        node_port: node_port.map(|()| 30_000 + u16::from(number) * 100 + port),
                        backends: unique(backends.into_values()),
                    })
                    .collect(),
                ..ContivService::new(ServiceId::new("default", "named later"))
            }
        },
    )
}

fn unique(backends: impl Iterator<Item = Backend>) -> Vec<Backend> {
    backends
        .map(|backend| (backend.endpoint(), backend))
        .collect::<BTreeMap<SocketAddr, Backend>>()
        .into_values()
        .collect()
}

fn snapshot() -> impl Strategy<Value = Snapshot> {
    let interface =
        sample::select(&["cni0", "veth1", "veth*"][..]).prop_map(|text| text.parse().unwrap());
    let masquerade = sample::select(
        &[
            ClusterIpMasquerade::AllButPods,
            ClusterIpMasquerade::All,
            ClusterIpMasquerade::None,
        ][..],
    );
    let node = (
        collection::btree_set((1u8..5).prop_map(address), 0..3),
        collection::btree_set(0u8..3, 0..3),
        collection::btree_set(interface, 0..3),
        masquerade,
    );
    let services = (
        option::of(service(5)),
        option::of(service(6)),
        option::of(service(7)),
    );
    // From one state to the next frontends move between services, in both directions.
    let names = Just(["a", "b", "c"]).prop_shuffle();
    (services, names, node).prop_map(
        |((a, b, c), names, (node_ips, pods, interfaces, masquerade))| Snapshot {
            services: [a, b, c]
                .into_iter()
                .zip(names)
                .filter_map(|(service, name)| {
                    Some(ContivService {
                        id: ServiceId::new("default", name),
                        ..service?
                    })
                })
                .map(|service| (service.id.clone(), Arc::new(service)))
                .collect(),
            node: NodeFacts {
                node_ips,
                pod_cidrs: pods
                    .into_iter()
                    .filter_map(|number| format!("10.{number}.0.0/16").parse().ok())
                    .collect(),
                pod_interfaces: interfaces,
                cluster_ip_masquerade: masquerade,
                ..NodeFacts::default()
            },
            ..Snapshot::default()
        },
    )
}

proptest! {
    #[test]
    fn changes_lead_to_the_same_table_as_a_fresh_resync(states in collection::vec(snapshot(), 1..6)) {
        let mut kernel = Kernel::default();
        let (mut table, transaction) = resync(&states[0], Elements::default());
        kernel.commit(transaction);
        let mut pod_ranges = table.pod_ranges();
        for pair in states.windows(2) {
            let transaction = table.update(&pair[0].services, &ChangeSet::between(&pair[0], &pair[1]));
            pod_ranges = transaction.pod_ranges.unwrap_or(pod_ranges);
            kernel.commit(transaction);
            prop_assert_eq!(kernel.elements(), table.elements());
            let mut counts = table.counts();
            counts.retain(|set, _| set.kind.form() != Form::Chains);
            prop_assert_eq!(counts, counts_of_services(&table));
        }
        let last = states.last().unwrap();
        let fresh = Table::new(last);
        prop_assert_eq!(without_slot_numbers(&kernel.elements()), without_slot_numbers(&fresh.elements()));
        let used: BTreeSet<DemandChain> = table.chains().collect();
        prop_assert_eq!(used, fresh.chains().collect::<BTreeSet<_>>());
        prop_assert_eq!(pod_ranges, fresh.pod_ranges());
    }

    #[test]
    fn resync_over_an_older_table_equals_a_fresh_resync(old in snapshot(), new in snapshot()) {
        let mut kernel = Kernel::default();
        kernel.commit(resync(&old, Elements::default()).1);
        let (table, transaction) = resync(&new, kernel.read());
        kernel.commit(transaction);
        prop_assert_eq!(kernel.elements(), table.elements());
        let fresh = Table::new(&new);
        prop_assert_eq!(without_slot_numbers(&kernel.elements()), without_slot_numbers(&fresh.elements()));
    }

    #[test]
    fn second_resync_writes_nothing_but_ranges(state in snapshot()) {
        let mut kernel = Kernel::default();
        kernel.commit(resync(&state, Elements::default()).1);
        let (_, transaction) = resync(&state, kernel.read());
        let (remove, add) = transaction.elements();
        prop_assert_eq!(remove.len(), 0);
        prop_assert!(add.keys().all(|set| INTERVALS.contains(&set.kind)), "{:?}", add);
    }

    #[test]
    fn changes_cut_into_small_transactions_lead_to_same(old in snapshot(), new in snapshot(), limit in 1usize..20) {
        let mut kernel = Kernel::default();
        let (mut table, transaction) = resync(&old, Elements::default());
        kernel.commit(transaction);
        for part in table.update(&old.services, &ChangeSet::between(&old, &new)).split(iter::empty(), limit * 96) {
            kernel.commit(part);
        }
        prop_assert_eq!(kernel.elements(), table.elements());
    }

    #[test]
    fn change_in_two_transactions_keeps_what_packets_need_between(
        old in snapshot(),
        new in snapshot(),
    ) {
        let mut kernel = Kernel::default();
        let (mut table, transaction) = resync(&old, Elements::default());
        kernel.commit(transaction);
        let before = kernel.elements();
        let mut transaction = table.update(&old.services, &ChangeSet::between(&old, &new));
        let late = transaction.take_late();
        kernel.commit_at_once(&transaction);
        for element in before.iter().filter(|element| element.set.kind.is_needed_by_packets_under_way()) {
            prop_assert!(kernel.elements.contains_key(&(element.set, element.key)), "{} is gone early", element);
        }
        for element in table.elements() {
            prop_assert_eq!(kernel.elements.get(&(element.set, element.key)), Some(&element.value));
        }
        kernel.commit_at_once(&late);
        prop_assert_eq!(kernel.elements(), table.elements());
    }
}

#[test]
fn frontend_that_moves_between_services_keeps_its_elements() {
    let service = |name: &str, last: u8| {
        let port = ServicePort {
            port: 80,
            protocol: Protocol::Tcp,
            name: "".into(),
            node_port: Some(30_000 + u16::from(last)),
            backends: vec![Backend::new(SocketAddr::new(
                IpAddr::from([10, 244, 0, last]),
                8080,
            ))],
        };
        let service = ContivService {
            cluster_ips: [IpAddr::from([10, 96, 0, last])].into(),
            external_ips: [IpAddr::from([192, 0, 2, last])].into(),
            ports: vec![port],
            ..ContivService::new(ServiceId::new("default", name))
        };
        (service.id.clone(), Arc::new(service))
    };
    let state = |services: &[(&str, u8)]| Snapshot {
        services: services
            .iter()
            .map(|(name, last)| service(name, *last))
            .collect(),
        ..Snapshot::default()
    };
    // From a service to one before and after it by name, that is new, stays, or gives its own away.
    let cases = [
        (state(&[("b", 1)]), state(&[("a", 1)])),
        (state(&[("a", 1)]), state(&[("b", 1)])),
        (state(&[("a", 1), ("b", 2)]), state(&[("a", 2)])),
        (state(&[("a", 1), ("b", 2)]), state(&[("a", 2), ("b", 1)])),
        (
            state(&[("a", 1), ("b", 2), ("c", 3)]),
            state(&[("a", 2), ("b", 3), ("c", 1)]),
        ),
    ];
    for (old, new) in cases {
        let mut kernel = Kernel::default();
        let (mut table, transaction) = resync(&old, Elements::default());
        kernel.commit(transaction);
        kernel.commit(table.update(&old.services, &ChangeSet::between(&old, &new)));
        assert_eq!(
            kernel.elements(),
            Table::new(&new).elements(),
            "{:?}",
            new.services.keys()
        );
    }
}
