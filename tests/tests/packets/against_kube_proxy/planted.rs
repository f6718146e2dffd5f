//! Differences between contiv's services and kube-proxy's rules.

use std::collections::{BTreeMap, BTreeSet};

use contiv_tests::lab::{Family, Lab, Result};
use serde_json::Value;

use super::cluster::endpoint_addresses;
use crate::kube_proxy_rules::{
    Condition, Endpoint, Service, iptables,
    nftables::{Layout, chain, endpoint_chain},
};

/// A difference in one service.
pub(super) struct Planted {
    pub(super) service: &'static str,
    /// What kube-proxy has.
    pub(super) change: fn(&mut Service),
    /// What is said of it, and no more.
    pub(super) said: &'static [&'static str],
}

const REMOTE: Endpoint = Endpoint {
    addresses: endpoint_addresses(99, false),
    is_local: false,
    condition: Condition::Ready,
    zone: None,
};

/// Differences in services, as a kube-proxy has them that missed a change.
pub(super) fn planted() -> Vec<Planted> {
    [in_backends(), in_frontends(), in_policies(), in_endpoints()]
        .into_iter()
        .flatten()
        .collect()
}

/// The same as mode iptables has them: an empty chain ends nowhere, and what this node itself sends to an external address without
/// endpoints is not refused.
pub(super) fn planted_in_iptables() -> Vec<Planted> {
    let mut planted = planted();
    for one in &mut planted {
        one.said = match one.service {
            "service-016" => {
                &["10.96.0.26:80/tcp: kube-proxy serves or ignores by chance, contiv serves"]
            }
            "service-183" => &[
                "10.96.0.193:80/tcp: kube-proxy rejects, contiv serves",
                "198.18.0.193:80/tcp: kube-proxy rejects, contiv serves",
                "198.18.0.193:80/tcp: only contiv serves it",
            ],
            _ => one.said,
        };
    }
    planted
}

fn differs(
    service: &'static str,
    change: fn(&mut Service),
    said: &'static [&'static str],
) -> Planted {
    Planted {
        service,
        change,
        said,
    }
}

fn in_backends() -> Vec<Planted> {
    vec![
        // A missing endpoint, one that is gone, another target port.
        differs(
            "service-003",
            |it| {
                it.endpoints.remove(1);
            },
            &[
                "10.96.0.13:80/tcp: kube-proxy lacks 10.244.2.44:8083",
                "198.18.0.13:80/tcp: kube-proxy lacks 10.244.2.44:8083",
            ],
        ),
        differs(
            "service-033",
            |it| it.endpoints.push(REMOTE),
            &[
                "10.96.0.43:80/udp: contiv lacks 10.244.2.99:8083",
                "198.18.0.43:80/udp: contiv lacks 10.244.2.99:8083",
            ],
        ),
        differs(
            "service-001",
            |it| it.ports[0].target = 9999,
            &[
                "10.96.0.11:80/tcp: kube-proxy lacks 10.244.1.17:8081 and 1 more; contiv lacks 10.244.1.17:9999 and 1 more",
                "node port 20002/tcp: kube-proxy lacks 10.244.1.17:8081 and 1 more; contiv lacks 10.244.1.17:9999 and 1 more",
            ],
        ),
        // A missing service, one that is gone, a missing port, another protocol, a missing family.
        differs(
            "service-123",
            |it| it.headless = true,
            &[
                "10.96.0.133:80/udp: only contiv serves it",
                "198.18.0.133:80/udp: only contiv serves it",
            ],
        ),
        differs(
            "service-067",
            |it| it.headless = false,
            &["10.96.0.77:80/sctp: only kube-proxy serves it"],
        ),
        differs(
            "service-036",
            |it| it.ports.truncate(1),
            &["10.96.0.46:53/udp: only contiv serves it"],
        ),
        differs(
            "service-061",
            |it| it.ports[0].protocol = "tcp",
            &[
                "10.96.0.71:80/sctp: only contiv serves it",
                "10.96.0.71:80/tcp: only kube-proxy serves it",
                "node port 20122/sctp: only contiv serves it",
                "node port 20122/tcp: only kube-proxy serves it",
            ],
        ),
        differs(
            "service-010",
            |it| it.families.truncate(1),
            &[
                "[fd00:10:96::14]:53/udp: only contiv serves it",
                "[fd00:10:96::14]:80/tcp: only contiv serves it",
            ],
        ),
    ]
}

