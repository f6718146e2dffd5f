//! `workload.linkerd.io/v1beta1` `ExternalWorkload`. The rules are those of linkerd's custom resource definition.

mod condition;

use std::collections::BTreeMap;

use contiv_proto::message::externalworkload as wire;
use serde::{Deserialize, Serialize};

use super::{check::Check, conversion::Manifest, metadata::Metadata, port::Port};
use condition::Condition;

/// The maximum number of addresses: one per family.
const MAX_ADDRESSES: usize = 2;

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct ExternalWorkload {
    metadata: Metadata,
    spec: Spec,
    #[serde(skip_serializing_if = "Status::is_empty")]
    status: Status,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(rename = "meshTLS", skip_serializing_if = "Option::is_none")]
    mesh_tls: Option<MeshTls>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ports: Vec<Port>,
    #[serde(rename = "workloadIPs", skip_serializing_if = "Vec::is_empty")]
    workload_ips: Vec<WorkloadIp>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct MeshTls {
    identity: String,
    server_name: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct WorkloadIp {
    ip: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Status {
    conditions: Vec<Condition>,
}

impl Status {
    fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }
}

impl Manifest for ExternalWorkload {
    type Message = wire::ExternalWorkload;

    fn metadata(&mut self) -> &mut Metadata {
        &mut self.metadata
    }

    fn into_message(self, check: &mut Check) -> wire::ExternalWorkload {
        let Self {
            metadata,
            spec,
            status,
        } = self;
        match &spec.mesh_tls {
            None => check.refuse(
                format_args!("spec.meshTLS"),
                "missing; expected identity and serverName",
            ),
            Some(mesh_tls) => {
                check_identity(
                    format_args!("spec.meshTLS.identity"),
                    &mesh_tls.identity,
                    check,
                );
                check_identity(
                    format_args!("spec.meshTLS.serverName"),
                    &mesh_tls.server_name,
                    check,
                );
            }
        }
        if spec.workload_ips.len() > MAX_ADDRESSES {
            let reason = format!(
                "{} addresses; {MAX_ADDRESSES} are allowed",
                spec.workload_ips.len()
            );
            check.refuse(format_args!("spec.workloadIPs"), reason);
        }
        for (i, address) in spec.workload_ips.iter().enumerate() {
            check.routable_address(format_args!("spec.workloadIPs[{i}].ip"), &address.ip);
        }
        let ports = ports(spec.ports, check);
        let condition = |(i, condition): (usize, Condition)| condition.into_message(i, check);
        wire::ExternalWorkload {
            conditions: status
                .conditions
                .into_iter()
                .enumerate()
                .map(condition)
                .collect(),
            creation_timestamp: metadata.created(check),
            name: metadata.name,
            namespace: metadata.namespace,
            mesh_tls: spec.mesh_tls.map(
                |MeshTls {
                     identity,
                     server_name,
                 }| {
                    wire::external_workload::MeshTls {
                        identity,
                        server_name,
                    }
                },
            ),
            ports,
            workload_ips: spec
                .workload_ips
                .into_iter()
                .map(|address| address.ip)
                .collect(),
            labels: metadata.labels,
            annotations: metadata.annotations,
        }
    }

    fn from_message(message: &wire::ExternalWorkload) -> Self {
        let message = message.clone();
        let port = |wire::external_workload::Port {
                        name,
                        port,
                        protocol,
                    }| Port::new(name, port, protocol);
        Self {
            status: Status {
                conditions: message
                    .conditions
                    .into_iter()
                    .map(Condition::from_message)
                    .collect(),
            },
            metadata: Metadata {
                labels: message.labels,
                annotations: message.annotations,
                ..Metadata::created_at(message.creation_timestamp, message.name, message.namespace)
            },
            spec: Spec {
                mesh_tls: message.mesh_tls.map(
                    |wire::external_workload::MeshTls {
                         identity,
                         server_name,
                     }| MeshTls {
                        identity,
                        server_name,
                    },
                ),
                ports: message.ports.into_iter().map(port).collect(),
                workload_ips: message
                    .workload_ips
                    .into_iter()
                    .map(|ip| WorkloadIp { ip })
                    .collect(),
            },
        }
    }
}

fn check_identity(field: std::fmt::Arguments<'_>, text: &str, check: &mut Check) {
    match text.chars().count() {
        0 => check.refuse(field, "missing; expected 1 to 253 characters"),
        1..=253 => {}
        length => check.refuse(field, format!("{length} characters long; 253 are allowed")),
    }
}

fn ports(ports: Vec<Port>, check: &mut Check) -> Vec<wire::external_workload::Port> {
    let mut names = BTreeMap::new();
    for (i, port) in ports
        .iter()
        .enumerate()
        .filter(|(_, port)| !port.name.is_empty())
    {
        let field = format_args!("spec.ports[{i}].name");
        if !is_service_name(&port.name) {
            check.refuse(
                field,
                format!(
                    "{:?} is not the name of a port: up to 15 small letters, digits and hyphens, with a letter, \
                     no hyphen at an end and no two together",
                    port.name
                ),
            );
        } else if let Some(first) = names.insert(&port.name, i) {
            check.refuse(
                field,
                format!("{:?} is the name of spec.ports[{first}] too", port.name),
            );
        }
    }
    let port = |(i, port): (usize, Port)| {
        let (name, port, protocol) = port.into_parts(format_args!("spec.ports[{i}]"), check);
        wire::external_workload::Port {
            name,
            port,
            protocol,
        }
    };
    ports.into_iter().enumerate().map(port).collect()
}

/// RFC 6335, section 5.1: `IANA_SVC_NAME` of Kubernetes.
fn is_service_name(name: &str) -> bool {
    let of_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    name.len() <= 15
        && name.chars().all(of_allowed)
        && name.contains(|c: char| c.is_ascii_lowercase())
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--")
}
