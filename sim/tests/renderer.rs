//! The real nftables renderer on the modelled kernel.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use contiv_model::{
    Backend, ChangeSet, ContivService, NodeFacts, Protocol, ServiceId, ServicePort, Snapshot,
};
use contiv_model_testing::mirror;
use contiv_renderer::{
    RenderError, Renderer, Verifier, Watch,
    nftables::{Nftables, TableVerifier},
    poison_isolator::PoisonIsolator,
};
use contiv_sim::kernel::{
    Connection, Errno, Fate, Fault, ForeignChange, ModelKernel, NewConnection, status,
};

const TABLE: &str = "contiv";
const TCP: u8 = 6;

/// Services with an address, a node port, session affinity, source ranges, and several backends.
fn snapshot(services: u8, backends: u8) -> Snapshot {
    let service = |number: u8| {
        let backend =
            |backend: u8| Backend::new((IpAddr::from([10, 244, number, backend]), 8080).into());
        let port = ServicePort {
            port: 80,
            protocol: Protocol::Tcp,
            name: "web".into(),
            node_port: number
                .is_multiple_of(2)
                .then_some(30_000 + u16::from(number)),
            backends: (1..=backends).map(backend).collect(),
        };
        let mut service = ContivService::new(ServiceId::new("default", format!("web-{number}")));
        service.cluster_ips = [IpAddr::from([10, 96, 0, number])].into();
        service.ports = vec![port];
        if number.is_multiple_of(3) {
            service.session_affinity_timeout = 60;
        }
        if number.is_multiple_of(4) {
            let external = IpAddr::from([192, 0, 2, number]);
            service.external_ips = [external].into();
            service.load_balancer_ips = [external].into();
            service.source_ranges = ["198.51.100.0/24".parse().unwrap()].into();
        }
        Arc::new(service)
    };
    let services: BTreeMap<_, _> = (1..=services)
        .map(service)
        .map(|service| (service.id.clone(), service))
        .collect();
    let node = NodeFacts {
        node_ips: [IpAddr::from([172, 31, 0, 1])].into(),
        local_ips: [IpAddr::from([172, 31, 0, 1])].into(),
        pod_cidrs: ["10.244.0.0/16".parse().unwrap()].into(),
        ..NodeFacts::default()
    };
    Snapshot {
        services,
        node,
        ..Snapshot::default()
    }
}

fn kernel() -> ModelKernel {
    let kernel = ModelKernel::new();
    kernel.set_addresses([IpAddr::from([172, 31, 0, 1])]);
    kernel
}

/// Verifies that the kernel's table matches the snapshot.
fn assert_matches_snapshot(kernel: &ModelKernel, snapshot: &Snapshot) {
    let verification = TableVerifier::on(kernel.shared()).verify(snapshot).unwrap();
    assert!(verification.drift.is_empty(), "{:#?}", verification.drift);
}

fn to(destination: &str) -> NewConnection {
    NewConnection {
        protocol: TCP,
        client: "198.51.100.7:4000".parse().unwrap(),
        destination: destination.parse().unwrap(),
        interface: Some("eth0".to_owned()),
    }
}

fn first(_: u32) -> u32 {
    0
}

fn next(watch: &mut Box<dyn Watch>) -> Poll<Option<String>> {
    watch
        .try_next()
        .unwrap()
        .map(|change| change.map(|change| change.to_string()))
}

#[test]
fn resyncs_and_updates_are_applied_and_read_back() {
    for owning in [false, true] {
        let kernel = kernel();
        let new = || {
            if owning {
                Nftables::owning_on(kernel.shared())
            } else {
                Nftables::on(kernel.shared())
            }
        };
        let mut renderer = new();
        let (few, many) = (snapshot(9, 2), snapshot(12, 3));
        renderer.resync(&few).unwrap();
        assert_matches_snapshot(&kernel, &few);
        renderer.update(&ChangeSet::between(&few, &many)).unwrap();
        assert_matches_snapshot(&kernel, &many);
        renderer.update(&ChangeSet::between(&many, &few)).unwrap();
        assert_matches_snapshot(&kernel, &few);
        // The next process finds the correct elements.
        drop(renderer);
        kernel.forget_background();
        let mut renderer = new();
        renderer.prepare();
        let report = renderer.resync(&few).unwrap();
        assert_eq!(report.removed, 0);
        assert_matches_snapshot(&kernel, &few);
        renderer.cleanup().unwrap();
        assert!(
            TableVerifier::on(kernel.shared())
                .elements()
                .unwrap()
                .is_none()
        );
    }
}