fn in_frontends() -> Vec<Planted> {
    vec![
        // Missing addresses and node ports.
        differs(
            "service-091",
            |it| it.ports[0].node_port = None,
            &["node port 20182/tcp: only contiv serves it"],
        ),
        differs(
            "service-121",
            |it| it.ports[0].node_port = Some(29_999),
            &[
                "node port 20242/udp: only contiv serves it",
                "node port 29999/udp: only kube-proxy serves it",
            ],
        ),
        differs(
            "service-093",
            |it| it.has_external_ip = false,
            &["198.18.0.103:80/tcp: only contiv serves it"],
        ),
        differs(
            "service-032",
            |it| it.is_balanced = false,
            &[
                "198.19.0.42:53/udp: only contiv drops it",
                "198.19.0.42:53/udp: only contiv serves it",
                "198.19.0.42:80/udp: only contiv drops it",
                "198.19.0.42:80/udp: only contiv serves it",
            ],
        ),
        // Fewer ranges of sources, none, and more.
        differs(
            "service-062",
            |it| it.source_ranges.truncate(2),
            &[
                "198.19.0.72:53/udp: kube-proxy drops, contiv serves",
                "198.19.0.72:80/sctp: kube-proxy drops, contiv serves",
            ],
        ),
        differs(
            "service-092",
            |it| it.source_ranges.clear(),
            &[
                "198.19.0.102:53/udp: kube-proxy serves, contiv drops",
                "198.19.0.102:80/tcp: kube-proxy serves, contiv drops",
            ],
        ),
        differs(
            "service-122",
            |it| it.source_ranges.push("198.51.100.0/24"),
            &[
                "198.19.0.132:53/udp: kube-proxy serves, contiv drops",
                "198.19.0.132:80/udp: kube-proxy serves, contiv drops",
            ],
        ),
    ]
}

fn in_policies() -> Vec<Planted> {
    vec![
        // Policies.
        differs(
            "service-064",
            |it| it.external_local = false,
            &[
                "198.19.0.74:80/sctp: contiv lacks 10.244.2.17:8084 and 1 more; only kube-proxy masquerades",
                "198.19.0.74:80/sctp: kube-proxy masquerades to 5 of 5, contiv to 1",
                "198.19.0.74:80/sctp: only kube-proxy masquerades",
                "node port 20128/sctp: contiv lacks 10.244.2.17:8084 and 1 more; only kube-proxy masquerades",
                "node port 20128/sctp: kube-proxy masquerades to 5 of 5, contiv to 1",
                "node port 20128/sctp: only kube-proxy masquerades",
            ],
        ),
        differs(
            "service-151",
            |it| it.external_local = true,
            &[
                "node port 20302/sctp: kube-proxy lacks 10.244.2.40:8081; only contiv masquerades",
                "node port 20302/sctp: kube-proxy masquerades to 1 of 2, contiv to 2",
                "node port 20302/sctp: only contiv masquerades",
            ],
        ),
        differs(
            "service-035",
            |it| it.internal_local = false,
            &["10.96.0.45:80/udp: contiv lacks 10.244.2.28:8080 and 1 more"],
        ),
        differs(
            "service-063",
            |it| it.internal_local = true,
            &["10.96.0.73:80/sctp: kube-proxy lacks 10.244.2.10:8083 and 1 more"],
        ),
        // Affinity.
        differs(
            "service-066",
            |it| it.affinity = None,
            &[
                "10.96.0.76:53/udp: affinity: kube-proxy none, contiv 10800 s",
                "10.96.0.76:80/sctp: affinity: kube-proxy none, contiv 10800 s",
            ],
        ),
        differs(
            "service-096",
            |it| it.affinity = Some(60),
            &[
                "10.96.0.106:53/udp: affinity: kube-proxy 60 s, contiv 600 s",
                "10.96.0.106:80/tcp: affinity: kube-proxy 60 s, contiv 600 s",
            ],
        ),
    ]
}

fn in_endpoints() -> Vec<Planted> {
    vec![
        // Endpoints that are ready or not, terminating ones, topology hints.
        differs(
            "service-183",
            |it| it.endpoints.clear(),
            &[
                "10.96.0.193:80/tcp: kube-proxy rejects, contiv serves",
                "198.18.0.193:80/tcp: kube-proxy rejects, contiv serves",
            ],
        ),
        differs(
            "service-008",
            |it| it.endpoints.push(REMOTE),
            &[
                "10.96.0.18:80/tcp: kube-proxy serves, contiv rejects",
                "198.18.0.18:80/tcp: kube-proxy serves, contiv rejects",
                "198.19.0.18:80/tcp: kube-proxy serves, contiv rejects",
                "node port 20016/tcp: kube-proxy serves, contiv rejects",
            ],
        ),
        differs(
            "service-005",
            |it| it.endpoints[5].condition = Condition::Ready,
            &["10.96.0.15:80/tcp: contiv lacks 10.244.1.30:8080"],
        ),
        differs(
            "service-009",
            |it| {
                it.endpoints
                    .iter_mut()
                    .for_each(|it| it.condition = Condition::Unready);
            },
            &[
                "10.96.0.19:80/tcp: kube-proxy rejects, contiv serves",
                "node port 20018/tcp: kube-proxy rejects, contiv serves",
            ],
        ),
        differs(
            "service-020",
            |it| it.endpoints.iter_mut().for_each(|it| it.zone = None),
            &[
                "[fd00:10:96::1e]:53/udp: contiv lacks [fd00:10:244:2::53]:5353",
                "[fd00:10:96::1e]:80/tcp: contiv lacks [fd00:10:244:2::53]:8080",
            ],
        ),
        // Those of `damage`.
        differs(
            "service-184",
            |_| (),
            &["node port 20368/tcp: kube-proxy rejects, contiv drops"],
        ),
        differs(
            "service-181",
            |_| (),
            &["node port 20362/tcp: only contiv masquerades"],
        ),
        differs(
            "service-016",
            |_| (),
            &["10.96.0.26:80/tcp: kube-proxy serves or rejects by chance, contiv serves"],
        ),
        differs(
            "service-433",
            |_| (),
            &["10.96.1.187:80/sctp: only contiv masquerades"],
        ),
    ]
}

