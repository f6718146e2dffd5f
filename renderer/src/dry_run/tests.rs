//! The three formats, byte by byte.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use contiv_model::{
    Backend, ContivService, NodeFacts, Protocol, ServiceChange, ServiceId, ServicePort,
    TrafficPolicy,
};

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn port(
    port: u16,
    protocol: Protocol,
    node_port: Option<u16>,
    backends: &[(&str, bool)],
) -> ServicePort {
    let backend = |(address, local): &(&str, bool)| Backend {
        local: *local,
        ..Backend::new(SocketAddr::new(ip(address), 8080))
    };
    ServicePort {
        port,
        protocol,
        name: "".into(),
        node_port,
        backends: backends.iter().map(backend).collect(),
    }
}

fn service(
    name: &str,
    cluster_ips: &[&str],
    external: TrafficPolicy,
    port: ServicePort,
) -> ContivService {
    ContivService {
        external_policy: external,
        cluster_ips: cluster_ips.iter().map(|address| ip(address)).collect(),
        ports: vec![port],
        ..ContivService::new(ServiceId::new("default", name))
    }
}

fn snapshot() -> Snapshot {
    let backends = [
        ("10.244.1.10", true),
        ("10.244.2.10", false),
        ("fd00:10:244:1::10", true),
    ];
    let services = [
        service(
            "dns",
            &["10.96.0.10"],
            TrafficPolicy::Cluster,
            port(53, Protocol::Udp, None, &[]),
        ),
        service(
            "web",
            &["10.96.0.1", "fd00:10:96::1"],
            TrafficPolicy::Local,
            port(80, Protocol::Tcp, Some(30080), &backends),
        ),
    ];
    Snapshot {
        services: services
            .into_iter()
            .map(|service| (service.id.clone(), Arc::new(service)))
            .collect(),
        node: NodeFacts {
            node_ips: BTreeSet::from([ip("172.31.0.1")]),
            pod_cidrs: BTreeSet::from(["10.244.1.0/24".parse().unwrap()]),
            ..NodeFacts::default()
        },
        ..Snapshot::default()
    }
}

const ELEMENTS: &str = r"
table inet contiv {
	# Sends a new connection to one of its slots.
	chain pick-v4-2 {
		# Selects one of the slots; each has a backend.
		meta priority set none dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 2 map @backends4
	}

	# Sends a new connection to one of its slots.
	chain pick-node-port-v4-2-external-1 {
		# External clients get backends of this node.
		meta priority set none ip saddr != @pods4 iifname != @pod-interfaces4 fib saddr type != local dnat ip to ip daddr & 0.0.0.0 . meta l4proto . th dport . numgen random mod 1 map @backends-external4
		# Their slot is empty: no other backend is for them.
		ip saddr != @pods4 iifname != @pod-interfaces4 fib saddr type != local drop
		# Selects one of the slots; each has a backend.
		dnat ip to ip daddr & 0.0.0.0 . meta l4proto . th dport . numgen random mod 2 map @backends4
	}

	# Sends a new connection to one of its slots.
	chain pick-v6-1 {
		# Selects one of the slots; each has a backend.
		meta priority set none dnat ip6 to ip6 daddr . meta l4proto . th dport . numgen random mod 1 map @backends6
	}

	# Sends a new connection to one of its slots.
	chain pick-node-port-v6-1-external-1 {
		# External clients get backends of this node.
		meta priority set none ip6 saddr != @pods6 iifname != @pod-interfaces6 fib saddr type != local dnat ip6 to ip6 daddr & :: . meta l4proto . th dport . numgen random mod 1 map @backends-external6
		# Their slot is empty: no other backend is for them.
		ip6 saddr != @pods6 iifname != @pod-interfaces6 fib saddr type != local drop
		# Selects one of the slots; each has a backend.
		dnat ip6 to ip6 daddr & :: . meta l4proto . th dport . numgen random mod 1 map @backends6
	}

	# Connections to frontends other than cluster IPs.
	chain external-postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		# Only translated connections.
		meta nfproto ipv4 ct status dnat goto masquerade-external-v4
		# The same for IPv6.
		meta nfproto ipv6 ct status dnat goto masquerade-external-v6
	}
}

add element inet contiv services4 {
	0.0.0.0 . tcp . 30080 : 8002:2, # default/web
	10.96.0.1 . tcp . 80 : 0:2, # default/web
}

add element inet contiv services6 {
	:: . tcp . 30080 : 8002:1, # default/web
	fd00:10:96::1 . tcp . 80 : 0:1, # default/web
}

add element inet contiv pick-chains4 {
	0:2 : goto pick-v4-2,
	8002:2 : goto pick-node-port-v4-2-external-1,
}

add element inet contiv pick-chains6 {
	0:1 : goto pick-v6-1,
	8002:1 : goto pick-node-port-v6-1-external-1,
}

add element inet contiv backends4 {
	0.0.0.0 . tcp . 30080 . 0 : 10.244.1.10 . 8080, # default/web
	0.0.0.0 . tcp . 30080 . 1 : 10.244.2.10 . 8080,
	10.96.0.1 . tcp . 80 . 0 : 10.244.1.10 . 8080, # default/web
	10.96.0.1 . tcp . 80 . 1 : 10.244.2.10 . 8080,
}

add element inet contiv backends6 {
	:: . tcp . 30080 . 0 : fd00:10:244:1::10 . 8080, # default/web
	fd00:10:96::1 . tcp . 80 . 0 : fd00:10:244:1::10 . 8080, # default/web
}