#[test]
fn refused_batch_does_not_change_the_kernel() {
    let kernel = kernel();
    let mut renderer = Nftables::on(kernel.shared());
    let (few, many) = (snapshot(3, 2), snapshot(6, 3));
    renderer.resync(&few).unwrap();
    let changes = ChangeSet::between(&few, &many);
    for fault in [
        Fault::RefuseMessage {
            message: 0,
            errno: Errno::EBUSY,
        },
        Fault::RefuseMessage {
            message: 2,
            errno: Errno::ENOMEM,
        },
        Fault::RefuseBatch(Errno::EINTR),
        Fault::RefuseSending(Errno::ENOBUFS),
    ] {
        kernel.inject(fault);
        // If the kernel names the refused element, all others are tried again at once.
        let active = if renderer.update(&changes).is_ok() {
            &many
        } else {
            &few
        };
        assert_eq!(
            kernel.stalls(),
            0,
            "{fault:?}: the renderer waits for an answer that never comes"
        );
        assert_matches_snapshot(&kernel, active);
        renderer.resync(&few).unwrap();
    }
    // The transaction is committed though its answer is lost.
    kernel.inject(Fault::LoseAnswer);
    assert!(renderer.update(&changes).is_err());
    renderer.resync(&many).unwrap();
    assert_matches_snapshot(&kernel, &many);
    kernel.set_denied(true);
    let error = renderer.resync(&many).unwrap_err();
    assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}");
    kernel.set_denied(false);
    renderer.resync(&many).unwrap();
    kernel.inject(Fault::InterruptDump);
    renderer.resync(&many).unwrap();
    assert!(kernel.forget_faults().is_empty());
}

/// A service that outgrows the declared size of a set needs a resync, which creates the set again.
#[test]
fn search_for_refused_services_leaves_out_none_that_needs_larger_sets() {
    let kernel = kernel();
    let mut renderer = PoisonIsolator::new(Nftables::on(kernel.shared()));
    let (few, mut many) = (snapshot(2, 2), snapshot(2, 250));
    for service in many.services.values_mut() {
        let port = service.ports[0].clone();
        Arc::make_mut(service).ports = (80..92)
            .map(|number| ServicePort {
                port: number,
                ..port.clone()
            })
            .collect();
    }
    renderer.resync(&few).unwrap();
    // The update fails since a set is full, and the resync after it by chance: so the services are tried one after the other.
    kernel.inject(Fault::RefuseBatch(Errno::ENOMEM));
    kernel.inject(Fault::RefuseBatch(Errno::ENOMEM));
    let report = renderer.update(&ChangeSet::between(&few, &many)).unwrap();
    assert_eq!(report.rejected, []);
    assert_matches_snapshot(&kernel, &many);
}

#[test]
fn foreign_changes_are_reported_and_healed() {
    let kernel = kernel();
    let mut renderer = Nftables::on(kernel.shared());
    let snapshot = snapshot(6, 2);
    let mut watch = renderer.watch().unwrap().unwrap();
    renderer.resync(&snapshot).unwrap();
    assert_eq!(
        next(&mut watch),
        Poll::Pending,
        "own changes are not reported"
    );
    let named = str::to_owned;
    for what in [
        ForeignChange::DeleteElement {
            set: named("services4"),
            number: 1,
        },
        ForeignChange::ReplaceValue {
            set: named("services4"),
            number: 0,
        },
        ForeignChange::AddElement {
            set: named("cluster-ips4"),
        },
        ForeignChange::FlushSet(named("backends4")),
        ForeignChange::FlushChain(named("services-v4")),
        ForeignChange::DropAtFirst(named("nat-prerouting")),
        ForeignChange::DeleteChain(named("nat-output")),
        ForeignChange::AddChain(named("foreign-chain")),
        ForeignChange::FlushTable,
        ForeignChange::DeleteTable,
        ForeignChange::FlushRuleset,
        ForeignChange::PutToSleep,
    ] {
        kernel.apply_foreign_change(TABLE, &what).unwrap();
        let change = next(&mut watch);
        assert!(
            matches!(&change, Poll::Ready(Some(text)) if text.starts_with("nft (pid 4711)")),
            "{what:?}: {change:?}"
        );
        renderer.heal(&snapshot).unwrap();
        assert_matches_snapshot(&kernel, &snapshot);
        assert_eq!(next(&mut watch), Poll::Pending);
    }
    kernel
        .apply_foreign_change(TABLE, &ForeignChange::OtherTable)
        .unwrap();
    assert_eq!(next(&mut watch), Poll::Pending, "it is another table");
    kernel.overflow_notifications();
    assert!(next(&mut watch).is_ready());
    drop(renderer);
    assert_eq!(next(&mut watch), Poll::Ready(None));
}

