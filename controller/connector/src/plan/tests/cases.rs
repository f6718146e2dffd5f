//! Single cases.

use std::net::Ipv4Addr;

use super::*;
use crate::aggregator::HostNames;

fn web() -> Registries {
    let web = catalog([("web", &[instance("10.0.0.1", 80), instance("fd00::1", 80)])]);
    Registries { catalogs: [Some(web), Some(Catalog::new())], ..Registries::default() }
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
    let mut world = StoreContent::new();
    web().sync(&mut world);
    let (web, behind) = (service(&world, "web"), endpoints(&world, "web"));
    assert_eq!(web.cluster_ips, ["10.97.251.238", "fd00:97::fbee"]);
    assert_eq!((web.cluster_ip.as_str(), web.selector.len()), ("10.97.251.238", 0));
    let port = &web.port[0];
    assert_eq!((port.name.as_str(), port.port, port.protocol.as_str()), ("http80", 80, "TCP"));
    assert_eq!(web.labels["cloud-sourced-service"], "true");
    assert_eq!(web.labels[REGISTRY_LABEL], "a");
    assert_eq!(web.annotations["flomesh.io/cloud-service-inherited-from"], "web");
    assert_eq!(web.annotations["flomesh.io/mesh-service-sync"], "false");
    assert_eq!(web.annotations["flomesh.io/cloud-endpoint-addr-167772161"], "[80]");
    assert_eq!(web.annotations["flomesh.io/cloud-endpoint-addr6-fd000000000000000000000000000001"], "[80]");
    assert_eq!(behind.labels["cloud-service"], "web");
    let subset = &behind.endpoint_subsets[0];
    let ips: Vec<&str> = subset.addresses.iter().map(|address| address.ip.as_str()).collect();
    assert_eq!((ips, subset.ports[0].name.as_str()), (vec!["10.0.0.1", "fd00::1"], "http80"));
}

#[test]
fn endpoints_are_created_before_and_deleted_after_their_service() {
    let mut world = StoreContent::new();
    let kinds = |plan: &Plan| plan.changes.iter().map(Change::kind).collect::<Vec<_>>();
    assert_eq!(kinds(&web().sync(&mut world)), [Kind::Endpoints, Kind::Service]);
    let none = Registries { catalogs: [Some(Catalog::new()), Some(Catalog::new())], ..Registries::default() };
    assert_eq!(kinds(&none.sync(&mut world)), [Kind::Service, Kind::Endpoints]);
    assert!(world.is_empty());
}

#[test]
fn instance_that_is_not_ready_is_stored_and_gets_no_annotation() {
    let mut world = StoreContent::new();
    let failing = Instance { ready: false, ..instance("10.0.0.2", 80) };
    let registries =
        Registries { catalogs: [Some(catalog([("web", &[failing])])), None], ..Registries::default() };
    registries.sync(&mut world);
    let subset = &endpoints(&world, "web").endpoint_subsets[0];
    assert_eq!((subset.addresses.len(), subset.not_ready_addresses.len()), (0, 1));
    assert!(!service(&world, "web").annotations.keys().any(|name| name.contains("endpoint-addr")));
}

#[test]
fn service_losing_its_last_instance_keeps_its_address() {
    let mut world = StoreContent::new();
    let mut registries = web();
    registries.sync(&mut world);
    let before = service(&world, "web").clone();
    registries.catalogs[0] = Some(catalog([("web", &[])]));
    registries.sync(&mut world);
    let after = service(&world, "web");
    assert_eq!((&after.port, &after.cluster_ips), (&before.port, &before.cluster_ips));
    assert!(endpoints(&world, "web").endpoint_subsets.is_empty());
}

#[test]
fn address_is_kept_as_long_as_its_range_is_configured() {
    let mut world = StoreContent::new();
    let registries = web();
    registries.sync(&mut world);
    let Some(Object::Service(web)) = world.get_mut(&key(Kind::Service, "web")) else { panic!() };
    // As earlier versions wrote it, with other ranges.
    web.annotations.remove("contiv.io/cluster-ips");
    edit_addresses(&mut world, "web", &["10.97.0.7", "192.0.2.1"]);
    registries.sync(&mut world);
    assert_eq!(service(&world, "web").cluster_ips, ["10.97.0.7", "fd00:97::fbee"]);
}

