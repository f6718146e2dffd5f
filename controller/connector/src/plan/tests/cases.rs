//! Examples: one rule of the plan in each test.

use std::net::Ipv4Addr;

use super::*;
use crate::aggregator::HostNames;

fn web() -> Registries {
    let web = catalog([("web", &[instance("10.0.0.1", 80), instance("fd00::1", 80)])]);
    Registries {
        catalogs: [Some(web), Some(Catalog::new())],
        ..Registries::default()
    }
}

fn foreign_service(name: &str, cluster_ip: &str) -> Object {
    Service {
        name: name.to_owned(),
        namespace: "default".to_owned(),
        cluster_ip: cluster_ip.to_owned(),
        ..Service::default()
    }
    .into()
}

#[test]
fn service_is_written_as_agents_and_flomesh_read_it() {
    let mut store = StoreContent::new();
    web().sync(&mut store);
    let (web, endpoints) = (service(&store, "web"), endpoints(&store, "web"));
    assert_eq!(web.cluster_ips, ["10.97.251.238", "fd00:97::fbee"]);
    assert_eq!(
        (web.cluster_ip.as_str(), web.selector.len()),
        ("10.97.251.238", 0)
    );
    let port = &web.port[0];
    assert_eq!(
        (port.name.as_str(), port.port, port.protocol.as_str()),
        ("http80", 80, "TCP")
    );
    assert_eq!(web.labels["cloud-sourced-service"], "true");
    assert_eq!(web.labels[REGISTRY_LABEL], "a");
    assert_eq!(
        web.annotations["flomesh.io/cloud-service-inherited-from"],
        "web"
    );
    assert_eq!(web.annotations["flomesh.io/mesh-service-sync"], "false");
    assert_eq!(
        web.annotations["flomesh.io/cloud-endpoint-addr-167772161"],
        "[80]"
    );
    assert_eq!(
        web.annotations["flomesh.io/cloud-endpoint-addr6-fd000000000000000000000000000001"],
        "[80]"
    );
    assert_eq!(endpoints.labels["cloud-service"], "web");
    let subset = &endpoints.endpoint_subsets[0];
    let ips: Vec<&str> = subset
        .addresses
        .iter()
        .map(|address| address.ip.as_str())
        .collect();
    assert_eq!(
        (ips, subset.ports[0].name.as_str()),
        (vec!["10.0.0.1", "fd00::1"], "http80")
    );
}

#[test]
fn endpoints_are_created_before_and_deleted_after_their_service() {
    let mut store = StoreContent::new();
    let kinds = |plan: &Plan| plan.changes.iter().map(Change::kind).collect::<Vec<_>>();
    assert_eq!(
        kinds(&web().sync(&mut store)),
        [Kind::Endpoints, Kind::Service]
    );
    let none = Registries {
        catalogs: [Some(Catalog::new()), Some(Catalog::new())],
        ..Registries::default()
    };
    assert_eq!(
        kinds(&none.sync(&mut store)),
        [Kind::Service, Kind::Endpoints]
    );
    assert!(store.is_empty());
}

#[test]
fn instance_that_is_not_ready_is_stored_and_gets_no_annotation() {
    let mut store = StoreContent::new();
    let failing = Instance {
        ready: false,
        ..instance("10.0.0.2", 80)
    };
    let registries = Registries {
        catalogs: [Some(catalog([("web", &[failing])])), None],
        ..Registries::default()
    };
    registries.sync(&mut store);
    let subset = &endpoints(&store, "web").endpoint_subsets[0];
    assert_eq!(
        (subset.addresses.len(), subset.not_ready_addresses.len()),
        (0, 1)
    );
    assert!(
        !service(&store, "web")
            .annotations
            .keys()
            .any(|name| name.contains("endpoint-addr"))
    );
}

#[test]
fn service_losing_its_last_instance_keeps_its_address() {
    let mut store = StoreContent::new();
    let mut registries = web();
    registries.sync(&mut store);
    let before = service(&store, "web").clone();
    registries.catalogs[0] = Some(catalog([("web", &[])]));
    registries.sync(&mut store);
    let after = service(&store, "web");
    assert_eq!(
        (&after.port, &after.cluster_ips),
        (&before.port, &before.cluster_ips)
    );
    assert!(endpoints(&store, "web").endpoint_subsets.is_empty());
}

