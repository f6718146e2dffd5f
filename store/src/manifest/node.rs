//! `v1` Node.

mod status;

use contiv_proto::message::node as wire;
use serde::{Deserialize, Serialize};

use super::{
    check::Check,
    conversion::Manifest,
    metadata::{self, Metadata},
};
use status::Status;

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Node {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(rename = "podCIDR", skip_serializing_if = "String::is_empty")]
    pod_cidr: String,
    #[serde(rename = "podCIDRs", skip_serializing_if = "Vec::is_empty")]
    pod_cidrs: Vec<String>,
    #[serde(rename = "providerID", skip_serializing_if = "String::is_empty")]
    provider_id: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    taints: Vec<Taint>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Taint {
    key: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    value: String,
    effect: String,
}

impl Manifest for Node {
    type Message = wire::Node;

    fn metadata(&mut self) -> &mut Metadata {
        &mut self.metadata
    }

    fn into_message(self, check: &mut Check) -> wire::Node {
        let Self {
            metadata,
            mut spec,
            status,
        } = self;
        match spec.pod_cidrs.first() {
            None if !spec.pod_cidr.is_empty() => {
                check.network(format_args!("spec.podCIDR"), &spec.pod_cidr);
                spec.pod_cidrs.push(spec.pod_cidr.clone());
            }
            Some(first) if !spec.pod_cidr.is_empty() && *first != spec.pod_cidr => {
                let reason = format!("{first:?} is not spec.podCIDR, {:?}", spec.pod_cidr);
                check.refuse(format_args!("spec.podCIDRs[0]"), reason);
            }
            _ => {
                for (i, range) in spec.pod_cidrs.iter().enumerate() {
                    check.network(format_args!("spec.podCIDRs[{i}]"), range);
                }
            }
        }
        let taint = |Taint { key, value, effect }| wire::Taint { key, value, effect };
        wire::Node {
            deletion_timestamp: metadata.deleted(check),
            taints: spec.taints.into_iter().map(taint).collect(),
            name: metadata.name,
            pod_cidr: spec.pod_cidrs.first().cloned().unwrap_or_default(),
            provider_id: spec.provider_id,
            node_info: status.node_info.map(Into::into),
            addresses: status::addresses_to_message(status.addresses, check),
            pod_cidrs: spec.pod_cidrs,
            labels: metadata.labels,
        }
    }

    fn from_message(message: &wire::Node) -> Self {
        let message = message.clone();
        let taint = |wire::Taint { key, value, effect }| Taint { key, value, effect };
        Self {
            metadata: Metadata {
                labels: message.labels,
                deletion_timestamp: metadata::timestamp(message.deletion_timestamp),
                ..Metadata::named(&message.name, "")
            },
            spec: Spec {
                pod_cidr: message.pod_cidr,
                pod_cidrs: message.pod_cidrs,
                provider_id: message.provider_id,
                taints: message.taints.into_iter().map(taint).collect(),
            },
            status: Status {
                addresses: message
                    .addresses
                    .into_iter()
                    .map(status::Address::from_message)
                    .collect(),
                node_info: message.node_info.map(Into::into),
            },
        }
    }
}
