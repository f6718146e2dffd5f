//! Validation of values that have the right form.

use std::path::PathBuf;

use axum::http::Uri;
use contiv_model::{LocalDetect, NodePortAddresses};
use contiv_store::{StoreUrl, kube::KubeAddress, url::without_password};

use super::{Config, etcd};

/// The problems of values that each have the right form.
pub(crate) fn problems(config: &Config) -> Vec<String> {
    let mut problems = Vec::new();
    if config.renderers.is_empty() {
        problems.push(format!(
            "renderers: name at least one of {}",
            contiv_renderer::registry::NAMES.join(", ")
        ));
    }
    for (position, name) in config.renderers.iter().enumerate() {
        if config.renderers[..position].contains(name) {
            problems.push(format!("renderers: {name} is named twice; name it once"));
        }
    }
    problems.extend(etcd::problems(&config.store, &config.etcd_access()));
    if config.local_endpoint_weight == 0 {
        problems.push("local-endpoint-weight: 0 would send nothing; the least is 1".to_owned());
    }
    if config.state_dir.as_os_str().is_empty() {
        problems.push(format!(
            "state-dir: empty; name a folder, as in {}",
            Config::default().state_dir.display()
        ));
    }
    // Beside others kube-proxy leaves loopback out, and so does the processor. Alone it would leave no node ports.
    if config
        .node_port_addresses
        .iter()
        .all(NodePortAddresses::is_loopback)
    {
        let only = |range| {
            format!(
                "node-port-addresses: {range} is loopback; use node-ports-on-loopback for that, and name others"
            )
        };
        problems.extend(config.node_port_addresses.iter().map(only));
    }
    for range in config
        .service_cidrs
        .iter()
        .filter(|range| range.ip() != range.network())
    {
        let network = range.network();
        problems.push(format!(
            "service-cidrs: {range} has bits beyond its prefix; write {network}/{}",
            range.prefix()
        ));
    }
    problems.extend(problems_of_cluster(config));
    if config.healthz_listen.0 == Some(config.listen) && config.listen.port() != 0 {
        problems.push(
            "healthz-listen: the debug HTTP has that address; choose another port".to_owned(),
        );
    }
    problems.extend(problems_of_metrics(config));
    if config.mass_deletion_percent > 100 {
        problems.push(
            "mass-deletion-percent: the most is 100, which holds nothing; 0 turns it off"
                .to_owned(),
        );
    }
    if (1..1000).contains(&config.verify_interval.as_millis()) {
        problems.push("verify-interval: the least is 1s; 0s turns it off".to_owned());
    }
    if !(100..=10_000).contains(&config.failover_answer_within.as_millis()) {
        problems.push("failover-answer-within: the least is 100ms, the most 10s".to_owned());
    }
    // Source: the kernel's `rt_class_t` in `include/uapi/linux/rtnetlink.h`.
    for (key, table) in [
        ("route-advertise-table", config.route_advertise_table),
        ("route-node-table", config.route_node_table),
        ("route-direct-table", config.route_direct_table),
    ] {
        if matches!(table, 0 | 253..=255) {
            problems.push(format!(
                "{key}: {table} is a table of the system; choose an unused one"
            ));
        }
    }
    if config.route_advertise_table == config.route_node_table {
        problems.push(
            "route-node-table: the same as route-advertise-table; the kernel would route by it"
                .to_owned(),
        );
    }
    if [config.route_advertise_table, config.route_node_table].contains(&config.route_direct_table)
    {
        problems.push(
            "route-direct-table: the same as one of the other two; each kind of route needs its own"
                .to_owned(),
        );
    }
    // The kernel stores hundredths of a second in 32 bits.
    if !(1..=u64::from(u32::MAX / 100)).contains(&config.route_nexthop_idle.as_secs()) {
        problems.push("route-nexthop-idle: the least is 1s, the most 497 days".to_owned());
    }
    if config.history_events == 0 {
        problems.push("history-events: the least is 1".to_owned());
    }
    if !cfg!(feature = "otlp") && !config.otlp_endpoint.is_empty() {
        problems.push(
            "otlp-endpoint: this contiv was built without the cargo feature otlp; take a build with it, or leave this out"
                .to_owned(),
        );
    } else if !config.otlp_endpoint.is_empty() && !is_http(&config.otlp_endpoint) {
        problems.push(format!(
            "otlp-endpoint: {:?} is not the URL of a collector; as in http://127.0.0.1:4318, without a password \
             (OTEL_EXPORTER_OTLP_HEADERS can hold one)",
            without_password(&config.otlp_endpoint)
        ));
    }
    if let Err(error) = crate::logging::filter(&config.log_level) {
        problems.push(format!(
            "log-level: {error}; use a level such as info, or info,contiv_store=debug"
        ));
    }
    problems
}

/// The problems of the settings `metrics-…`. Where no metrics are served for scrapers, the others are ignored.
fn problems_of_metrics(config: &Config) -> Vec<String> {
    let Some(listen) = config.metrics_address() else {
        return Vec::new();
    };
    let mut problems = Vec::new();
    let others = [
        ("the debug HTTP", Some(config.listen)),
        ("healthz-listen", config.healthz_listen.0),
    ];
    for (what, _) in others
        .iter()
        .filter(|(_, other)| *other == Some(listen) && listen.port() != 0)
    {
        problems.push(format!(
            "metrics-listen: {what} has that address; choose another port"
        ));
    }
    if !config.has_own_metrics_address() {
        return problems;
    }
    let is_set = |path: &PathBuf| !path.as_os_str().is_empty();
    let pair = [
        ("cert", is_set(&config.metrics_cert_file)),
        ("key", is_set(&config.metrics_key_file)),
    ];
    if let [(there, true), (missing, false)] | [(missing, false), (there, true)] = pair {
        problems.push(format!(
            "metrics-{there}-file: it is of no use without metrics-{missing}-file; set both or none"
        ));
    }
    problems
}

fn problems_of_cluster(config: &Config) -> Vec<String> {
    let mut problems = Vec::new();
    if config.masquerade_egress && config.local_detect == LocalDetect::None {
        problems.push(
            "masquerade-egress: local-detect = \"none\" cannot tell pods from others; choose another local-detect, or leave this out"
                .to_owned(),
        );
    }
    let reads_own_node = match &config.store {
        StoreUrl::Kube(KubeAddress { scope, .. }) | StoreUrl::Etcd { scope, .. } => !scope.nodes,
        StoreUrl::Dir { .. } => false,
    };
    if reads_own_node
        && config
            .node_port_addresses
            .contains(&NodePortAddresses::Cluster)
    {
        problems.push(format!(
            "node-port-addresses: for `cluster` the store {} has this node only; add nodes=all to it",
            config.store
        ));
    }
    if config.masquerade_egress && reads_own_node && config.non_masquerade_cidrs.is_empty() {
        problems.push(format!(
            "masquerade-egress: the store {} has this node only, and the pods of others would count as external; add nodes=all to \
             it, or name the ranges of the cluster in non-masquerade-cidrs",
            config.store
        ));
    }
    problems
}

fn is_http(url: &str) -> bool {
    let uri: Option<Uri> = url.parse().ok();
    let Some(uri) = uri else { return false };
    // A password would be visible wherever the configuration is. After a slash it is not part of the authority.
    let has_password = url.contains('@');
    matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some() && !has_password
}
