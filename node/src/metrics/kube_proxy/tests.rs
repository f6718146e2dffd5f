use std::collections::BTreeMap;

use prometheus_client::encoding::prometheus_text;

use super::*;
use crate::metrics::NodeMetrics;

/// kube-proxy's metrics in the Kubernetes documentation: name, type, labels, and whether contiv has it. Source: the reference
/// "Kubernetes Metrics Reference" of 1.34, which 1.36 has unchanged for these.
const DOCUMENTED: [(&str, &str, &str, bool); 23] = [
    (
        "conntrack_reconciler_deleted_entries_total",
        "counter",
        "ip_family",
        true,
    ),
    (
        "conntrack_reconciler_sync_duration_seconds",
        "histogram",
        "ip_family",
        true,
    ),
    (
        "iptables_ct_state_invalid_dropped_packets_total",
        "counter",
        "",
        false,
    ),
    (
        "iptables_localhost_nodeports_accepted_packets_total",
        "counter",
        "",
        false,
    ),
    (
        "network_programming_duration_seconds",
        "histogram",
        "ip_family",
        true,
    ),
    ("proxy_healthz_total", "counter", "code", true),
    ("proxy_livez_total", "counter", "code", true),
    (
        "sync_full_proxy_rules_duration_seconds",
        "histogram",
        "ip_family",
        true,
    ),
    (
        "sync_partial_proxy_rules_duration_seconds",
        "histogram",
        "ip_family",
        true,
    ),
    (
        "sync_proxy_rules_duration_seconds",
        "histogram",
        "ip_family",
        true,
    ),
    (
        "sync_proxy_rules_endpoint_changes_pending",
        "gauge",
        "",
        true,
    ),
    (
        "sync_proxy_rules_endpoint_changes_total",
        "counter",
        "",
        true,
    ),
    (
        "sync_proxy_rules_iptables_last",
        "gauge",
        "ip_family,table",
        false,
    ),
    (
        "sync_proxy_rules_iptables_partial_restore_failures_total",
        "counter",
        "ip_family",
        false,
    ),
    (
        "sync_proxy_rules_iptables_restore_failures_total",
        "counter",
        "ip_family",
        false,
    ),
    (
        "sync_proxy_rules_iptables_total",
        "gauge",
        "ip_family,table",
        false,
    ),
    (
        "sync_proxy_rules_last_queued_timestamp_seconds",
        "gauge",
        "ip_family",
        true,
    ),
    (
        "sync_proxy_rules_last_timestamp_seconds",
        "gauge",
        "ip_family",
        true,
    ),
    (
        "sync_proxy_rules_nftables_cleanup_failures_total",
        "counter",
        "ip_family",
        false,
    ),
    (
        "sync_proxy_rules_nftables_sync_failures_total",
        "counter",
        "ip_family",
        true,
    ),
    (
        "sync_proxy_rules_no_local_endpoints_total",
        "gauge",
        "ip_family,traffic_policy",
        true,
    ),
    (
        "sync_proxy_rules_service_changes_pending",
        "gauge",
        "",
        true,
    ),
    (
        "sync_proxy_rules_service_changes_total",
        "counter",
        "",
        true,
    ),
];

/// The samples of a text, and the types by name.
fn read(text: &str) -> (Vec<(String, String)>, BTreeMap<String, String>) {
    let types = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let types = types
        .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
        .collect();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let samples = samples.filter_map(|line| line.rsplit_once(' '));
    (
        samples
            .map(|(series, value)| (series.to_owned(), value.to_owned()))
            .collect(),
        types,
    )
}

/// All metrics of a node, and their text.
struct Metrics {
    registry: Registry,
    node: NodeMetrics,
}

impl Metrics {
    fn with_examples() -> Self {
        let metrics = metrics();
        metrics.node.count_examples();
        metrics
    }

    fn count(&self, metric: &Metric) {
        self.node.count(metric);
    }

    fn text(&self) -> String {
        let mut text = String::new();
        prometheus_text::encode(&mut text, &self.registry).unwrap();
        text
    }
}

fn metrics() -> Metrics {
    let mut registry = Registry::default();
    let mut node = NodeMetrics::register(registry.sub_registry_with_prefix("contiv"));
    node.add_kube_proxy("nftables", &mut registry);
    Metrics { registry, node }
}

fn value(metrics: &Metrics, series: &str) -> Option<f64> {
    let (samples, _) = read(&metrics.text());
    samples
        .iter()
        .find(|(known, _)| known == series)
        .map(|(_, value)| value.parse().unwrap())
}