/// Services without instances move with those that have some, and a foreign service in the way is a problem.
#[test]
fn service_without_instances_follows_the_namespace() {
    let mut store = StoreContent::new();
    let mut registries = web();
    registries.sync(&mut store);
    let before = service(&store, "web").clone();
    registries.catalogs[0] = Some(catalog([("web", &[])]));
    registries.sync(&mut store);
    let edge = Target {
        namespace: "edge".to_owned(),
        ..target()
    };
    let in_edge = |kind| Key::new(kind, "edge", "web").unwrap();

    let mut in_the_way = store.clone();
    let foreign = Service {
        name: "web".to_owned(),
        namespace: "edge".to_owned(),
        ..Service::default()
    };
    in_the_way.insert(in_edge(Kind::Service), foreign.into());
    let refused = registries.plan_for(&in_the_way, &edge);
    assert_eq!(
        (refused.changes, refused.problems.len()),
        (vec![], 1),
        "it stays where it is"
    );
    assert_eq!(refused.sizes["a"].services, 1);

    let mut unknown = registries.clone();
    unknown.catalogs[0] = None;
    assert_eq!(
        unknown.plan_for(&store, &edge).changes,
        [],
        "its registry has not answered"
    );

    let plan = registries.plan_for(&store, &edge);
    apply(&mut store, &plan);
    assert_eq!(
        store.keys().collect::<Vec<_>>(),
        [&in_edge(Kind::Service), &in_edge(Kind::Endpoints)]
    );
    let Object::Service(web) = &store[&in_edge(Kind::Service)] else {
        panic!("{store:?}")
    };
    assert_eq!((&web.port, web.cluster_ips.len()), (&before.port, 2));
    assert!(
        web.cluster_ips
            .iter()
            .all(|address| !before.cluster_ips.contains(address)),
        "{web:?}"
    );
    assert_eq!(plan.sizes["a"].services, 1);
    assert_eq!(
        registries.plan_for(&store, &edge).changes,
        [],
        "it has arrived"
    );

    // One that is there already stays, and the other one goes.
    registries.sync(&mut store);
    for (key, mut object) in store.clone() {
        match &mut object {
            Object::Service(service) => service.namespace = "edge".to_owned(),
            Object::Endpoints(endpoints) => endpoints.namespace = "edge".to_owned(),
            other => panic!("{other:?}"),
        }
        store.insert(Key::new(key.kind(), "edge", key.name()).unwrap(), object);
    }
    let plan = registries.plan_for(&store, &edge);
    apply(&mut store, &plan);
    assert_eq!(
        store.keys().map(Key::namespace).collect::<BTreeSet<_>>(),
        ["edge"].into()
    );
}

#[test]
fn address_is_kept_as_long_as_its_range_is_configured() {
    let mut store = StoreContent::new();
    let registries = web();
    registries.sync(&mut store);
    let Some(Object::Service(web)) = store.get_mut(&key(Kind::Service, "web")) else {
        panic!()
    };
    // As earlier versions wrote it, with other ranges.
    web.annotations.remove("contiv.io/cluster-ips");
    edit_addresses(&mut store, "web", &["10.97.0.7", "192.0.2.1"]);
    registries.sync(&mut store);
    assert_eq!(
        service(&store, "web").cluster_ips,
        ["10.97.0.7", "fd00:97::fbee"]
    );
}

/// Changes the cluster addresses of a stored service, as a user would.
fn edit_addresses(store: &mut StoreContent, name: &str, addresses: &[&str]) {
    let Some(Object::Service(service)) = store.get_mut(&key(Kind::Service, name)) else {
        panic!("{name}")
    };
    service.cluster_ips = addresses
        .iter()
        .map(|&address| address.to_owned())
        .collect();
    service.cluster_ip = addresses[0].to_owned();
}