/// Changes the cluster addresses of a stored service, as a user would.
fn edit_addresses(world: &mut StoreContent, name: &str, addresses: &[&str]) {
    let Some(Object::Service(service)) = world.get_mut(&key(Kind::Service, name)) else { panic!("{name}") };
    service.cluster_ips = addresses.iter().map(|&address| address.to_owned()).collect();
    service.cluster_ip = addresses[0].to_owned();
}

#[test]
fn edited_cluster_address_is_restored() {
    let mut world = StoreContent::new();
    let mut registries = web();
    registries.sync(&mut world);
    let before = world.clone();
    for edited in [&["10.97.0.7", "fd00:97::7"][..], &["10.97.0.7"], &["192.0.2.1"], &["None"]] {
        edit_addresses(&mut world, "web", edited);
        registries.sync(&mut world);
        assert_eq!(world, before, "{edited:?}");
    }
    // Also without endpoints.
    registries.catalogs[0] = Some(catalog([("web", &[])]));
    registries.sync(&mut world);
    let before = world.clone();
    edit_addresses(&mut world, "web", &["10.97.0.7"]);
    registries.sync(&mut world);
    assert_eq!(world, before);
}

#[test]
fn cluster_address_taken_by_foreign_service_is_reported() {
    let mut world = StoreContent::new();
    let registries = web();
    registries.sync(&mut world);
    world.insert(key(Kind::Service, "thief"), foreign_service("thief", "10.97.251.238"));
    let plan = registries.sync(&mut world);
    assert_eq!(plan.changes, [], "clients of the older one keep it");
    let [Problem { service, reason, .. }] = plan.problems.as_slice() else { panic!("{plan:?}") };
    assert_eq!(service, "web");
    assert!(reason.contains("default/thief") && reason.contains("10.97.251.238"), "{reason}");
    world.remove(&key(Kind::Service, "thief"));
    assert_eq!(registries.sync(&mut world).problems, []);
}

#[test]
fn cluster_address_shared_by_two_services_stays_with_one() {
    let instances = [instance("10.0.0.1", 80)];
    let both = catalog([("api", &instances), ("web", &instances)]);
    let registries = Registries { catalogs: [Some(both), None], ..Registries::default() };
    let mut world = StoreContent::new();
    registries.sync(&mut world);
    let taken = service(&world, "api").cluster_ip.clone();
    // As earlier versions wrote them: the address is stored nowhere else.
    for object in world.values_mut() {
        if let Object::Service(service) = object {
            service.annotations.remove("contiv.io/cluster-ips");
        }
    }
    edit_addresses(&mut world, "web", &[&taken]);
    let plan = registries.sync(&mut world);
    assert_eq!(service(&world, "api").cluster_ip, taken);
    assert_ne!(service(&world, "web").cluster_ip, taken);
    assert_eq!(plan.problems, []);
}

#[test]
fn copy_of_service_does_not_take_its_cluster_address() {
    let mut world = StoreContent::new();
    let registries = web();
    registries.sync(&mut world);
    let original = service(&world, "web");
    let copy = Service { name: "a-copy".to_owned(), ..original.clone() };
    let mut stored = Stored::default();
    stored.insert_service(("default".into(), "a-copy".into()), &copy, 7);
    stored.insert_service(("default".into(), "web".into()), original, 5);
    stored.endpoints.insert(("default".into(), "web".into()), endpoints(&world, "web"));
    let catalog = registries.catalogs[0].as_ref();
    let state =
        RegistryState { name: "a", aggregator: &registries.aggregator, catalog, hosts: &registries.hosts };
    let plan = plan(&[state], &stored, &target());
    assert_eq!(plan.changes, [Change::Delete(key(Kind::Service, "a-copy"))]);
}

#[test]
fn address_that_foreign_service_has_is_not_given() {
    let mut world =
        StoreContent::from([(key(Kind::Service, "other"), foreign_service("other", "10.97.251.238"))]);
    web().sync(&mut world);
    assert_eq!(service(&world, "web").cluster_ip, "10.97.251.239");
}