#[test]
fn owned_table_cannot_be_changed_by_others() {
    let kernel = kernel();
    let mut renderer = Nftables::owning_on(kernel.shared());
    let snapshot = snapshot(3, 1);
    renderer.resync(&snapshot).unwrap();
    assert_eq!(
        kernel.apply_foreign_change(TABLE, &ForeignChange::DeleteTable),
        Err(Errno::EPERM)
    );
    kernel
        .apply_foreign_change(TABLE, &ForeignChange::FlushRuleset)
        .unwrap();
    assert_matches_snapshot(&kernel, &snapshot);
    let mut other = Nftables::owning_on(kernel.shared());
    assert!(
        other
            .resync(&snapshot)
            .unwrap_err()
            .to_string()
            .contains("another process owns it")
    );
    drop(renderer);
    other.resync(&snapshot).unwrap();
}

#[test]
fn missing_module_is_named() {
    let kernel = kernel();
    kernel.set_missing_modules(&["nat"]);
    let error = Nftables::on(kernel.shared())
        .resync(&snapshot(1, 1))
        .unwrap_err();
    assert!(
        matches!(&error, RenderError::MissingModules { .. }),
        "{error}"
    );
    kernel.set_missing_modules(&["hash"]);
    Nftables::on(kernel.shared())
        .resync(&snapshot(1, 1))
        .unwrap();
}

#[test]
fn connections_go_where_the_elements_lead() {
    let kernel = kernel();
    let mut renderer = Nftables::on(kernel.shared());
    let mut snapshot = snapshot(6, 2);
    renderer.resync(&snapshot).unwrap();
    let delivered = |server: &str, is_masqueraded| Fate::Delivered {
        server: server.parse().unwrap(),
        is_masqueraded,
        is_local: false,
    };
    assert_eq!(
        kernel.evaluate(&to("10.96.0.1:80"), &mut first),
        delivered("10.244.1.1:8080", true)
    );
    assert_eq!(
        kernel.evaluate(&to("10.96.0.1:80"), &mut |_| 1),
        delivered("10.244.1.2:8080", true)
    );
    assert_eq!(
        kernel.evaluate(&to("172.31.0.1:30002"), &mut first),
        delivered("10.244.2.1:8080", true)
    );
    assert_eq!(
        kernel.evaluate(&to("10.96.0.1:81"), &mut first),
        Fate::Rejected
    );
    let by_pod = NewConnection {
        client: "10.244.9.9:4000".parse().unwrap(),
        ..to("10.96.0.1:80")
    };
    assert_eq!(
        kernel.evaluate(&by_pod, &mut first),
        delivered("10.244.1.1:8080", false)
    );
    let by_node = NewConnection {
        interface: None,
        client: "172.31.0.1:4000".parse().unwrap(),
        ..to("10.96.0.1:80")
    };
    assert!(matches!(
        kernel.evaluate(&by_node, &mut first),
        Fate::Delivered { .. }
    ));
    // Ranges of sources hold for addresses outside.
    let stranger = NewConnection {
        client: "203.0.113.9:4000".parse().unwrap(),
        ..to("192.0.2.4:80")
    };
    assert_eq!(kernel.evaluate(&stranger, &mut first), Fate::Dropped);
    assert!(matches!(
        kernel.evaluate(&to("192.0.2.4:80"), &mut first),
        Fate::Delivered { .. }
    ));
    // A service without backends rejects.
    let mut empty = (*snapshot.services.values().next().unwrap().clone()).clone();
    empty.ports[0].backends.clear();
    snapshot.services.insert(empty.id.clone(), Arc::new(empty));
    renderer.resync(&snapshot).unwrap();
    assert_eq!(
        kernel.evaluate(&to("10.96.0.1:80"), &mut first),
        Fate::Rejected
    );
    // Everybody else's traffic passes.
    assert_eq!(
        kernel.evaluate(&to("203.0.113.1:443"), &mut first),
        delivered("203.0.113.1:443", false)
    );
}

#[test]
fn clients_are_remembered_for_their_time() {
    let kernel = kernel();
    let mut renderer = Nftables::on(kernel.shared());
    renderer.resync(&snapshot(3, 2)).unwrap();
    let server = |fate: Fate| match fate {
        Fate::Delivered { server, .. } => server.to_string(),
        other => panic!("{other:?}"),
    };
    let sticky = to("10.96.0.3:80");
    assert_eq!(server(kernel.open(&sticky, &mut |_| 1)), "10.244.3.2:8080");
    let again = NewConnection {
        client: "198.51.100.7:4001".parse().unwrap(),
        ..sticky
    };
    assert_eq!(
        server(kernel.evaluate(&again, &mut first)),
        "10.244.3.2:8080"
    );
    kernel.set_time(Duration::from_secs(61));
    assert_eq!(
        server(kernel.evaluate(&again, &mut first)),
        "10.244.3.1:8080"
    );
    assert_eq!(kernel.connections().len(), 1);
}

