use contiv_model::{Backend, BackendState, Protocol, ServiceChange, ServicePort, TrafficPolicy};
use contiv_model_testing::mirror;
use proptest::{collection::btree_map, prelude::*, sample::subsequence};

use super::*;
use crate::route::{AddressKind, plan::Purpose};

/// External IPs of services. There are few, so that services share them.
const EXTERNAL: [&str; 4] = ["198.51.100.1", "198.51.100.2", "2001:db8::1", "192.0.2.1"];
/// Addresses of the node, of which one is also an external IP.
const LOCAL: [&str; 3] = ["192.0.2.1", "192.0.2.2", "fd00::1"];

/// Any subset of these addresses.
fn subset_of(texts: &'static [&'static str]) -> impl Strategy<Value = BTreeSet<IpAddr>> {
    let all: Vec<IpAddr> = texts.iter().map(|text| text.parse().unwrap()).collect();
    subsequence(all.clone(), 0..=all.len()).prop_map(BTreeSet::from_iter)
}

fn service() -> impl Strategy<Value = ContivService> {
    let backend = (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(v4, local, ready)| {
        let address: IpAddr = if v4 {
            [10, 1, 0, 1].into()
        } else {
            IpAddr::V6(1.into())
        };
        let state = if ready {
            BackendState::Ready
        } else {
            BackendState::Terminating
        };
        Backend {
            local,
            state,
            ..Backend::new((address, 8080).into())
        }
    });
    (
        subset_of(&EXTERNAL),
        proptest::option::of(backend),
        any::<bool>(),
    )
        .prop_map(|(external_ips, backend, has_local_policy)| {
            let backends = backend.into_iter().collect();
            let port = ServicePort {
                port: 80,
                protocol: Protocol::Tcp,
                name: "".into(),
                node_port: None,
                backends,
            };
            ContivService {
                external_ips: external_ips.into(),
                external_policy: if has_local_policy {
                    TrafficPolicy::Local
                } else {
                    TrafficPolicy::Cluster
                },
                ports: vec![port],
                ..ContivService::new(ServiceId::new("default", ""))
            }
        })
}

fn snapshot() -> impl Strategy<Value = Snapshot> {
    let node =
        (subset_of(&LOCAL), subset_of(&LOCAL)).prop_map(|(primary_ips, local_ips)| NodeFacts {
            primary_ips,
            local_ips,
            ..NodeFacts::default()
        });
    (btree_map(0..4_u8, service(), 0..4), node).prop_map(|(services, node)| {
        let named = services.into_iter().map(|(number, service)| {
            let id = ServiceId::new("default", number.to_string());
            (id.clone(), Arc::new(ContivService { id, ..service }))
        });
        Snapshot {
            services: named.collect(),
            node,
            ..Snapshot::default()
        }
    })
}

proptest! {
    #[test]
    fn updates_lead_to_the_same_state_as_a_full_computation(
        snapshots in proptest::collection::vec(snapshot(), 2..5),
        keeps_node in any::<bool>(),
    ) {
        let options = RouteOptions::default();
        let mut before = snapshots[0].clone();
        let mut desired = Desired::new(&before, options);
        for mut after in snapshots.into_iter().skip(1) {
            if keeps_node {
                after.node.clone_from(&before.node);
            }
            let old: BTreeSet<Destination> = desired.destinations().collect();
            let affected = desired.update(&ChangeSet::between(&before, &after));
            prop_assert_eq!(&desired, &Desired::new(&after, options));
            let new: BTreeSet<Destination> = desired.destinations().collect();
            prop_assert!(old.symmetric_difference(&new).all(|changed| affected.contains(changed)));
            before = after;
        }
    }

    #[test]
    fn mirror_image_of_services_has_the_mirror_image_as_destinations(snapshot in snapshot()) {
        let advertise = [AddressKind::Cluster, AddressKind::External].into_iter().collect();
        let options = RouteOptions { advertise, reach_from_node: true, ..RouteOptions::default() };
        let desired = Desired::new(&snapshot, options);
        let image = Desired::new(&mirror::snapshot(&snapshot), options);
        let expected: BTreeSet<Destination> = desired
            .destinations()
            .map(|to| Destination { address: mirror::address(to.address), ..to })
            .collect();
        prop_assert_eq!(image.destinations().collect::<BTreeSet<_>>(), expected);
        let sources = desired.sources().map(|source| source.map(mirror::address));
        prop_assert_eq!(image.sources(), [sources[1], sources[0]]);
    }
}

#[test]
fn shared_address_stays_until_both_services_are_deleted() {
    let address: IpAddr = [198, 51, 100, 1].into();
    let port = |port| ServicePort {
        port,
        protocol: Protocol::Tcp,
        name: "".into(),
        node_port: None,
        backends: vec![Backend::new(([10, 1, 0, 1], 8080).into())],
    };
    let service = |name, number| {
        Arc::new(ContivService {
            external_ips: [address].into(),
            ports: vec![port(number)],
            ..ContivService::new(ServiceId::new("default", name))
        })
    };
    let services = [service("a", 80), service("b", 443)];
    let snapshot = Snapshot {
        services: services
            .iter()
            .map(|service| (service.id.clone(), Arc::clone(service)))
            .collect(),
        ..Snapshot::default()
    };
    let advertise = [AddressKind::External].into_iter().collect();
    let mut desired = Desired::new(
        &snapshot,
        RouteOptions {
            advertise,
            ..RouteOptions::default()
        },
    );
    let destination = Destination {
        purpose: Purpose::Advertise,
        address,
    };
    assert_eq!(desired.owners(destination).count(), 2);
    for (service, is_still_advertised) in services.into_iter().zip([true, false]) {
        let id = service.id.clone();
        let deletion = ServiceChange {
            old: Some(service),
            new: None,
        };
        let changes = ChangeSet {
            services: [(id, deletion)].into(),
            ..ChangeSet::default()
        };
        assert!(desired.update(&changes).contains(&destination));
        assert_eq!(desired.contains(destination), is_still_advertised);
    }
}