#[test]
fn requested_address_is_given_unless_taken() {
    let asking = |ip: &str| {
        let mut catalog = catalog([("web", &[instance("10.0.0.1", 80)])]);
        let web = catalog.get_mut("web").unwrap().as_mut().unwrap();
        Arc::make_mut(web).cluster_ips = BTreeSet::from([ip.parse().unwrap()]);
        Registries { catalogs: [Some(catalog), None], ..Registries::default() }
    };
    let mut world =
        StoreContent::from([(key(Kind::Service, "other"), foreign_service("other", "192.0.2.1"))]);
    let plan = asking("192.0.2.1").sync(&mut world);
    assert!(plan.changes.is_empty() && plan.problems[0].reason.contains("192.0.2.1"), "{plan:?}");
    asking("192.0.2.2").sync(&mut world);
    assert_eq!(service(&world, "web").cluster_ips, ["192.0.2.2"]);
}

#[test]
fn unusable_instance_is_problem_and_others_are_stored() {
    let mut registries = web();
    let web = registries.catalogs[0].as_mut().unwrap().get_mut("web").unwrap().as_mut().unwrap();
    Arc::make_mut(web).unusable.insert("instance web2 on node n1: 0 is no port".to_owned());
    let mut world = StoreContent::new();
    let plan = registries.sync(&mut world);
    assert_eq!(plan.problems[0].reason, "left out: instance web2 on node n1: 0 is no port");
    assert_eq!(endpoints(&world, "web").endpoint_subsets[0].addresses.len(), 2);
}

#[test]
fn endpoints_of_ours_behind_foreign_service_go() {
    let mut world = StoreContent::new();
    let registries = web();
    registries.sync(&mut world);
    world.insert(key(Kind::Service, "web"), foreign_service("web", "10.96.0.1"));
    let plan = registries.sync(&mut world);
    assert_eq!(plan.changes, [Change::Delete(key(Kind::Endpoints, "web"))]);
    assert_eq!(plan.problems.len(), 1);
}

#[test]
fn services_of_removed_registry_go_after_all_registries_answered() {
    let mut world = StoreContent::new();
    web().sync(&mut world);
    for object in world.values_mut() {
        match object {
            Object::Service(service) => {
                drop(service.labels.insert(REGISTRY_LABEL.to_owned(), "old".to_owned()));
            }
            Object::Endpoints(one) => drop(one.labels.insert(REGISTRY_LABEL.to_owned(), "old".to_owned())),
            _ => {}
        }
    }
    let mut registries = Registries { catalogs: [Some(Catalog::new()), None], ..Registries::default() };
    assert!(registries.plan(&world).changes.is_empty());
    let taking_over = Registries { catalogs: [None, web().catalogs[0].clone()], ..Registries::default() };
    let plan = taking_over.plan(&world);
    assert_eq!(plan.changes.iter().filter(|change| matches!(change, Change::Update(_))).count(), 2);
    registries.catalogs[1] = Some(Catalog::new());
    registries.sync(&mut world);
    assert!(world.is_empty());
}

#[test]
fn source_with_invalid_name_is_a_problem_and_deletes_nothing() {
    let mut world = StoreContent::new();
    let mut registries = web();
    registries.aggregator.suffix_tag = "version".to_owned();
    registries.sync(&mut world);
    let odd = Instance { tags: BTreeSet::from(["version=1/2".to_owned()]), ..instance("10.0.0.1", 80) };
    registries.catalogs[0] = Some(catalog([("web", &[odd])]));
    let plan = registries.plan(&world);
    assert!(plan.changes.is_empty() && plan.problems.len() == 1, "{plan:?}");
    assert_eq!(plan.sizes["a"], Size { services: 1, endpoints: 2 });
}

