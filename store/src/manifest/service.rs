//! `v1` Service.

mod check;
mod port;
mod status;

use std::collections::BTreeMap;

use contiv_proto::message::service as wire;
use serde::{Deserialize, Serialize};

use super::{annotation, check::Check, metadata::Metadata, object::Manifest};
use port::Port;
use status::Status;

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Service {
    metadata: Metadata,
    spec: Spec,
    #[serde(skip_serializing_if = "Status::is_empty")]
    status: Status,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    service_type: String,
    #[serde(rename = "clusterIP", skip_serializing_if = "String::is_empty")]
    cluster_ip: String,
    #[serde(rename = "clusterIPs", skip_serializing_if = "Vec::is_empty")]
    cluster_ips: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ip_families: Vec<String>,
    #[serde(rename = "externalIPs", skip_serializing_if = "Vec::is_empty")]
    external_ips: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ports: Vec<Port>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    selector: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    session_affinity: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_affinity_config: Option<SessionAffinityConfig>,
    #[serde(skip_serializing_if = "String::is_empty")]
    external_traffic_policy: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    internal_traffic_policy: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    external_name: String,
    #[serde(rename = "loadBalancerIP", skip_serializing_if = "String::is_empty")]
    load_balancer_ip: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    load_balancer_source_ranges: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    load_balancer_class: String,
    #[serde(skip_serializing_if = "is_zero")]
    health_check_node_port: i64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    publish_not_ready_addresses: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    traffic_distribution: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct SessionAffinityConfig {
    #[serde(rename = "clientIP")]
    client_ip: ClientIp,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct ClientIp {
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_seconds: Option<i64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// The API server's default for `sessionAffinityConfig.clientIP.timeoutSeconds`: three hours.
const AFFINITY_TIMEOUT: i64 = 10_800;

impl Manifest for Service {
    type Message = wire::Service;

    fn metadata(&mut self) -> &mut Metadata {
        &mut self.metadata
    }

    fn into_message(self, check: &mut Check) -> wire::Service {
        let Self { metadata, mut spec, status } = self;
        spec.fill_in();
        spec.check(check);
        annotation::check_service(&metadata.annotations, check);
        let port = spec.ports.into_iter().enumerate().map(|(i, port)| port.into_message(i, check)).collect();
        let session_affinity_timeout = match spec.session_affinity.as_str() {
            "ClientIP" => {
                let given = spec.session_affinity_config.and_then(|config| config.client_ip.timeout_seconds);
                let field = format_args!("spec.sessionAffinityConfig.clientIP.timeoutSeconds");
                let seconds = check.number(field, given.unwrap_or(AFFINITY_TIMEOUT), 1, 86_400);
                seconds.unsigned_abs()
            }
            _ => 0,
        };
        let field = format_args!("spec.healthCheckNodePort");
        let health_check_node_port = check.optional_port(field, spec.health_check_node_port);
        wire::Service {
            creation_timestamp: metadata.created(check),
            name: metadata.name,
            namespace: metadata.namespace,
            labels: metadata.labels,
            annotations: metadata.annotations,
            port,
            selector: spec.selector,
            cluster_ip: spec.cluster_ip,
            cluster_ips: spec.cluster_ips,
            service_type: spec.service_type,
            external_ips: spec.external_ips,
            // `load_balancer_ingress` replaces it.
            lb_ingress_ips: Vec::new(),
            load_balancer_ingress: status.into_message(check),
            session_affinity: spec.session_affinity,
            session_affinity_timeout,
            loadbalancer_ip: spec.load_balancer_ip,
            loadbalancer_source_ranges: spec.load_balancer_source_ranges,
            load_balancer_class: spec.load_balancer_class,
            external_traffic_policy: spec.external_traffic_policy,
            internal_traffic_policy: spec.internal_traffic_policy,
            health_check_node_port,
            publish_not_ready_addresses: spec.publish_not_ready_addresses,
            external_name: spec.external_name,
            traffic_distribution: spec.traffic_distribution,
            ip_families: spec.ip_families,
        }
    }

    fn from_message(message: &wire::Service) -> Self {
        let message = message.clone();
        let timeout = i64::from(message.session_affinity_timeout);
        Self {
            status: Status::from_message(&message),
            metadata: Metadata {
                labels: message.labels,
                annotations: message.annotations,
                ..Metadata::created_at(message.creation_timestamp, message.name, message.namespace)
            },
            spec: Spec {
                service_type: message.service_type,
                cluster_ip: message.cluster_ip,
                cluster_ips: message.cluster_ips,
                external_ips: message.external_ips,
                ports: message.port.into_iter().map(Port::from_message).collect(),
                selector: message.selector,
                session_affinity: message.session_affinity,
                session_affinity_config: (timeout != 0).then_some(SessionAffinityConfig {
                    client_ip: ClientIp { timeout_seconds: Some(timeout) },
                }),
                external_traffic_policy: message.external_traffic_policy,
                internal_traffic_policy: message.internal_traffic_policy,
                external_name: message.external_name,
                load_balancer_ip: message.loadbalancer_ip,
                load_balancer_source_ranges: message.loadbalancer_source_ranges,
                load_balancer_class: message.load_balancer_class,
                health_check_node_port: i64::from(message.health_check_node_port),
                publish_not_ready_addresses: message.publish_not_ready_addresses,
                traffic_distribution: message.traffic_distribution,
                ip_families: message.ip_families,
            },
        }
    }
}