#[test]
fn stale_flows_go_when_the_background_runs() {
    let kernel = kernel();
    let mut renderer = Nftables::on(kernel.shared());
    let service = |backends| {
        let mut snapshot = snapshot(1, backends);
        for service in snapshot.services.values_mut() {
            Arc::make_mut(service).ports[0].protocol = Protocol::Udp;
        }
        snapshot
    };
    let (two, one) = (service(2), service(1));
    renderer.resync(&two).unwrap();
    let flow = |server: &str| Connection {
        protocol: 17,
        client: "10.244.9.9:4000".parse().unwrap(),
        destination: "10.96.0.1:80".parse().unwrap(),
        server: server.parse().unwrap(),
        source: "10.244.9.9:4000".parse().unwrap(),
        status: status::CONFIRMED | status::DST_NAT,
        id: 0,
    };
    kernel.add_connection(&flow("10.244.1.1:8080"));
    kernel.add_connection(&flow("10.244.1.2:8080"));
    renderer.update(&ChangeSet::between(&two, &one)).unwrap();
    assert_eq!(kernel.connections().len(), 2, "nothing runs by itself");
    kernel.run_background();
    let left: Vec<String> = kernel
        .connections()
        .iter()
        .map(|flow| flow.server.to_string())
        .collect();
    assert_eq!(left, ["10.244.1.1:8080"]);
    let sizes: BTreeMap<String, usize> = renderer.describe().sizes.into_iter().collect();
    let of_flows =
        ["stale-flows-deleted", "stale-flow-failures"].map(|name| sizes.get(name).copied());
    assert_eq!(of_flows, [Some(1), Some(0)]);
    assert!(sizes["stale-flow-searches"] > 0);
}

/// What is described is what the kernel has.
#[test]
fn description_counts_the_elements_of_each_set() {
    let kernel = kernel();
    let mut renderer = Nftables::on(kernel.shared());
    renderer.resync(&snapshot(6, 2)).unwrap();
    let sizes: BTreeMap<String, usize> = renderer.describe().sizes.into_iter().collect();
    let elements = TableVerifier::on(kernel.shared())
        .elements()
        .unwrap()
        .unwrap();
    for (set, elements) in elements {
        assert_eq!(sizes.get(&set), Some(&elements.len()), "{set}");
    }
}

/// Connections never meet a part of it.
#[test]
fn change_that_fits_is_one_transaction() {
    let kernel = kernel();
    let mut renderer = Nftables::on(kernel.shared());
    let (few, many) = (snapshot(9, 2), snapshot(12, 3));
    assert_eq!(renderer.resync(&few).unwrap().transactions, 1);
    assert_eq!(
        renderer
            .update(&ChangeSet::between(&few, &many))
            .unwrap()
            .transactions,
        1
    );
}

#[test]
fn element_deleted_by_others_is_restored_without_reading_the_table() {
    let kernel = kernel();
    let mut renderer = Nftables::on(kernel.shared());
    let snapshot = snapshot(6, 2);
    let mut watch = renderer.watch().unwrap().unwrap();
    renderer.resync(&snapshot).unwrap();
    for set in ["services4", "backends4", "cluster-ips4"] {
        let what = ForeignChange::DeleteElement {
            set: set.to_owned(),
            number: 1,
        };
        kernel.apply_foreign_change(TABLE, &what).unwrap();
        assert!(next(&mut watch).is_ready());
        // The next dump has this fault.
        kernel.inject(Fault::InterruptDump);
        renderer.heal(&snapshot).unwrap();
        assert_eq!(kernel.forget_faults(), [Fault::InterruptDump], "{what:?}");
        assert_matches_snapshot(&kernel, &snapshot);
    }
}