#[test]
fn edited_cluster_address_is_restored() {
    let mut store = StoreContent::new();
    let mut registries = web();
    registries.sync(&mut store);
    let before = store.clone();
    for edited in [
        &["10.97.0.7", "fd00:97::7"][..],
        &["10.97.0.7"],
        &["192.0.2.1"],
        &["None"],
    ] {
        edit_addresses(&mut store, "web", edited);
        registries.sync(&mut store);
        assert_eq!(store, before, "{edited:?}");
    }
    // Also without endpoints.
    registries.catalogs[0] = Some(catalog([("web", &[])]));
    registries.sync(&mut store);
    let before = store.clone();
    edit_addresses(&mut store, "web", &["10.97.0.7"]);
    registries.sync(&mut store);
    assert_eq!(store, before);
}

#[test]
fn cluster_address_taken_by_foreign_service_is_reported() {
    let mut store = StoreContent::new();
    let registries = web();
    registries.sync(&mut store);
    store.insert(
        key(Kind::Service, "other"),
        foreign_service("other", "10.97.251.238"),
    );
    let plan = registries.sync(&mut store);
    assert_eq!(plan.changes, [], "the older service keeps its address");
    let [
        Problem {
            service, reason, ..
        },
    ] = plan.problems.as_slice()
    else {
        panic!("{plan:?}")
    };
    assert_eq!(service, "web");
    assert!(
        reason.contains("default/other") && reason.contains("10.97.251.238"),
        "{reason}"
    );
    store.remove(&key(Kind::Service, "other"));
    assert_eq!(registries.sync(&mut store).problems, []);
}

#[test]
fn cluster_address_shared_by_two_services_stays_with_one() {
    let instances = [instance("10.0.0.1", 80)];
    let both = catalog([("api", &instances), ("web", &instances)]);
    let registries = Registries {
        catalogs: [Some(both), None],
        ..Registries::default()
    };
    let mut store = StoreContent::new();
    registries.sync(&mut store);
    let taken = service(&store, "api").cluster_ip.clone();
    // As earlier versions wrote them: the address is stored nowhere else.
    for object in store.values_mut() {
        if let Object::Service(service) = object {
            service.annotations.remove("contiv.io/cluster-ips");
        }
    }
    edit_addresses(&mut store, "web", &[&taken]);
    let plan = registries.sync(&mut store);
    assert_eq!(service(&store, "api").cluster_ip, taken);
    assert_ne!(service(&store, "web").cluster_ip, taken);
    assert_eq!(plan.problems, []);
}

#[test]
fn copy_of_service_does_not_take_its_cluster_address() {
    let mut store = StoreContent::new();
    let registries = web();
    registries.sync(&mut store);
    let original = service(&store, "web");
    let copy = Service {
        name: "a-copy".to_owned(),
        ..original.clone()
    };
    let mut stored = Stored::default();
    stored.insert_service(("default".into(), "a-copy".into()), &copy, 7);
    stored.insert_service(("default".into(), "web".into()), original, 5);
    stored
        .endpoints
        .insert(("default".into(), "web".into()), endpoints(&store, "web"));
    let catalog = registries.catalogs[0].as_ref();
    let state = RegistryState {
        name: "a",
        aggregator: &registries.aggregator,
        catalog,
        hosts: &registries.hosts,
    };
    let plan = plan(&[state], &stored, &target());
    assert_eq!(plan.changes, [Change::Delete(key(Kind::Service, "a-copy"))]);
}

#[test]
fn address_that_foreign_service_has_is_not_given() {
    let mut store = StoreContent::from([(
        key(Kind::Service, "other"),
        foreign_service("other", "10.97.251.238"),
    )]);
    web().sync(&mut store);
    assert_eq!(service(&store, "web").cluster_ip, "10.97.251.239");
}

#[test]
fn requested_address_is_given_unless_taken() {
    let requesting = |ip: &str| {
        let mut catalog = catalog([("web", &[instance("10.0.0.1", 80)])]);
        let web = catalog.get_mut("web").unwrap().as_mut().unwrap();
        Arc::make_mut(web).cluster_ips = BTreeSet::from([ip.parse().unwrap()]);
        Registries {
            catalogs: [Some(catalog), None],
            ..Registries::default()
        }
    };
    let mut store = StoreContent::from([(
        key(Kind::Service, "other"),
        foreign_service("other", "192.0.2.1"),
    )]);
    let plan = requesting("192.0.2.1").sync(&mut store);
    assert!(
        plan.changes.is_empty() && plan.problems[0].reason.contains("192.0.2.1"),
        "{plan:?}"
    );
    requesting("192.0.2.2").sync(&mut store);
    assert_eq!(service(&store, "web").cluster_ips, ["192.0.2.2"]);
}

