//! `v1` Service.

mod check;
mod port;
mod spec;
mod status;

use contiv_proto::message::service as wire;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{annotation, check::Check, conversion::Manifest, metadata::Metadata};
use port::Port;
use spec::{ClientIp, SessionAffinityConfig, Spec};
use status::Status;

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Service {
    metadata: Metadata,
    spec: Spec,
    #[serde(skip_serializing_if = "Status::is_empty")]
    status: Status,
}

/// The API server's default for `sessionAffinityConfig.clientIP.timeoutSeconds`: three hours.
const AFFINITY_TIMEOUT: i64 = 10_800;

/// Warnings of fields that are not stored, and do not belong to a service like this one.
pub(super) fn fields_without_effect(manifest: &Value) -> Vec<(String, String)> {
    let spec = &manifest["spec"];
    let word = |field: &str, default| {
        spec[field]
            .as_str()
            .filter(|it| !it.is_empty())
            .unwrap_or(default)
            .to_owned()
    };
    let (service_type, affinity) = (word("type", "ClusterIP"), word("sessionAffinity", "None"));
    let mut findings = Vec::new();
    if service_type != "LoadBalancer" && !spec["allocateLoadBalancerNodePorts"].is_null() {
        let reason = format!(
            "it has no effect: it is for services of type LoadBalancer, and this one is of type {service_type}"
        );
        findings.push(("spec.allocateLoadBalancerNodePorts".to_owned(), reason));
    }
    if affinity != "ClientIP" && !spec["sessionAffinityConfig"].is_null() {
        let reason = format!(
            "it has no effect: it is for sessionAffinity ClientIP, and that is {affinity} here"
        );
        findings.push(("spec.sessionAffinityConfig".to_owned(), reason));
    }
    findings
}

impl Manifest for Service {
    type Message = wire::Service;

    fn metadata(&mut self) -> &mut Metadata {
        &mut self.metadata
    }

    fn into_message(self, check: &mut Check) -> wire::Service {
        let Self {
            metadata,
            mut spec,
            status,
        } = self;
        spec.fill_in();
        spec.check(check);
        annotation::check_service(&metadata.annotations, check);
        let port = spec
            .ports
            .into_iter()
            .enumerate()
            .map(|(i, port)| port.into_message(i, check))
            .collect();
        let session_affinity_timeout = match spec.session_affinity.as_str() {
            "ClientIP" => {
                let given = spec
                    .session_affinity_config
                    .and_then(|config| config.client_ip.timeout_seconds);
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
                    client_ip: ClientIp {
                        timeout_seconds: Some(timeout),
                    },
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