/// An empty chain that an earlier snapshot needed, and could not be removed, does no harm; one with rules is a difference.
#[test]
fn unused_chain_is_no_difference_as_long_as_it_is_empty() {
    let kernel = kernel();
    let chains = || {
        let listing = TableVerifier::on(kernel.shared())
            .listing()
            .unwrap()
            .unwrap();
        listing.chains.into_keys().collect::<BTreeSet<String>>()
    };
    let (few, many) = (snapshot(1, 1), snapshot(12, 3));
    Nftables::on(kernel.shared()).resync(&many).unwrap();
    let of_many = chains();
    Nftables::on(kernel.shared()).cleanup().unwrap();
    Nftables::on(kernel.shared()).resync(&few).unwrap();
    let unused: Vec<String> = of_many.difference(&chains()).cloned().collect();
    assert!(!unused.is_empty(), "{of_many:?}");
    for chain in unused {
        kernel
            .apply_foreign_change(TABLE, &ForeignChange::AddChain(chain.clone()))
            .unwrap();
        assert_matches_snapshot(&kernel, &few);
        kernel
            .apply_foreign_change(TABLE, &ForeignChange::DropAtFirst(chain.clone()))
            .unwrap();
        let drift = TableVerifier::on(kernel.shared())
            .verify(&few)
            .unwrap()
            .drift;
        assert!(
            drift.iter().any(|drift| drift.place.contains(&chain)),
            "{drift:?}"
        );
        kernel
            .apply_foreign_change(TABLE, &ForeignChange::FlushChain(chain))
            .unwrap();
    }
}

/// What becomes of connections to services, of a client with affinity whose backend is removed, and of the flows to that, as text.
fn fates(is_image: bool) -> String {
    let text = |text: &str| {
        if is_image {
            mirror::text(text)
        } else {
            text.to_owned()
        }
    };
    let state = |backends| {
        let mut snapshot = snapshot(6, backends);
        for service in snapshot.services.values_mut() {
            let service = Arc::make_mut(service);
            // One that may connect to itself, and one whose flows can be deleted.
            service.ports[0].backends[0].local = true;
            if service.cluster_ips[0] == IpAddr::from([10, 96, 0, 1]) {
                service.ports[0].protocol = Protocol::Udp;
            }
        }
        if is_image {
            mirror::snapshot(&snapshot)
        } else {
            snapshot
        }
    };
    let kernel = ModelKernel::new();
    kernel.set_addresses([text("172.31.0.1").parse::<IpAddr>().unwrap()]);
    let mut renderer = Nftables::on(kernel.shared());
    let (two, one) = (state(2), state(1));
    renderer.resync(&two).unwrap();
    let connection = |client: &str, destination: &str| NewConnection {
        client: text(client).parse().unwrap(),
        destination: text(destination).parse().unwrap(),
        ..to("10.96.0.1:80")
    };
    let mut fates = Vec::new();
    for client in [
        "198.51.100.7:4000",
        "203.0.113.9:4000",
        "10.244.2.1:4000",
        "10.244.9.9:4000",
    ] {
        for to in [
            "10.96.0.2:80",
            "10.96.0.2:81",
            "172.31.0.1:30002",
            "192.0.2.4:80",
            "203.0.113.1:443",
        ] {
            fates.extend(
                [0, 1].map(|drawn| kernel.evaluate(&connection(client, to), &mut |_| drawn)),
            );
        }
    }
    fates.push(kernel.open(&connection("198.51.100.7:4000", "10.96.0.3:80"), &mut |_| 1));
    let flow = |server: &str| Connection {
        protocol: 17,
        client: text("10.244.9.9:4000").parse().unwrap(),
        destination: text("10.96.0.1:80").parse().unwrap(),
        server: text(server).parse().unwrap(),
        source: text("10.244.9.9:4000").parse().unwrap(),
        status: status::CONFIRMED | status::DST_NAT,
        id: 0,
    };
    kernel.add_connection(&flow("10.244.1.1:8080"));
    kernel.add_connection(&flow("10.244.1.2:8080"));
    renderer.update(&ChangeSet::between(&two, &one)).unwrap();
    kernel.run_background();
    fates.push(kernel.evaluate(&connection("198.51.100.7:4001", "10.96.0.3:80"), &mut first));
    assert_matches_snapshot(&kernel, &one);
    let left = kernel
        .connections()
        .iter()
        .map(|flow| flow.server.to_string())
        .collect::<Vec<_>>()
        .join(" ");
    format!("{fates:?} {left}")
}

#[test]
fn mirror_image_of_services_treats_connections_alike() {
    let fates = [false, true].map(fates);
    let (outcomes, left) = fates[0].rsplit_once("] ").unwrap();
    assert!(
        outcomes.ends_with("server: 10.244.3.1:8080, is_masqueraded: true, is_local: false }"),
        "{outcomes}"
    );
    assert!(
        left.contains("10.244.1.1:8080") && !left.contains("10.244.1.2:8080"),
        "{left}"
    );
    assert_eq!(fates[1], mirror::text(&fates[0]));
}