#[test]
fn unusable_instance_is_problem_and_others_are_stored() {
    let mut registries = web();
    let web = registries.catalogs[0]
        .as_mut()
        .unwrap()
        .get_mut("web")
        .unwrap()
        .as_mut()
        .unwrap();
    Arc::make_mut(web)
        .unusable
        .insert("instance web2 on node n1: 0 is not a port".to_owned());
    let mut store = StoreContent::new();
    let plan = registries.sync(&mut store);
    assert_eq!(
        plan.problems[0].reason,
        "left out: instance web2 on node n1: 0 is not a port"
    );
    assert_eq!(
        endpoints(&store, "web").endpoint_subsets[0].addresses.len(),
        2
    );
}

#[test]
fn endpoints_of_ours_behind_foreign_service_go() {
    let mut store = StoreContent::new();
    let registries = web();
    registries.sync(&mut store);
    store.insert(
        key(Kind::Service, "web"),
        foreign_service("web", "10.96.0.1"),
    );
    let plan = registries.sync(&mut store);
    assert_eq!(plan.changes, [Change::Delete(key(Kind::Endpoints, "web"))]);
    assert_eq!(plan.problems.len(), 1);
}

#[test]
fn removed_registry_keeps_services_until_all_others_answer() {
    let mut store = StoreContent::new();
    web().sync(&mut store);
    for object in store.values_mut() {
        match object {
            Object::Service(service) => {
                drop(
                    service
                        .labels
                        .insert(REGISTRY_LABEL.to_owned(), "old".to_owned()),
                );
            }
            Object::Endpoints(one) => drop(
                one.labels
                    .insert(REGISTRY_LABEL.to_owned(), "old".to_owned()),
            ),
            _ => {}
        }
    }
    let mut registries = Registries {
        catalogs: [Some(Catalog::new()), None],
        ..Registries::default()
    };
    assert!(registries.plan(&store).changes.is_empty());
    let taking_over = Registries {
        catalogs: [None, web().catalogs[0].clone()],
        ..Registries::default()
    };
    let plan = taking_over.plan(&store);
    assert_eq!(
        plan.changes
            .iter()
            .filter(|change| matches!(change, Change::Update(_)))
            .count(),
        2
    );
    registries.catalogs[1] = Some(Catalog::new());
    registries.sync(&mut store);
    assert!(store.is_empty());
}

#[test]
fn source_with_invalid_name_is_a_problem_and_deletes_nothing() {
    let mut store = StoreContent::new();
    let mut registries = web();
    registries.aggregator.suffix_tag = "version".to_owned();
    registries.sync(&mut store);
    let invalid = Instance {
        tags: BTreeSet::from(["version=1/2".to_owned()]),
        ..instance("10.0.0.1", 80)
    };
    registries.catalogs[0] = Some(catalog([("web", &[invalid])]));
    let plan = registries.plan(&store);
    assert!(
        plan.changes.is_empty() && plan.problems.len() == 1,
        "{plan:?}"
    );
    assert_eq!(
        plan.sizes["a"],
        Size {
            services: 1,
            endpoints: 2
        }
    );
}

#[test]
fn service_too_large_for_the_store_holds_up_no_other() {
    let mut store = StoreContent::new();
    let many: Vec<Instance> = (0..40_000u32)
        .map(|n| Instance::new(Ipv4Addr::from_bits(0x0a00_0001 + n).into(), 80))
        .collect();
    let registries = |instances: &[Instance]| Registries {
        catalogs: [
            Some(catalog([
                ("big", instances),
                ("web", &[instance("10.1.0.1", 80)]),
            ])),
            None,
        ],
        ..Registries::default()
    };
    let is_problem = |plan: &Plan| {
        let [problem] = &plan.problems[..] else {
            panic!("{:?}", plan.problems)
        };
        problem.service == "big" && problem.reason.contains("split the service")
    };
    let plan = registries(&many).sync(&mut store);
    assert!(is_problem(&plan));
    assert!(
        store.contains_key(&key(Kind::Service, "web")) && store.len() == 2,
        "{:?}",
        store.keys()
    );
    assert_eq!(
        plan.sizes["a"],
        Size {
            services: 1,
            endpoints: 1
        }
    );
    // A stored service that grows too large stays unchanged.
    registries(&many[..2]).sync(&mut store);
    let before = store.clone();
    let plan = registries(&many).sync(&mut store);
    assert!(is_problem(&plan) && store == before);
    assert_eq!(
        plan.sizes["a"],
        Size {
            services: 2,
            endpoints: 3
        }
    );
}

