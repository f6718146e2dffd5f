//! `v1` Pod.

mod container;

use contiv_proto::message::pod as wire;
use serde::{Deserialize, Serialize};

use super::{annotation, check::Check, conversion::Manifest, metadata::Metadata};
use container::Container;

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Pod {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(skip_serializing_if = "String::is_empty")]
    node_name: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    host_network: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    containers: Vec<Container>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    #[serde(skip_serializing_if = "String::is_empty")]
    phase: String,
    #[serde(rename = "hostIP", skip_serializing_if = "String::is_empty")]
    host_ip: String,
    #[serde(rename = "podIP", skip_serializing_if = "String::is_empty")]
    pod_ip: String,
    #[serde(rename = "podIPs", skip_serializing_if = "Vec::is_empty")]
    pod_ips: Vec<PodIp>,
}

#[derive(Debug, Deserialize, Serialize)]
struct PodIp {
    ip: String,
}

impl Manifest for Pod {
    type Message = wire::Pod;

    fn metadata(&mut self) -> &mut Metadata {
        &mut self.metadata
    }

    fn into_message(self, check: &mut Check) -> wire::Pod {
        let Self {
            metadata,
            spec,
            status,
        } = self;
        annotation::check_pod(&metadata.annotations, check);
        if !status.host_ip.is_empty() {
            check.address(format_args!("status.hostIP"), &status.host_ip);
        }
        let ip_addresses = addresses(&status.pod_ip, status.pod_ips, check);
        let container = |(i, container): (usize, Container)| container.into_message(i, check);
        let container = spec
            .containers
            .into_iter()
            .enumerate()
            .map(container)
            .collect();
        wire::Pod {
            name: metadata.name,
            namespace: metadata.namespace,
            // The deprecated duplicate of `labels` is not written.
            label: Vec::new(),
            labels: metadata.labels,
            annotations: metadata.annotations,
            ip_address: ip_addresses.first().cloned().unwrap_or_default(),
            ip_addresses,
            host_ip_address: status.host_ip,
            container,
            node_name: spec.node_name,
            host_network: spec.host_network,
            phase: status.phase,
        }
    }

    fn from_message(message: &wire::Pod) -> Self {
        let message = message.clone();
        let mut labels = message.labels;
        for label in message.label {
            labels.entry(label.key).or_insert(label.value);
        }
        Self {
            metadata: Metadata {
                labels,
                annotations: message.annotations,
                ..Metadata::named(&message.name, &message.namespace)
            },
            spec: Spec {
                node_name: message.node_name,
                host_network: message.host_network,
                containers: message
                    .container
                    .into_iter()
                    .map(Container::from_message)
                    .collect(),
            },
            status: Status {
                phase: message.phase,
                host_ip: message.host_ip_address,
                pod_ip: message.ip_address,
                pod_ips: message
                    .ip_addresses
                    .into_iter()
                    .map(|ip| PodIp { ip })
                    .collect(),
            },
        }
    }
}

/// All addresses of a pod. A single one may be given as `podIP` only.
fn addresses(pod_ip: &str, pod_ips: Vec<PodIp>, check: &mut Check) -> Vec<String> {
    let mut addresses: Vec<String> = pod_ips.into_iter().map(|address| address.ip).collect();
    match addresses.first() {
        None if !pod_ip.is_empty() => {
            check.address(format_args!("status.podIP"), pod_ip);
            addresses.push(pod_ip.to_owned());
        }
        Some(first) if !pod_ip.is_empty() && first != pod_ip => {
            let reason = format!("{first:?} is not status.podIP, {pod_ip:?}");
            check.refuse(format_args!("status.podIPs[0].ip"), reason);
        }
        _ => {
            for (i, address) in addresses.iter().enumerate() {
                check.address(format_args!("status.podIPs[{i}].ip"), address);
            }
        }
    }
    addresses
}