/// Differences of single rules: a refusal in place of silence, no masquerade, an endpoint whose chain is empty, and a pod that reaches
/// itself without masquerade.
pub(super) fn damage(lab: &Lab, services: &[Service], layout: Layout) -> Result<()> {
    let (refusing, unmasqueraded, stale, hairpin) = (
        &services[184],
        &services[181],
        &services[16],
        &services[433],
    );
    let [Some(refused), Some(_)] = [
        refusing.ports[0].node_port,
        unmasqueraded.ports[0].node_port,
    ] else {
        unreachable!("both have node ports");
    };
    let external = chain("external", unmasqueraded, &unmasqueraded.ports[0]);
    let service = chain("service", unmasqueraded, &unmasqueraded.ports[0]);
    let endpoint = |service: &Service| service.categories(&service.ports[0], Family::V4).used[0];
    let stale = endpoint_chain(stale, &stale.ports[0], endpoint(stale));
    let itself = endpoint(hairpin);
    let mut text = format!(
        "delete element ip kube-proxy no-endpoint-nodeports {{ tcp . {refused} }}
add element ip kube-proxy no-endpoint-nodeports {{ tcp . {refused} : goto reject-chain }}
flush chain ip kube-proxy {external}
add rule ip kube-proxy {external} goto {service}
flush chain ip kube-proxy {stale}
"
    );
    let last = match layout {
        Layout::UpTo135 => {
            let chain = endpoint_chain(hairpin, &hairpin.ports[0], itself);
            format!(
                "flush chain ip kube-proxy {chain}
add rule ip kube-proxy {chain} meta l4proto sctp dnat to {itself}
"
            )
        }
        Layout::From136 => {
            let (address, port) = (itself.ip(), itself.port());
            let key = format!("{address} . {address} . sctp . {port}");
            format!("delete element ip kube-proxy hairpin-connections {{ {key} }}\n")
        }
    };
    text.push_str(&last);
    lab.node.exec_with_input(&["nft", "-f", "-"], &text)?;
    Ok(())
}

/// The same differences in a line of mode iptables; none if the line is left out.
pub(super) fn damaged_line(services: &[Service], line: &str) -> Option<String> {
    let chain = |number: usize| {
        let service = &services[number];
        let endpoint = service.categories(&service.ports[0], Family::V4).used[0];
        format!(
            "-A {} ",
            iptables::endpoint_chain(service, &service.ports[0], endpoint)
        )
    };
    let is_refusal = line.contains("shop/service-184:main has no local endpoints")
        && line.contains("--dst-type LOCAL");
    if is_refusal {
        return Some(line.replace("-j DROP", "-j REJECT"));
    }
    let is_left_out = line.contains("masquerade traffic for shop/service-181:main ")
        || line.starts_with(&chain(16))
        || line.starts_with(&chain(433)) && line.ends_with("-j KUBE-MARK-MASQ");
    (!is_left_out).then(|| line.to_owned())
}

/// Each planted difference is named with its service, and no other service is.
pub(super) fn expect_named(planted: &[Planted], report: &Value) {
    let mut named: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for difference in report["differences"].as_array().into_iter().flatten() {
        let text = |field: &str| difference[field].as_str().unwrap_or("-").to_owned();
        let said = format!("{}: {}", text("frontend"), text("summary"));
        named.entry(text("service")).or_default().insert(said);
    }
    let expected: BTreeMap<String, BTreeSet<String>> = planted
        .iter()
        .map(|it| {
            let said = it.said.iter().map(|said| (*said).to_owned());
            (format!("shop/{}", it.service), said.collect())
        })
        .collect();
    assert_eq!(named, expected, "{report:#}");
    assert_eq!(report["unknown"], Value::Array(Vec::new()), "{report:#}");
}