#[test]
fn endpoints_deleted_while_registry_is_silent_come_back() {
    let instances = [
        instance("10.0.0.1", 21_000),
        instance("10.0.0.1", 21_001),
        instance("fd00::1", 21_000),
    ];
    let one_port = Aggregator {
        service_port: Some(80),
        ..Aggregator::default()
    };
    for aggregator in [one_port, Aggregator::default()] {
        let mut store = StoreContent::new();
        let catalogs = [Some(catalog([("web", &instances)])), None];
        let registries = Registries {
            aggregator,
            catalogs,
            ..Registries::default()
        };
        registries.sync(&mut store);
        let before = store.clone();
        store.remove(&key(Kind::Endpoints, "web"));
        let silent = Registries {
            catalogs: [None, None],
            ..registries
        };
        silent.sync(&mut store);
        assert_eq!(store, before);
    }
}

#[test]
fn annotations_have_the_form_of_flomesh() {
    let mut store = StoreContent::new();
    let instances = [instance("10.0.0.1", 80), instance("10.0.0.1", 8080)];
    let registries = Registries {
        catalogs: [Some(catalog([("web", &instances)])), None],
        ..Registries::default()
    };
    registries.sync(&mut store);
    let annotations = &service(&store, "web").annotations;
    assert_eq!(
        annotations["flomesh.io/cloud-endpoint-addr-167772161"],
        "[80 8080]"
    );
}

#[test]
fn service_synced_from_kubernetes_is_excluded() {
    let tagged = |tag: &str| Instance {
        tags: BTreeSet::from([tag.to_owned()]),
        ..instance("10.0.0.1", 80)
    };
    let of_cluster = catalog([
        ("web", &[tagged("k8s"), instance("10.0.0.2", 80)]),
        ("db", &[tagged("other")]),
    ]);
    let aggregator = Aggregator {
        exclude_tag: "k8s".to_owned(),
        ..Aggregator::default()
    };
    let mut store = StoreContent::new();
    Registries {
        catalogs: [Some(of_cluster.clone()), None],
        ..Registries::default()
    }
    .sync(&mut store);
    assert_eq!(store.len(), 4);
    let registries = Registries {
        aggregator,
        catalogs: [Some(of_cluster), None],
        ..Registries::default()
    };
    registries.sync(&mut store);
    let names: Vec<&str> = store.keys().map(Key::name).collect();
    assert_eq!(
        names,
        ["db", "db"],
        "as by consul-k8s, one instance excludes the service"
    );
}

/// A registry whose service `db` is at these host names.
fn at_hosts(host_names: HostNames, hosts: &[&str], addresses: &[Instance]) -> Registries {
    let host = |name: &&str| instance("10.0.0.1", 5432).with_address((*name).to_owned());
    let mut db = catalog([("db", addresses)]);
    Arc::make_mut(db.get_mut("db").unwrap().as_mut().unwrap()).hosts =
        hosts.iter().map(host).collect();
    let aggregator = Aggregator {
        host_names,
        ..Aggregator::default()
    };
    Registries {
        aggregator,
        catalogs: [Some(db), None],
        ..Registries::default()
    }
}

