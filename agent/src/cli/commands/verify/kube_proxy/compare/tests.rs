use std::{slice::from_ref, sync::Arc};

use contiv_model::{
    Backend, Balance, ContivService, InterfaceName, Protocol, ServicePort, TrafficPolicy,
};
use contiv_renderer::packet_path::{ProxyCluster, ProxyFrontend};

use super::{compare as compare_places, *};

/// A kube-proxy that does what contiv would do with other services.
struct Fake {
    services: Snapshot,
    frontends: BTreeMap<Frontend, ProxyFrontend>,
    cluster: ProxyCluster,
    problem: Option<&'static str>,
}

impl Fake {
    fn of(services: &[ContivService]) -> Self {
        let services = snapshot(services);
        let all = services.services.values();
        let frontends = all.flat_map(|service| {
            let known = ProxyFrontend {
                service: Some(service.id.clone()),
                source_ranges: Vec::new(),
            };
            let frontends = service.frontends().into_iter();
            frontends.map(move |frontend| (frontend, known.clone()))
        });
        Self {
            frontends: frontends.collect(),
            services,
            cluster: ProxyCluster::default(),
            problem: None,
        }
    }
}

impl ProxyRules for Fake {
    fn mode(&self) -> &'static str {
        "nftables"
    }
}

impl OtherRules for Fake {
    fn frontends(&self) -> &BTreeMap<Frontend, ProxyFrontend> {
        &self.frontends
    }

    fn cluster(&self) -> Option<&ProxyCluster> {
        Some(&self.cluster)
    }

    fn node_port_addresses(&self, _node: &NodeFacts) -> BTreeSet<IpAddr> {
        BTreeSet::new()
    }

    fn ends(&self, flow: &Flow, _node: &NodeFacts) -> Result<BTreeSet<FlowEnd>, PathError> {
        match self.problem {
            Some(problem) => Err(PathError(problem.to_owned())),
            None => Ok([FlowEnd::of(&trace(&self.services, flow))].into()),
        }
    }
}

fn compare(snapshot: &Snapshot, rules: &Fake) -> Comparison {
    compare_places(snapshot, rules, None)
}

fn snapshot(services: &[ContivService]) -> Snapshot {
    let node: IpAddr = "192.168.0.1".parse().unwrap();
    let services = services.iter();
    Snapshot {
        services: services
            .map(|service| (service.id.clone(), Arc::new(service.clone())))
            .collect(),
        node: NodeFacts {
            node_ips: [node].into(),
            local_ips: [node].into(),
            pod_cidrs: ["10.244.1.0/24".parse().unwrap()].into(),
            ..NodeFacts::default()
        },
        ..Snapshot::default()
    }
}

fn web(backends: &[&str]) -> ContivService {
    let backend = |text: &&str| Backend {
        local: text.starts_with("10.244.1."),
        ..Backend::new(text.parse().unwrap())
    };
    ContivService {
        cluster_ips: ["10.96.0.1".parse().unwrap()].into(),
        external_ips: ["198.51.100.1".parse().unwrap()].into(),
        load_balancer_ips: ["198.51.100.1".parse().unwrap()].into(),
        ports: vec![ServicePort {
            port: 80,
            protocol: Protocol::Tcp,
            name: "main".into(),
            node_port: Some(30_080),
            backends: backends.iter().map(backend).collect(),
        }],
        ..ContivService::new(ServiceId::new("shop", "web"))
    }
}

const ONE: &str = "10.244.1.1:8080";
const OTHER: &str = "10.244.2.2:8080";

/// What is said of a service and another state of it: by clients.
fn said(contiv: &ContivService, kube_proxy: &[ContivService]) -> BTreeSet<String> {
    let compared = compare(&snapshot(from_ref(contiv)), &Fake::of(kube_proxy));
    let differences = compared.differences.iter().chain(&compared.intended);
    let texts = differences.map(|it| {
        let clients: Vec<String> = it.clients.iter().map(ToString::to_string).collect();
        let end = if it.reason.is_empty() {
            ""
        } else {
            " (intended)"
        };
        format!("{} {}: {}{end}", it.to, clients.join(","), it.summary)
    });
    texts.collect()
}

