use std::{net::SocketAddr, sync::Arc};

use contiv_model::{Backend, ContivService, NodeFacts, Protocol, ServiceId, ServicePort, Snapshot};
use proptest::prelude::*;

use super::*;
use crate::nftables::verify::desired::DesiredTable;

/// `default/web` on 10.96.0.1:80 and `default/db` on 10.96.0.2:80, with so many backends each.
fn snapshot(backends: u8) -> Snapshot {
    let service = |name: &str, last: u8| {
        let mut service = ContivService::new(ServiceId::new("default", name));
        service.cluster_ips = [[10, 96, 0, last].into()].into();
        let at = |n: u8| Backend::new(SocketAddr::from(([10, 244, last, n], 8080)));
        let backends = (1..=backends).map(at).collect();
        let (port, protocol) = (80, Protocol::Tcp);
        service.ports = vec![ServicePort {
            port,
            protocol,
            name: "".into(),
            node_port: None,
            backends,
        }];
        (service.id.clone(), Arc::new(service))
    };
    let node = NodeFacts {
        node_ips: ["192.0.2.1".parse().unwrap()].into(),
        pod_cidrs: ["10.244.1.0/24".parse().unwrap()].into(),
        ..NodeFacts::default()
    };
    Snapshot {
        services: [service("web", 1), service("db", 2)].into(),
        node,
        ..Snapshot::default()
    }
}

/// A kernel with exactly the desired content.
fn kernel(desired: &DesiredTable) -> KernelTable {
    let set = |(name, desired): (&String, &DesiredSet)| {
        let ours = Set::by_name(name).unwrap().declaration();
        let (data_type, data_len) = ours.data.unwrap_or_default();
        let declaration = [ours.flags, ours.key_type, ours.key_len, data_type, data_len];
        (
            name.clone(),
            KernelSet {
                declaration,
                elements: desired.elements.clone(),
            },
        )
    };
    let sets = desired.sets.iter().map(set).collect();
    KernelTable {
        flags: 0,
        chains: desired.chains.clone(),
        sets,
    }
}

/// The drift after `damage` to a kernel with 3 backends for each service: service, element, kind of difference.
fn drift(damage: impl FnOnce(&mut KernelTable)) -> Vec<(String, String, String)> {
    let desired = DesiredTable::new(&snapshot(3));
    let mut kernel = kernel(&desired);
    damage(&mut kernel);
    let texts = |drift: Drift| {
        let service = drift
            .service
            .map(|service| service.to_string())
            .unwrap_or_default();
        let deviation = format!("{} {}", drift.deviation.word(), drift.deviation.detail())
            .trim()
            .to_owned();
        (
            service,
            format!("{}: {}", drift.place, drift.element),
            deviation,
        )
    };
    compare(&desired, &kernel)
        .drift
        .into_iter()
        .map(texts)
        .collect()
}

fn drift_of(service: &str, element: &str, deviation: &str) -> (String, String, String) {
    (service.to_owned(), element.to_owned(), deviation.to_owned())
}

const WEB: &str = "10.96.0.1 . tcp . 80";

fn set<'a>(
    kernel: &'a mut KernelTable,
    name: &str,
) -> &'a mut BTreeMap<String, BTreeSet<StoredEntry>> {
    &mut kernel.sets.get_mut(name).unwrap().elements
}

#[test]
fn correct_kernel_has_no_drift() {
    assert_eq!(drift(|_| ()), []);
}

#[test]
fn drift_is_named_missing_foreign_or_different_with_its_service() {
    let service = "default/web";
    let missing = drift(|kernel| drop(set(kernel, "services4").remove(WEB)));
    assert_eq!(
        missing,
        [drift_of(
            service,
            &format!("map services4: {WEB}"),
            "missing"
        )]
    );
    let foreign = drift(|kernel| {
        set(kernel, "cluster-ips4").insert("10.9.9.9".to_owned(), [(None, String::new())].into());
    });
    assert_eq!(
        foreign,
        [drift_of("", "set cluster-ips4: 10.9.9.9", "foreign")]
    );
    let different = drift(|kernel| {
        set(kernel, "services4").insert(WEB.to_owned(), [(None, "0:9".to_owned())].into());
    });
    let detail = "different is 0:9, expected 0:3";
    assert_eq!(
        different,
        [drift_of(service, &format!("map services4: {WEB}"), detail)]
    );
}