#[test]
fn service_too_large_for_the_store_holds_up_no_other() {
    let mut world = StoreContent::new();
    let many: Vec<Instance> =
        (0..40_000u32).map(|n| Instance::new(Ipv4Addr::from_bits(0x0a00_0001 + n).into(), 80)).collect();
    let registries = |instances: &[Instance]| Registries {
        catalogs: [Some(catalog([("big", instances), ("web", &[instance("10.1.0.1", 80)])])), None],
        ..Registries::default()
    };
    let is_problem = |plan: &Plan| {
        let [problem] = &plan.problems[..] else { panic!("{:?}", plan.problems) };
        problem.service == "big" && problem.reason.contains("split the service")
    };
    let plan = registries(&many).sync(&mut world);
    assert!(is_problem(&plan));
    assert!(world.contains_key(&key(Kind::Service, "web")) && world.len() == 2, "{:?}", world.keys());
    assert_eq!(plan.sizes["a"], Size { services: 1, endpoints: 1 });
    // One that has grown so large stays as it was.
    registries(&many[..2]).sync(&mut world);
    let before = world.clone();
    let plan = registries(&many).sync(&mut world);
    assert!(is_problem(&plan) && world == before);
    assert_eq!(plan.sizes["a"], Size { services: 2, endpoints: 3 });
}

#[test]
fn endpoints_deleted_while_registry_is_silent_come_back() {
    let instances = [instance("10.0.0.1", 21_000), instance("10.0.0.1", 21_001), instance("fd00::1", 21_000)];
    let one_port = Aggregator { service_port: Some(80), ..Aggregator::default() };
    for aggregator in [one_port, Aggregator::default()] {
        let mut world = StoreContent::new();
        let catalogs = [Some(catalog([("web", &instances)])), None];
        let registries = Registries { aggregator, catalogs, ..Registries::default() };
        registries.sync(&mut world);
        let before = world.clone();
        world.remove(&key(Kind::Endpoints, "web"));
        let silent = Registries { catalogs: [None, None], ..registries };
        silent.sync(&mut world);
        assert_eq!(world, before);
    }
}

#[test]
fn annotations_have_the_form_of_flomesh() {
    let mut world = StoreContent::new();
    let instances = [instance("10.0.0.1", 80), instance("10.0.0.1", 8080)];
    let registries =
        Registries { catalogs: [Some(catalog([("web", &instances)])), None], ..Registries::default() };
    registries.sync(&mut world);
    let annotations = &service(&world, "web").annotations;
    assert_eq!(annotations["flomesh.io/cloud-endpoint-addr-167772161"], "[80 8080]");
}

#[test]
fn service_synced_from_kubernetes_is_excluded() {
    let tagged = |tag: &str| Instance { tags: BTreeSet::from([tag.to_owned()]), ..instance("10.0.0.1", 80) };
    let of_cluster =
        catalog([("web", &[tagged("k8s"), instance("10.0.0.2", 80)]), ("db", &[tagged("other")])]);
    let aggregator = Aggregator { exclude_tag: "k8s".to_owned(), ..Aggregator::default() };
    let mut world = StoreContent::new();
    Registries { catalogs: [Some(of_cluster.clone()), None], ..Registries::default() }.sync(&mut world);
    assert_eq!(world.len(), 4);
    let registries = Registries { aggregator, catalogs: [Some(of_cluster), None], ..Registries::default() };
    registries.sync(&mut world);
    let names: Vec<&str> = world.keys().map(Key::name).collect();
    assert_eq!(names, ["db", "db"], "as by consul-k8s, one instance excludes the service");
}

/// A registry whose service `db` is at these host names.
fn at_hosts(host_names: HostNames, hosts: &[&str], addresses: &[Instance]) -> Registries {
    let host = |name: &&str| instance("10.0.0.1", 5432).at((*name).to_owned());
    let mut db = catalog([("db", addresses)]);
    Arc::make_mut(db.get_mut("db").unwrap().as_mut().unwrap()).hosts = hosts.iter().map(host).collect();
    let aggregator = Aggregator { host_names, ..Aggregator::default() };
    Registries { aggregator, catalogs: [Some(db), None], ..Registries::default() }
}