#[test]
fn equal_rules_have_no_difference_and_all_is_counted() {
    let service = web(&[ONE, OTHER]);
    let compared = compare(&snapshot(from_ref(&service)), &Fake::of(from_ref(&service)));
    assert!(compared.is_equal() && compared.intended.is_empty());
    // Cluster IP, load balancer, node port, and an unused port of the cluster IP; pods, those of other nodes, node, others, and the backend on this node.
    assert_eq!((compared.frontends, compared.connections), (3, 20));
}

#[test]
fn missing_backend_and_service_are_named_for_each_frontend() {
    let found = said(&web(&[ONE, OTHER]), &[web(&[ONE])]);
    let lacks = format!("kube-proxy lacks {OTHER}");
    assert!(
        found.len() >= 3 && found.iter().all(|text| text.ends_with(&lacks)),
        "{found:?}"
    );
    let found = said(&web(&[ONE]), &[]);
    assert!(
        found
            .iter()
            .all(|text| text.ends_with(": only contiv serves it")),
        "{found:?}"
    );
}

#[test]
fn policy_differs_for_others_only() {
    let local = ContivService {
        external_policy: TrafficPolicy::Local,
        ..web(&[OTHER])
    };
    let found = said(&local, &[web(&[OTHER])]);
    assert!(
        found.contains("198.51.100.1:80 others,other pods: kube-proxy serves, contiv drops"),
        "{found:?}"
    );
    assert!(
        !found.iter().any(|text| text.contains("10.96.0.1")),
        "{found:?}"
    );
}

#[test]
fn ranges_that_differ_are_found_by_an_address_at_their_end() {
    let with = |ranges: &[&str]| ContivService {
        source_ranges: ranges.iter().map(|range| range.parse().unwrap()).collect(),
        ..web(&[ONE])
    };
    let found = said(
        &with(&["203.0.113.0/25", "192.0.2.0/24"]),
        &[with(&["203.0.113.0/25"])],
    );
    assert_eq!(
        found,
        ["198.51.100.1:80 192.0.2.0: kube-proxy drops, contiv serves".to_owned()].into()
    );
    // The greater range is contiv's: its last addresses differ.
    let found = said(&with(&["203.0.113.0/24"]), &[with(&["203.0.113.0/25"])]);
    assert!(
        found.is_empty(),
        "kube-proxy's ranges are not known to the fake: {found:?}"
    );
    let mut rules = Fake::of(&[with(&["203.0.113.0/25"])]);
    for known in rules.frontends.values_mut() {
        known.source_ranges = vec![(
            "203.0.113.0".parse().unwrap(),
            "203.0.113.127".parse().unwrap(),
        )];
    }
    let compared = compare(&snapshot(&[with(&["203.0.113.0/24"])]), &rules);
    let clients: BTreeSet<String> = compared
        .differences
        .iter()
        .flat_map(|it| it.clients.iter().map(ToString::to_string))
        .collect();
    assert_eq!(clients, ["203.0.113.128".to_owned()].into());
}

#[test]
fn own_features_of_contiv_are_intended() {
    let by_address = ContivService {
        balance: Balance::ClientAddress,
        ..web(&[ONE])
    };
    let found = said(&by_address, &[web(&[ONE])]);
    assert!(
        !found.is_empty() && found.iter().all(|text| text.ends_with("(intended)")),
        "{found:?}"
    );
    // Another backend too: that is not explained by it.
    let found = said(&by_address, &[web(&[ONE, OTHER])]);
    assert!(
        !found.is_empty() && !found.iter().any(|text| text.ends_with("(intended)")),
        "{found:?}"
    );
}

#[test]
fn what_cannot_be_evaluated_is_unknown_and_not_equal() {
    let service = web(&[ONE]);
    let rules = Fake {
        problem: Some("limit"),
        ..Fake::of(from_ref(&service))
    };
    let compared = compare(&snapshot(&[service]), &rules);
    // An unused port of the cluster IP too.
    assert_eq!(compared.unknown.len(), 4);
    assert!(!compared.is_equal() && compared.differences.is_empty());
}

#[test]
fn difference_that_is_not_confirmed_is_left_out() {
    let service = web(&[ONE]);
    let state = snapshot(from_ref(&service));
    let first = compare(&state, &Fake::of(&[]));
    assert!(!first.is_equal());
    assert!(
        first
            .confirmed_by(compare(&state, &Fake::of(&[service])))
            .is_equal()
    );
}