#[test]
fn host_name_becomes_external_name_service() {
    let mut store = StoreContent::new();
    let mut registries = at_hosts(
        HostNames::ExternalName,
        &["db.example.org", "db2.example.org"],
        &[],
    );
    let problems = registries.sync(&mut store).problems;
    assert!(
        matches!(&problems[..], [one] if one.reason.contains("db2.example.org")),
        "{problems:?}"
    );
    let db = service(&store, "db");
    assert_eq!(
        (db.service_type.as_str(), db.external_name.as_str()),
        ("ExternalName", "db.example.org")
    );
    assert_eq!(
        (
            db.cluster_ip.as_str(),
            db.cluster_ips.len(),
            db.port[0].port
        ),
        ("", 0, 5432)
    );
    assert!(!store.contains_key(&key(Kind::Endpoints, "db")));
    assert_eq!(registries.plan(&store).changes, []);
    // Changes by another program are reverted, and another name in the registry is applied.
    let before = store.clone();
    let Some(Object::Service(edited)) = store.get_mut(&key(Kind::Service, "db")) else {
        panic!()
    };
    edited.external_name = "wrong.example.org".to_owned();
    registries.sync(&mut store);
    assert_eq!(store, before);
    registries.catalogs = at_hosts(HostNames::ExternalName, &["db3.example.org"], &[]).catalogs;
    registries.sync(&mut store);
    assert_eq!(service(&store, "db").external_name, "db3.example.org");
    // An instance with an address turns it into a service with endpoints; without that instance it is an alias again.
    registries.catalogs = at_hosts(
        HostNames::ExternalName,
        &["db.example.org"],
        &[instance("10.0.0.1", 5432)],
    )
    .catalogs;
    let problems = registries.sync(&mut store).problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    let db = service(&store, "db");
    assert_eq!(
        (db.service_type.as_str(), db.external_name.as_str()),
        ("ClusterIP", "")
    );
    assert_eq!(endpoints(&store, "db").endpoint_subsets.len(), 1);
    registries.catalogs = at_hosts(HostNames::ExternalName, &["db.example.org"], &[]).catalogs;
    registries.sync(&mut store);
    assert!(!store.contains_key(&key(Kind::Endpoints, "db")));
    assert_eq!(service(&store, "db").service_type, "ExternalName");
    // Without any instance it is no alias any more.
    registries.catalogs = at_hosts(HostNames::ExternalName, &[], &[]).catalogs;
    registries.sync(&mut store);
    let db = service(&store, "db");
    assert_eq!(
        (db.service_type.as_str(), db.external_name.as_str()),
        ("ClusterIP", "")
    );
    assert_eq!(registries.plan(&store).changes, []);
}

#[test]
fn host_name_is_left_out_and_reported_unless_configured() {
    let mut store = StoreContent::new();
    let registries = at_hosts(
        HostNames::LeaveOut,
        &["db.example.org"],
        &[instance("10.0.0.1", 5432)],
    );
    let problems = registries.sync(&mut store).problems;
    assert!(
        matches!(&problems[..], [one] if one.reason.contains("host-names")),
        "{problems:?}"
    );
    assert_eq!(
        endpoints(&store, "db").endpoint_subsets[0].addresses.len(),
        1
    );
}

#[test]
fn host_name_is_resolved_to_its_addresses() {
    let mut store = StoreContent::new();
    let mut registries = at_hosts(
        HostNames::Resolve,
        &["db.example.org"],
        &[instance("10.0.0.1", 5432)],
    );
    assert_eq!(
        registries.sync(&mut store).changes,
        [],
        "nothing is known of it yet"
    );
    let addresses: BTreeSet<IpAddr> = ["10.0.0.7", "fd00::7"].map(|ip| ip.parse().unwrap()).into();
    registries
        .hosts
        .insert("db.example.org".to_owned(), addresses);
    assert_eq!(registries.sync(&mut store).problems, []);
    let ips = |store: &StoreContent| -> Vec<String> {
        let subsets = &endpoints(store, "db").endpoint_subsets;
        subsets[0]
            .addresses
            .iter()
            .map(|address| address.ip.clone())
            .collect()
    };
    assert_eq!(ips(&store), ["10.0.0.1", "10.0.0.7", "fd00::7"]);
    // While the addresses of the name are unknown nothing changes.
    registries.hosts.clear();
    assert_eq!(registries.sync(&mut store).changes, []);
    registries
        .hosts
        .insert("db.example.org".to_owned(), BTreeSet::new());
    assert_eq!(registries.sync(&mut store).problems.len(), 1);
    assert_eq!(ips(&store), ["10.0.0.1"]);
}
