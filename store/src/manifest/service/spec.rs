//! A Service's `spec`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::port::{Port, is_zero};

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Spec {
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub(super) service_type: String,
    #[serde(rename = "clusterIP", skip_serializing_if = "String::is_empty")]
    pub(super) cluster_ip: String,
    #[serde(rename = "clusterIPs", skip_serializing_if = "Vec::is_empty")]
    pub(super) cluster_ips: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) ip_families: Vec<String>,
    #[serde(rename = "externalIPs", skip_serializing_if = "Vec::is_empty")]
    pub(super) external_ips: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) ports: Vec<Port>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) selector: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) session_affinity: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session_affinity_config: Option<SessionAffinityConfig>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) external_traffic_policy: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) internal_traffic_policy: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) external_name: String,
    #[serde(rename = "loadBalancerIP", skip_serializing_if = "String::is_empty")]
    pub(super) load_balancer_ip: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) load_balancer_source_ranges: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) load_balancer_class: String,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) health_check_node_port: i64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) publish_not_ready_addresses: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) traffic_distribution: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SessionAffinityConfig {
    #[serde(rename = "clientIP")]
    pub(super) client_ip: ClientIp,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ClientIp {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timeout_seconds: Option<i64>,
}