#[test]
fn difference_that_is_another_one_now_stays() {
    let service = web(&[ONE, OTHER]);
    let state = snapshot(from_ref(&service));
    let first = compare(&state, &Fake::of(&[web(&[ONE])]));
    let second = compare(&state, &Fake::of(&[web(&[OTHER])]));
    assert!(!first.confirmed_by(second).is_equal());
}

/// The clients of all differences between two views of the pods of this node.
fn clients(contiv: Option<&str>, kube_proxy: &str, service: ContivService) -> BTreeSet<String> {
    let range = |text: &str| text.parse().unwrap();
    let mut state = snapshot(from_ref(&service));
    state.node.pod_cidrs = contiv.map(range).into_iter().collect();
    let mut rules = Fake::of(&[service]);
    rules.services.node.pod_cidrs = [range(kube_proxy)].into();
    let compared = compare(&state, &rules);
    let clients = compared.differences.iter().flat_map(|it| &it.clients);
    clients.map(ToString::to_string).collect()
}

#[test]
fn pods_of_other_nodes_are_compared() {
    let service = ContivService {
        external_policy: TrafficPolicy::Local,
        ..web(&[OTHER])
    };
    let found = clients(Some("10.244.1.0/24"), "10.244.0.0/16", service);
    assert!(found.contains("other pods"), "{found:?}");
}

#[test]
fn pods_are_compared_where_only_kube_proxy_knows_them() {
    let found = clients(None, "10.244.1.0/24", web(&[ONE]));
    assert!(found.contains("pods"), "{found:?}");
}

#[test]
fn difference_is_not_intended_where_kube_proxy_has_no_service_at_all() {
    let older = web(&[ONE]);
    let younger = ContivService {
        id: ServiceId::new("shop", "younger"),
        ..web(&[OTHER])
    };
    let state = snapshot(&[older, younger]);
    let compared = compare(&state, &Fake::of(&[]));
    assert!(!compared.is_equal(), "{compared:?}");
}

#[test]
fn node_port_without_an_address_of_the_node_is_unknown() {
    let service = web(&[ONE]);
    let mut state = snapshot(from_ref(&service));
    state.node.node_ips.clear();
    let compared = compare(&state, &Fake::of(&[service]));
    let unknown: Vec<&Unknown> = compared.unknown.iter().collect();
    assert!(
        matches!(unknown[..], [one] if matches!(one.frontend, Frontend::NodePort { .. })),
        "{compared:?}"
    );
}

#[test]
fn only_named_places_are_compared_again() {
    let services = [
        web(&[ONE]),
        ContivService {
            id: ServiceId::new("shop", "other"),
            cluster_ips: ["10.96.0.2".parse().unwrap()].into(),
            external_ips: [].into(),
            load_balancer_ips: [].into(),
            ports: vec![ServicePort {
                node_port: None,
                ..web(&[ONE]).ports[0].clone()
            }],
            ..web(&[ONE])
        },
    ];
    let state = snapshot(&services);
    let first = compare(&state, &Fake::of(&services[..1]));
    let places = first.places();
    let again = compare_places(&state, &Fake::of(&[]), Some(&places));
    let of_other = |it: &Difference| it.to.ip().to_string() == "10.96.0.2";
    assert!(
        !again.differences.is_empty() && again.differences.iter().all(of_other),
        "{again:?}"
    );
}

#[test]
fn pod_has_both_an_address_and_an_interface_of_pods() {
    let service = web(&[OTHER]);
    let mut rules = Fake::of(from_ref(&service));
    let range = |text: &str| (text.parse().unwrap(), "10.244.1.255".parse().unwrap());
    rules.cluster.pods = vec![range("10.244.1.0")];
    // Contiv knows pods by their interface only.
    let mut state = snapshot(&[service]);
    state.node.pod_cidrs.clear();
    state.node.pod_interfaces = ["cni0".parse().unwrap()].into();
    assert!(compare(&state, &rules).is_equal());
    // Here kube-proxy does.
    let mut other = snapshot(&[web(&[OTHER])]);
    rules.services.node = state.node;
    rules.cluster.pods.clear();
    rules.cluster.pod_interface = Some(InterfaceName::new("cni0".to_owned()));
    other.node.local_ips = ["192.168.0.1".parse().unwrap()].into();
    assert!(compare(&other, &rules).is_equal());
}
