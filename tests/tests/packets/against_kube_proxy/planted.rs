//! Differences between contiv's services and kube-proxy's rules.

use std::collections::{BTreeMap, BTreeSet};

use contiv_tests::lab::{Family, Lab, Result};
use serde_json::Value;

use super::{
    cluster::{Condition, Endpoint, Service},
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
    number: 99,
    is_local: false,
    condition: Condition::Ready,
    zone: None,
};

/// Differences in services, as a kube-proxy has them that missed a change.
pub(super) fn planted() -> Vec<Planted> {
    let differs = |service, change, said| Planted {
        service,
        change,
        said,
    };
    vec![
        // A missing endpoint, one that is gone, another target port.
        differs("service-003", |it| drop(it.endpoints.remove(1)), &[]),
        differs("service-033", |it| it.endpoints.push(REMOTE), &[]),
        differs("service-001", |it| it.ports[0].target = 9999, &[]),
        // A missing service, one that is gone, a missing port, another protocol, a missing family.
        differs("service-123", |it| it.headless = true, &[]),
        differs("service-067", |it| it.headless = false, &[]),
        differs("service-036", |it| drop(it.ports.pop()), &[]),
        differs("service-061", |it| it.ports[0].protocol = "tcp", &[]),
        differs("service-010", |it| it.families.truncate(1), &[]),
        // Missing addresses and node ports.
        differs("service-091", |it| it.ports[0].node_port = None, &[]),
        differs(
            "service-121",
            |it| it.ports[0].node_port = Some(29_999),
            &[],
        ),
        differs("service-093", |it| it.has_external_ip = false, &[]),
        differs("service-032", |it| it.is_balanced = false, &[]),
        // Fewer ranges of sources, none, and more.
        differs("service-062", |it| it.source_ranges.truncate(2), &[]),
        differs("service-092", |it| it.source_ranges.clear(), &[]),
        differs(
            "service-122",
            |it| it.source_ranges.push("198.51.100.0/24"),
            &[],
        ),
        // Policies.
        differs("service-064", |it| it.external_local = false, &[]),
        differs("service-151", |it| it.external_local = true, &[]),
        differs("service-035", |it| it.internal_local = false, &[]),
        differs("service-063", |it| it.internal_local = true, &[]),
        // Affinity.
        differs("service-066", |it| it.affinity = None, &[]),
        differs("service-096", |it| it.affinity = Some(60), &[]),
        // Endpoints that are ready or not, terminating ones, topology hints.
        differs("service-183", |it| it.endpoints.clear(), &[]),
        differs("service-008", |it| it.endpoints.push(REMOTE), &[]),
        differs(
            "service-005",
            |it| it.endpoints[5].condition = Condition::Ready,
            &[],
        ),
        differs(
            "service-009",
            |it| {
                it.endpoints
                    .iter_mut()
                    .for_each(|it| it.condition = Condition::Unready)
            },
            &[],
        ),
        differs(
            "service-020",
            |it| it.endpoints.iter_mut().for_each(|it| it.zone = None),
            &[],
        ),
        // Those of `damage`.
        differs("service-184", |_| (), &[]),
        differs("service-181", |_| (), &[]),
        differs("service-016", |_| (), &[]),
        differs("service-153", |_| (), &[]),
    ]
}

/// Differences of single rules: a refusal in place of silence, no masquerade, an endpoint whose chain is empty, and a pod that reaches
/// itself without masquerade.
pub(super) fn damage(lab: &Lab, services: &[Service], layout: Layout) -> Result<()> {
    let (refusing, unmasqueraded, stale, hairpin) = (
        &services[184],
        &services[181],
        &services[16],
        &services[153],
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
    text += &match layout {
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
    lab.node.exec_with_input(&["nft", "-f", "-"], &text)?;
    Ok(())
}

/// Each planted difference is named with its service, and no other service is.
pub(super) fn expect_named(planted: &[Planted], report: &Value) {
    let mut named: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for difference in report["differences"].as_array().into_iter().flatten() {
        let text = |field: &str| difference[field].as_str().unwrap_or("-").to_owned();
        let said = format!("{}: {}", text("frontend"), text("difference"));
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