#[test]
fn names_types_and_labels_are_those_that_kubernetes_documents() {
    let text = Metrics::with_examples().text();
    let (samples, types) = read(&text);
    let is_ours = |name: &&String| name.starts_with("kubeproxy_");
    let there: Vec<&String> = types.keys().filter(is_ours).collect();
    let expected = DOCUMENTED.iter().filter(|(.., is_here)| *is_here);
    let expected: Vec<String> = expected
        .map(|(name, ..)| format!("kubeproxy_{name}"))
        .collect();
    assert_eq!(there, expected.iter().collect::<Vec<_>>(), "{text}");
    for (name, kind, labels, _) in DOCUMENTED.iter().filter(|(.., is_here)| *is_here) {
        assert_eq!(&types[&format!("kubeproxy_{name}")], kind, "{name}");
        let name = format!(
            "kubeproxy_{name}{}",
            if *kind == "histogram" { "_count" } else { "" }
        );
        let of_metric = samples
            .iter()
            .filter_map(|(series, _)| series.strip_prefix(&name));
        let of_metric: Vec<&str> = of_metric
            .filter(|rest| rest.is_empty() || rest.starts_with('{'))
            .collect();
        assert!(!of_metric.is_empty(), "{name} has no sample in:\n{text}");
        for rest in of_metric {
            let pairs = rest
                .trim_matches(['{', '}'])
                .split(',')
                .filter(|pair| !pair.is_empty());
            let mut names: Vec<&str> = pairs
                .filter_map(|pair| Some(pair.split_once('=')?.0))
                .collect();
            names.sort_unstable();
            assert_eq!(names.join(","), *labels, "{name}");
        }
    }
}

#[test]
fn buckets_are_those_of_kube_proxy() {
    let (samples, _) = read(&Metrics::with_examples().text());
    let buckets = |name: &str| -> Vec<f64> {
        let start = format!("kubeproxy_{name}_bucket{{");
        let of_family = |series: &&(String, String)| {
            series.0.starts_with(&start) && series.0.contains("ip_family=\"IPv4\"")
        };
        let bound = |series: &(String, String)| {
            let bound = series
                .0
                .split_once("le=\"")
                .unwrap()
                .1
                .split_once('"')
                .unwrap()
                .0;
            if bound == "+Inf" {
                f64::INFINITY
            } else {
                bound.parse().unwrap()
            }
        };
        samples.iter().filter(of_family).map(bound).collect()
    };
    let doubled: Vec<f64> = (0..15)
        .map(|power| 0.001 * f64::from(1 << power))
        .chain([f64::INFINITY])
        .collect();
    for name in [
        "sync_proxy_rules_duration_seconds",
        "sync_full_proxy_rules_duration_seconds",
        "sync_partial_proxy_rules_duration_seconds",
        "conntrack_reconciler_sync_duration_seconds",
    ] {
        assert_eq!(buckets(name), doubled, "{name}");
    }
    let programming = buckets("network_programming_duration_seconds");
    assert_eq!(programming.len(), 81, "80 and infinity");
    assert_eq!(programming[..4], [0.25, 0.5, 1.0, 2.0]);
    assert_eq!(programming[59..63], [58.0, 59.0, 60.0, 65.0]);
    assert_eq!(
        programming[71..],
        [
            110.0,
            115.0,
            120.0,
            150.0,
            180.0,
            210.0,
            240.0,
            270.0,
            300.0,
            f64::INFINITY
        ]
    );
}

#[test]
fn call_is_counted_for_its_families_and_one_renderer() {
    let metrics = metrics();
    let ipv4 = Families {
        ipv4: true,
        ipv6: false,
    };
    let full = Extent {
        is_full: true,
        families: Families::ALL,
    };
    let partial = Extent {
        is_full: false,
        families: ipv4,
    };
    metrics.count(&Metric::Applied(
        "nftables".into(),
        Duration::from_millis(3),
        full,
    ));
    metrics.count(&Metric::Applied(
        "nftables".into(),
        Duration::from_millis(1),
        partial,
    ));
    metrics.count(&Metric::Applied(
        "route".into(),
        Duration::from_millis(1),
        partial,
    ));
    metrics.count(&Metric::Failed("nftables".into(), ipv4));
    for since_trigger in [Some(Duration::from_millis(300)), None] {
        metrics.count(&Metric::Programmed {
            renderer: "nftables".into(),
            since_receipt: Some(Duration::ZERO),
            since_trigger,
            families: ipv4,
        });
    }
    for (series, expected) in [
        (
            "sync_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"}",
            Some(2.0),
        ),
        (
            "sync_proxy_rules_duration_seconds_sum{ip_family=\"IPv4\"}",
            Some(0.004),
        ),
        (
            "sync_proxy_rules_duration_seconds_count{ip_family=\"IPv6\"}",
            Some(1.0),
        ),
        (
            "sync_full_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"}",
            Some(1.0),
        ),
        (
            "sync_partial_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"}",
            Some(1.0),
        ),
        (
            "sync_partial_proxy_rules_duration_seconds_count{ip_family=\"IPv6\"}",
            None,
        ),
        (
            "sync_proxy_rules_nftables_sync_failures_total{ip_family=\"IPv4\"}",
            Some(1.0),
        ),
        (
            "sync_proxy_rules_nftables_sync_failures_total{ip_family=\"IPv6\"}",
            Some(0.0),
        ),
        (
            "network_programming_duration_seconds_count{ip_family=\"IPv4\"}",
            Some(1.0),
        ),
        (
            "network_programming_duration_seconds_count{ip_family=\"IPv6\"}",
            None,
        ),
    ] {
        assert_eq!(
            value(&metrics, &format!("kubeproxy_{series}")),
            expected,
            "{series}"
        );
    }
    assert!(
        value(
            &metrics,
            "kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv6\"}"
        ) > Some(1e9)
    );
    let queued = "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family=\"IPv4\"}";
    assert_eq!(value(&metrics, queued), None);
    metrics.count(&Metric::Queued(ipv4));
    assert!(value(&metrics, queued) > Some(1e9));
}
