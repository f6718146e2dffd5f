//! The metrics for scrapers of kube-proxy at a running agent, before and after a service changes.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Manifests, Service, State},
    lab::{Lab, Result, isolated, wait_until},
};

/// The time limit for expected events. Generous.
const EVENT_TIMEOUT: Duration = Duration::from_secs(20);
const METRICS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10249);
const HEALTHZ: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10256);

#[test]
fn scrapes_instead_of_kube_proxy_show_a_change() -> Result<()> {
    isolated(
        "metrics::scrapes_instead_of_kube_proxy_show_a_change",
        show_a_change,
    )
}

fn show_a_change(lab: &Lab) -> Result<()> {
    let manifests = Manifests::new(lab)?;
    let web = Service::new("web", 80, &[lab.pod1.host]);
    manifests.put(&web)?;
    // At kube-proxy's address by default.
    let flags = vec![
        format!("--healthz-listen={HEALTHZ}"),
        "--kube-proxy-metrics".to_owned(),
    ];
    let agent = Agent::start(
        lab,
        &AgentOptions {
            flags,
            ..AgentOptions::with_store(manifests.url())
        },
    )?;
    assert_eq!(
        lab.node.http("GET", METRICS, "/services")?.status,
        404,
        "only metrics are there"
    );
    for (path, expected) in [("/proxyMode", "nftables"), ("/healthz", "ok")] {
        let response = lab.node.http("GET", METRICS, path)?;
        assert_eq!(
            (response.status, response.body.as_str()),
            (200, expected),
            "{path}"
        );
    }
    lab.node.http("GET", HEALTHZ, "/healthz")?;
    let before = scrape(lab)?;
    let (ipv4, full) = (
        "{ip_family=\"IPv4\"}",
        "sync_full_proxy_rules_duration_seconds_count",
    );
    assert_eq!(value(&before, full, ipv4), Some(1.0), "the first snapshot");
    assert_eq!(
        value(
            &before,
            "sync_partial_proxy_rules_duration_seconds_count",
            ipv4
        ),
        None
    );
    assert_eq!(
        value(&before, "proxy_healthz_total", "{code=\"200\"}"),
        Some(1.0)
    );
    assert_eq!(
        value(
            &before,
            "sync_proxy_rules_nftables_sync_failures_total",
            ipv4
        ),
        Some(0.0)
    );
    assert!(value(&before, "sync_proxy_rules_service_changes_total", "") >= Some(1.0));
    for name in [
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_open_fds",
    ] {
        assert!(before[name] > 0.0, "{name}");
    }

    let moved = Service {
        backends: vec![lab.pod3.host],
        ..web
    };
    manifests.put(&moved)?;
    agent.wait_until_applied(&moved)?;
    let after = scrape(lab)?;
    let grown =
        |name: &str, labels: &str| value(&after, name, labels) > value(&before, name, labels);
    for family in [ipv4, "{ip_family=\"IPv6\"}"] {
        for name in [
            "sync_proxy_rules_duration_seconds_count",
            "sync_partial_proxy_rules_duration_seconds_count",
            "sync_proxy_rules_last_timestamp_seconds",
            "sync_proxy_rules_last_queued_timestamp_seconds",
        ] {
            assert!(grown(name, family), "{name}{family}: {after:#?}");
        }
        assert_eq!(value(&after, full, family), value(&before, full, family));
    }
    assert!(
        grown("sync_proxy_rules_endpoint_changes_total", ""),
        "{after:#?}"
    );
    for kind in ["service", "endpoint"] {
        let pending = format!("sync_proxy_rules_{kind}_changes_pending");
        assert_eq!(value(&after, &pending, ""), Some(0.0), "{kind}");
    }
    // The search runs later, on a separate thread.
    wait_until(
        "flows to the backend that is gone are searched for",
        EVENT_TIMEOUT,
        || {
            let name = "conntrack_reconciler_sync_duration_seconds_count";
            scrape(lab).is_ok_and(|now| value(&now, name, ipv4) > value(&before, name, ipv4))
        },
    )?;
    agent.stop().map(drop)
}

/// All samples, by name and labels.
fn scrape(lab: &Lab) -> Result<BTreeMap<String, f64>> {
    let response = lab.node.http("GET", METRICS, "/metrics")?;
    assert_eq!(response.status, 200);
    let samples = response.body.lines().filter(|line| !line.starts_with('#'));
    let samples = samples.filter_map(|line| line.rsplit_once(' '));
    Ok(samples
        .filter_map(|(series, value)| Some((series.to_owned(), value.parse().ok()?)))
        .collect())
}

/// A sample of kube-proxy's.
fn value(samples: &BTreeMap<String, f64>, name: &str, labels: &str) -> Option<f64> {
    samples.get(&format!("kubeproxy_{name}{labels}")).copied()
}