#[test]
fn host_name_becomes_external_name_service() {
    let mut world = StoreContent::new();
    let mut registries = at_hosts(HostNames::ExternalName, &["db.example.org", "db2.example.org"], &[]);
    let problems = registries.sync(&mut world).problems;
    assert!(matches!(&problems[..], [one] if one.reason.contains("db2.example.org")), "{problems:?}");
    let db = service(&world, "db");
    assert_eq!((db.service_type.as_str(), db.external_name.as_str()), ("ExternalName", "db.example.org"));
    assert_eq!((db.cluster_ip.as_str(), db.cluster_ips.len(), db.port[0].port), ("", 0, 5432));
    assert!(!world.contains_key(&key(Kind::Endpoints, "db")));
    assert_eq!(registries.plan(&world).changes, []);
    // What somebody else changes is changed back, and another name of the registry is followed.
    let before = world.clone();
    let Some(Object::Service(edited)) = world.get_mut(&key(Kind::Service, "db")) else { panic!() };
    edited.external_name = "wrong.example.org".to_owned();
    registries.sync(&mut world);
    assert_eq!(world, before);
    registries.catalogs = at_hosts(HostNames::ExternalName, &["db3.example.org"], &[]).catalogs;
    registries.sync(&mut world);
    assert_eq!(service(&world, "db").external_name, "db3.example.org");
    // With an address it is a service with endpoints, and back.
    registries.catalogs =
        at_hosts(HostNames::ExternalName, &["db.example.org"], &[instance("10.0.0.1", 5432)]).catalogs;
    let problems = registries.sync(&mut world).problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    let db = service(&world, "db");
    assert_eq!((db.service_type.as_str(), db.external_name.as_str()), ("ClusterIP", ""));
    assert_eq!(endpoints(&world, "db").endpoint_subsets.len(), 1);
    registries.catalogs = at_hosts(HostNames::ExternalName, &["db.example.org"], &[]).catalogs;
    registries.sync(&mut world);
    assert!(!world.contains_key(&key(Kind::Endpoints, "db")));
    assert_eq!(service(&world, "db").service_type, "ExternalName");
    // Without any instance it is no alias any more.
    registries.catalogs = at_hosts(HostNames::ExternalName, &[], &[]).catalogs;
    registries.sync(&mut world);
    let db = service(&world, "db");
    assert_eq!((db.service_type.as_str(), db.external_name.as_str()), ("ClusterIP", ""));
    assert_eq!(registries.plan(&world).changes, []);
}

#[test]
fn host_name_is_left_out_and_reported_unless_configured() {
    let mut world = StoreContent::new();
    let registries = at_hosts(HostNames::LeaveOut, &["db.example.org"], &[instance("10.0.0.1", 5432)]);
    let problems = registries.sync(&mut world).problems;
    assert!(matches!(&problems[..], [one] if one.reason.contains("host-names")), "{problems:?}");
    assert_eq!(endpoints(&world, "db").endpoint_subsets[0].addresses.len(), 1);
}

#[test]
fn host_name_is_resolved_to_its_addresses() {
    let mut world = StoreContent::new();
    let mut registries = at_hosts(HostNames::Resolve, &["db.example.org"], &[instance("10.0.0.1", 5432)]);
    assert_eq!(registries.sync(&mut world).changes, [], "nothing is known of it yet");
    let addresses: BTreeSet<IpAddr> = ["10.0.0.7", "fd00::7"].map(|ip| ip.parse().unwrap()).into();
    registries.hosts.insert("db.example.org".to_owned(), addresses);
    assert_eq!(registries.sync(&mut world).problems, []);
    let ips = |world: &StoreContent| -> Vec<String> {
        let subsets = &endpoints(world, "db").endpoint_subsets;
        subsets[0].addresses.iter().map(|address| address.ip.clone()).collect()
    };
    assert_eq!(ips(&world), ["10.0.0.1", "10.0.0.7", "fd00::7"]);
    // A name whose addresses are not known any more changes nothing.
    registries.hosts.clear();
    assert_eq!(registries.sync(&mut world).changes, []);
    registries.hosts.insert("db.example.org".to_owned(), BTreeSet::new());
    assert_eq!(registries.sync(&mut world).problems.len(), 1);
    assert_eq!(ips(&world), ["10.0.0.1"]);
}
