//! Kubernetes' messages, with the fields that contiv uses: their numbers are those of `generated.proto` in `k8s.io/api`, their names
//! in JSON those of its Go types. All other fields are skipped.

use std::collections::BTreeMap;

use jiff::Timestamp;
use prost::Message;
use serde::{Serialize, Serializer, ser};

/// Begins each object and list.
pub(super) const MAGIC: &[u8] = b"k8s\0";

/// What an object or list says that it is.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TypeMeta {
    #[prost(string, tag = "2")]
    pub(super) kind: String,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectMeta {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "3")]
    namespace: String,
    #[prost(string, tag = "6")]
    resource_version: String,
    #[prost(message, optional, tag = "8")]
    creation_timestamp: Option<Time>,
    #[prost(message, optional, tag = "9")]
    deletion_timestamp: Option<Time>,
    #[prost(btree_map = "string, string", tag = "11")]
    labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "12")]
    annotations: BTreeMap<String, String>,
}

/// In JSON a text (RFC 3339), and `null` for no time.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Time {
    #[prost(int64, tag = "1")]
    seconds: i64,
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.seconds == 0 {
            return serializer.serialize_none();
        }
        serializer.collect_str(&Timestamp::from_second(self.seconds).map_err(ser::Error::custom)?)
    }
}

/// In JSON a number or a text.
#[derive(Clone, PartialEq, Message)]
pub(super) struct IntOrString {
    /// 0 for a number.
    #[prost(int64, tag = "1")]
    r#type: i64,
    #[prost(int32, tag = "2")]
    int_val: i32,
    #[prost(string, tag = "3")]
    str_val: String,
}

