//! Default values.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use contiv_model::{FailoverMode, LocalDetect, NodePortAddresses};
use contiv_renderer::route::{AddressKind, RouteOptions};
use contiv_store::{StoreUrl, manifest::Links};

use super::{Config, NexthopGrouping, OptionalAddress, RendererName};
use crate::logging::LogFormat;

impl Default for Config {
    /// All defaults are defined here.
    fn default() -> Self {
        let route = RouteOptions::default();
        Self {
            node_name: String::new(),
            store: StoreUrl::Dir {
                path: PathBuf::from("/etc/contiv/manifests"),
                links: Links::Inside,
            },
            etcd_ca_file: PathBuf::new(),
            etcd_cert_file: PathBuf::new(),
            etcd_key_file: PathBuf::new(),
            etcd_user: String::new(),
            etcd_password_file: PathBuf::new(),
            renderers: vec![RendererName::NFTABLES],
            own_table: true,
            route_advertise: AddressKind::ALL
                .into_iter()
                .filter(|kind| route.advertise.contains(*kind))
                .collect(),
            route_advertise_table: route.advertise_table,
            route_withdraw_on_stop: false,
            route_reach_from_node: route.reach_from_node,
            route_node_table: route.node_table,
            route_direct: false,
            route_direct_table: route.direct.table,
            route_nexthops: NexthopGrouping::Resilient,
            route_nexthop_idle: Duration::from_secs(120),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 9999)),
            healthz_listen: OptionalAddress(None),
            metrics_listen: OptionalAddress(None),
            metrics_cert_file: PathBuf::new(),
            metrics_key_file: PathBuf::new(),
            metrics_token_file: PathBuf::new(),
            metrics_token_review: false,
            kube_proxy_metrics: false,
            state_dir: PathBuf::from("/var/lib/contiv"),
            log_format: LogFormat::Text,
            log_level: "info".to_owned(),
            node_ips: Vec::new(),
            node_port_addresses: vec![NodePortAddresses::Primary],
            node_ports_on_loopback: false,
            external_interfaces: Vec::new(),
            service_interfaces: Vec::new(),
            local_detect: LocalDetect::PodCidrs,
            masquerade_all: false,
            masquerade_egress: false,
            non_masquerade_cidrs: Vec::new(),
            pod_cidrs: Vec::new(),
            service_cidrs: Vec::new(),
            service_proxy_name: String::new(),
            zone: String::new(),
            local_endpoint_weight: 1,
            contiv_local_policy: false,
            source_ranges_on_node_ports: false,
            mass_deletion_percent: 50,
            mass_deletion_wait: Duration::from_secs(60),
            service_counters: 0,
            failover: FailoverMode::Off,
            failover_answer_within: Duration::from_secs(1),
            self_check: false,
            verify_interval: Duration::ZERO,
            verify_heal: true,
            history_events: 1000,
            history_age: Duration::from_secs(24 * 60 * 60),
            history_bytes: 8 << 20,
            otlp_endpoint: String::new(),
            otlp_flows: false,
        }
    }
}