add element inet contiv backends-external4 {
	0.0.0.0 . tcp . 30080 . 0 : 10.244.1.10 . 8080, # default/web
}

add element inet contiv backends-external6 {
	:: . tcp . 30080 . 0 : fd00:10:244:1::10 . 8080, # default/web
}

add element inet contiv no-endpoints4 {
	10.96.0.10 . udp . 53, # default/dns
}

add element inet contiv masquerade-local4 {
	0.0.0.0 . tcp . 30080, # default/web
}

add element inet contiv masquerade-local6 {
	:: . tcp . 30080, # default/web
}

add element inet contiv cluster-ips4 {
	10.96.0.1,
	10.96.0.10,
}

add element inet contiv cluster-ips6 {
	fd00:10:96::1,
}

add element inet contiv hairpin4 {
	10.244.1.10 . 10.244.1.10,
}

add element inet contiv hairpin6 {
	fd00:10:244:1::10 . fd00:10:244:1::10,
}

add element inet contiv pods4 {
	10.244.1.0/24,
}

add element inet contiv no-masquerade4 {
	10.244.1.0/24,
}

add element inet contiv node-ips4 {
	172.31.0.1,
}
";

#[test]
fn nft_form_is_skeleton_then_chains_and_elements_in_order() {
    let text = nft(&snapshot());
    // The rules depend on the range of the node's pods.
    let of_node = nft(&Snapshot {
        node: snapshot().node,
        ..Snapshot::default()
    });
    let skeleton = of_node
        .split_once("\nadd element")
        .map_or(&*of_node, |(skeleton, _)| skeleton);
    assert_eq!(text.strip_prefix(skeleton), Some(ELEMENTS));
}

#[test]
fn table_has_one_row_for_each_address() {
    let expected = [
        [
            "default/dns",
            "",
            "10.96.0.10:53/udp",
            "cluster",
            "Cluster",
            "none: rejected",
        ],
        [
            "default/web",
            "",
            "10.96.0.1:80/tcp",
            "cluster",
            "Cluster",
            "10.244.1.10:8080, 10.244.2.10:8080",
        ],
        [
            "default/web",
            "",
            "[fd00:10:96::1]:80/tcp",
            "cluster",
            "Cluster",
            "[fd00:10:244:1::10]:8080",
        ],
        [
            "default/web",
            "",
            "*:30080/tcp",
            "node port",
            "Local",
            "10.244.1.10:8080, [fd00:10:244:1::10]:8080",
        ],
    ];
    assert_eq!(rows(&snapshot()), expected);
}

#[test]
fn load_balancer_address_has_its_type_and_local_backends() {
    let backends = [("10.244.1.10", true), ("10.244.2.10", false)];
    let mut web = service(
        "web",
        &["10.96.0.1"],
        TrafficPolicy::Local,
        port(80, Protocol::Tcp, Some(30080), &backends),
    );
    web.external_ips = [ip("192.0.2.1"), ip("203.0.113.1")].into_iter().collect();
    web.load_balancer_ips = [ip("203.0.113.1")].into_iter().collect();
    let mut elsewhere = web.clone();
    elsewhere.id = ServiceId::new("default", "elsewhere");
    elsewhere.ports[0].backends.remove(0);
    let services = [web, elsewhere].map(|service| (service.id.clone(), Arc::new(service)));
    let rows = rows(&Snapshot {
        services: services.into(),
        ..Snapshot::default()
    });
    let words = |address: &str| {
        let rows = rows.iter().filter(|row| row[2].contains(address));
        rows.map(|row| row.join(" ").replace("  ", " "))
            .collect::<Vec<_>>()
    };
    let dropped =
        "default/elsewhere 203.0.113.1:80/tcp load balancer Local none on this node: dropped";
    let served = "default/web 203.0.113.1:80/tcp load balancer Local 10.244.1.10:8080";
    assert_eq!(words("203.0.113.1"), [dropped, served]);
    assert!(
        words("192.0.2.1")[1].ends_with("external Local 10.244.1.10:8080"),
        "{rows:?}"
    );
    assert!(
        words("10.96.0.1")[1].ends_with("cluster Cluster 10.244.1.10:8080, 10.244.2.10:8080"),
        "{rows:?}"
    );
}

#[test]
fn json_form_has_services_and_elements_of_each_set() {
    let json = json(&snapshot());
    assert_eq!(
        json["desired"]["services"]["default/web"]["ports"][0]["node_port"],
        30080
    );
    let expected = serde_json::json!(["10.96.0.10 . udp . 53"]);
    assert_eq!(json["elements"]["no-endpoints4"], expected);
}

#[test]
fn dry_run_keeps_and_shows_its_snapshot() {
    let mut renderer = DryRun::new();
    let old = snapshot();
    assert!(
        renderer.update(&ChangeSet::default()).is_err(),
        "a resync comes first"
    );
    renderer.resync(&old).unwrap();
    assert_eq!(
        (renderer.describe().services, renderer.describe().text),
        (2, nft(&old))
    );

    let id = ServiceId::new("default", "dns");
    let gone = ServiceChange {
        old: old.services.get(&id).cloned(),
        new: None,
    };
    let changes = ChangeSet {
        services: BTreeMap::from([(id, gone)]),
        ..ChangeSet::default()
    };
    let report = renderer.update(&changes).unwrap();
    assert_eq!((report.added, report.removed), (0, 1));
    assert_eq!(renderer.describe().services, 1);
    assert!(!renderer.describe().text.contains("default/dns"));
}