impl Serialize for IntOrString {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.r#type {
            0 => serializer.serialize_i32(self.int_val),
            _ => serializer.serialize_str(&self.str_val),
        }
    }
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub(super) struct Service {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    spec: Option<ServiceSpec>,
    #[prost(message, optional, tag = "3")]
    status: Option<ServiceStatus>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct ServiceSpec {
    #[prost(message, repeated, tag = "1")]
    ports: Vec<ServicePort>,
    #[prost(btree_map = "string, string", tag = "2")]
    selector: BTreeMap<String, String>,
    #[prost(string, tag = "3")]
    #[serde(rename = "clusterIP")]
    cluster_ip: String,
    #[prost(string, tag = "4")]
    r#type: String,
    #[prost(string, repeated, tag = "5")]
    #[serde(rename = "externalIPs")]
    external_ips: Vec<String>,
    #[prost(string, tag = "7")]
    session_affinity: String,
    #[prost(string, tag = "8")]
    #[serde(rename = "loadBalancerIP")]
    load_balancer_ip: String,
    #[prost(string, repeated, tag = "9")]
    load_balancer_source_ranges: Vec<String>,
    #[prost(string, tag = "10")]
    external_name: String,
    #[prost(string, tag = "11")]
    external_traffic_policy: String,
    #[prost(int32, tag = "12")]
    health_check_node_port: i32,
    #[prost(bool, tag = "13")]
    publish_not_ready_addresses: bool,
    #[prost(message, optional, tag = "14")]
    session_affinity_config: Option<SessionAffinityConfig>,
    #[prost(string, repeated, tag = "18")]
    #[serde(rename = "clusterIPs")]
    cluster_ips: Vec<String>,
    #[prost(string, repeated, tag = "19")]
    ip_families: Vec<String>,
    #[prost(string, tag = "21")]
    load_balancer_class: String,
    #[prost(string, tag = "22")]
    internal_traffic_policy: String,
    #[prost(string, tag = "23")]
    traffic_distribution: String,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct ServicePort {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    protocol: String,
    #[prost(int32, tag = "3")]
    port: i32,
    #[prost(message, optional, tag = "4")]
    target_port: Option<IntOrString>,
    #[prost(int32, tag = "5")]
    node_port: i32,
    #[prost(string, tag = "6")]
    app_protocol: String,
}

#[derive(Clone, PartialEq, Message, Serialize)]
struct SessionAffinityConfig {
    #[prost(message, optional, tag = "1")]
    #[serde(rename = "clientIP")]
    client_ip: Option<ClientIpConfig>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct ClientIpConfig {
    #[prost(int32, optional, tag = "1")]
    timeout_seconds: Option<i32>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct ServiceStatus {
    #[prost(message, optional, tag = "1")]
    load_balancer: Option<LoadBalancerStatus>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
struct LoadBalancerStatus {
    #[prost(message, repeated, tag = "1")]
    ingress: Vec<LoadBalancerIngress>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct LoadBalancerIngress {
    #[prost(string, tag = "1")]
    ip: String,
    #[prost(string, tag = "2")]
    hostname: String,
    #[prost(string, tag = "3")]
    ip_mode: String,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EndpointSlice {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, repeated, tag = "2")]
    endpoints: Vec<Endpoint>,
    #[prost(message, repeated, tag = "3")]
    ports: Vec<EndpointPort>,
    #[prost(string, tag = "4")]
    address_type: String,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct Endpoint {
    #[prost(string, repeated, tag = "1")]
    addresses: Vec<String>,
    #[prost(message, optional, tag = "2")]
    conditions: Option<EndpointConditions>,
    #[prost(string, tag = "3")]
    hostname: String,
    #[prost(message, optional, tag = "4")]
    target_ref: Option<ObjectReference>,
    #[prost(string, tag = "6")]
    node_name: String,
    #[prost(string, tag = "7")]
    zone: String,
    #[prost(message, optional, tag = "8")]
    hints: Option<EndpointHints>,
}

#[derive(Clone, Copy, PartialEq, Message, Serialize)]
struct EndpointConditions {
    #[prost(bool, optional, tag = "1")]
    ready: Option<bool>,
    #[prost(bool, optional, tag = "2")]
    serving: Option<bool>,
    #[prost(bool, optional, tag = "3")]
    terminating: Option<bool>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectReference {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(string, tag = "4")]
    uid: String,
    #[prost(string, tag = "5")]
    api_version: String,
    #[prost(string, tag = "6")]
    resource_version: String,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct EndpointHints {
    #[prost(message, repeated, tag = "1")]
    for_zones: Vec<Hint>,
    #[prost(message, repeated, tag = "2")]
    for_nodes: Vec<Hint>,
}

/// A zone, or a node.
#[derive(Clone, PartialEq, Message, Serialize)]
struct Hint {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct EndpointPort {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, tag = "2")]
    protocol: String,
    #[prost(int32, optional, tag = "3")]
    port: Option<i32>,
    #[prost(string, tag = "4")]
    app_protocol: String,
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub(super) struct Node {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    spec: Option<NodeSpec>,
    #[prost(message, optional, tag = "3")]
    status: Option<NodeStatus>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
struct NodeSpec {
    #[prost(string, tag = "1")]
    #[serde(rename = "podCIDR")]
    pod_cidr: String,
    #[prost(string, tag = "3")]
    #[serde(rename = "providerID")]
    provider_id: String,
    #[prost(message, repeated, tag = "5")]
    taints: Vec<Taint>,
    #[prost(string, repeated, tag = "7")]
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Vec<String>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
struct Taint {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
    #[prost(string, tag = "3")]
    effect: String,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeStatus {
    #[prost(message, repeated, tag = "5")]
    addresses: Vec<NodeAddress>,
    #[prost(message, optional, tag = "7")]
    node_info: Option<NodeSystemInfo>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
struct NodeAddress {
    #[prost(string, tag = "1")]
    r#type: String,
    #[prost(string, tag = "2")]
    address: String,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeSystemInfo {
    #[prost(string, tag = "1")]
    #[serde(rename = "machineID")]
    machine_id: String,
    #[prost(string, tag = "2")]
    #[serde(rename = "systemUUID")]
    system_uuid: String,
    #[prost(string, tag = "3")]
    #[serde(rename = "bootID")]
    boot_id: String,
    #[prost(string, tag = "4")]
    kernel_version: String,
    #[prost(string, tag = "5")]
    os_image: String,
    #[prost(string, tag = "6")]
    container_runtime_version: String,
    #[prost(string, tag = "7")]
    kubelet_version: String,
    #[prost(string, tag = "8")]
    kube_proxy_version: String,
    #[prost(string, tag = "9")]
    operating_system: String,
    #[prost(string, tag = "10")]
    architecture: String,
}

/// Why a request failed.
#[derive(Clone, PartialEq, Message, Serialize)]
pub(super) struct Status {
    #[prost(string, tag = "3")]
    message: String,
    #[prost(string, tag = "4")]
    reason: String,
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<StatusDetails>,
    #[prost(int32, tag = "6")]
    code: i32,
}

#[derive(Clone, PartialEq, Message, Serialize)]
struct StatusDetails {
    #[prost(message, repeated, tag = "4")]
    causes: Vec<StatusCause>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
struct StatusCause {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(string, tag = "3")]
    field: String,
}