#[test]
fn backend_that_was_replaced_is_one_missing_and_one_foreign() {
    let found = drift(|kernel| {
        let slots = set(kernel, "backends4").get_mut(WEB).unwrap();
        assert!(slots.remove(&(Some(1), "10.244.1.2 . 8080".to_owned())));
        slots.insert((Some(1), "192.0.2.9 . 80".to_owned()));
    });
    let place = format!("map backends4: {WEB}");
    let expected = [
        drift_of(
            "default/web",
            &format!("{place} : 10.244.1.2 . 8080"),
            "missing",
        ),
        drift_of(
            "default/web",
            &format!("{place} : 192.0.2.9 . 80"),
            "foreign",
        ),
    ];
    assert_eq!(found, expected);
}

#[test]
fn slots_no_packet_finds_are_drift() {
    let found = drift(|kernel| {
        let slots = set(kernel, "backends4").get_mut(WEB).unwrap();
        assert!(slots.remove(&(Some(0), "10.244.1.1 . 8080".to_owned())));
        slots.insert((Some(7), "10.244.1.1 . 8080".to_owned()));
    });
    let detail = "different slots that are not numbered from 0: some are never found";
    assert_eq!(
        found,
        [drift_of(
            "default/web",
            &format!("map backends4: {WEB}"),
            detail
        )]
    );
}

#[test]
fn drift_covers_chains_sets_and_a_dormant_table() {
    let found = drift(|kernel| {
        kernel.flags = table::FLAG_DORMANT;
        kernel.chains.remove("check-v4");
        kernel.chains.insert("theirs".to_owned(), String::new());
        // An unused chain of ours.
        kernel.chains.insert("pick-v4-9".to_owned(), String::new());
        set(kernel, "pick-chains4").insert(
            "0:9".to_owned(),
            [(None, "goto pick-v4-9".to_owned())].into(),
        );
        set(kernel, "pick-chains4").insert(
            "0:8".to_owned(),
            [(None, "goto pick-v4-9".to_owned())].into(),
        );
        kernel
            .chains
            .insert("refuse-output".to_owned(), String::new());
        kernel.sets.remove("hairpin4");
        let theirs = KernelSet {
            declaration: [0; 5],
            elements: BTreeMap::new(),
        };
        kernel.sets.insert("theirs".to_owned(), theirs);
        kernel.sets.get_mut("no-endpoints4").unwrap().declaration[2] = 1;
    });
    let deviations: Vec<(&str, &str)> = found
        .iter()
        .map(|(_, element, text)| (element.as_str(), text.split(' ').next().unwrap()))
        .collect();
    let expected = [
        ("chains: check-v4", "missing"),
        ("chains: refuse-output", "different"),
        ("chains: theirs", "foreign"),
        ("map pick-chains4: 0:8", "foreign"),
        ("sets: hairpin4", "missing"),
        ("sets: no-endpoints4", "different"),
        ("sets: theirs", "foreign"),
        ("table inet contiv: ", "different"),
    ];
    assert_eq!(deviations, expected);
}

#[test]
fn affinity_memory_of_wrong_backends_is_drift() {
    let remember = |backend: &'static str| {
        drift(move |kernel| {
            let memory = set(kernel, "affinity4");
            memory.insert(
                format!("{WEB} . 10.0.0.9"),
                [(None, backend.to_owned())].into(),
            );
        })
    };
    assert_eq!(remember("10.244.1.1 . 8080"), []);
    let foreign = remember("10.244.9.9 . 8080");
    assert_eq!(
        foreign,
        [drift_of(
            "default/web",
            &format!("map affinity4: {WEB} . 10.0.0.9"),
            "foreign"
        )]
    );
}

proptest! {
    #[test]
    fn slot_order_is_free_but_other_backends_are_drift(order in Just((0..6_u8).collect::<Vec<_>>()).prop_shuffle(), damaged in 0..6_usize) {
        let desired = DesiredTable::new(&snapshot(6));
        let mut kernel = kernel(&desired);
        let backend = |n: u8| format!("10.244.1.{} . 8080", n + 1);
        let slots: BTreeSet<StoredEntry> = order.iter().zip(0..).map(|(n, slot)| (Some(slot), backend(*n))).collect();
        set(&mut kernel, "backends4").insert(WEB.to_owned(), slots.clone());
        prop_assert!(compare(&desired, &kernel).drift.is_empty());
        let slot = u32::try_from(damaged).unwrap();
        let mut wrong = slots;
        wrong.retain(|(other, _)| *other != Some(slot));
        wrong.insert((Some(slot), backend(order[(damaged + 1) % 6])));
        set(&mut kernel, "backends4").insert(WEB.to_owned(), wrong);
        prop_assert_eq!(compare(&desired, &kernel).drift.len(), 2, "one has a slot too many, one has none");
    }
}
