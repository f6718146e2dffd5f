//! A Node's `status`: its addresses and system information.

use contiv_proto::message::node as wire;
use serde::{Deserialize, Serialize};

use super::Check;
use wire::node_address::Type;

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Status {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) addresses: Vec<Address>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node_info: Option<NodeInfo>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Address {
    #[serde(rename = "type")]
    address_type: String,
    address: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NodeInfo {
    #[serde(rename = "machineID", skip_serializing_if = "String::is_empty")]
    machine_id: String,
    #[serde(rename = "systemUUID", skip_serializing_if = "String::is_empty")]
    system_uuid: String,
    #[serde(rename = "bootID", skip_serializing_if = "String::is_empty")]
    boot_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    kernel_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    os_image: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    container_runtime_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    kubelet_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    kube_proxy_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    operating_system: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    architecture: String,
}

/// Kubernetes' names of the types of addresses.
const TYPES: [(&str, Type); 5] = [
    ("Hostname", Type::NodeHostName),
    ("ExternalIP", Type::NodeExternalIp),
    ("InternalIP", Type::NodeInternalIp),
    ("ExternalDNS", Type::NodeExternalDns),
    ("InternalDNS", Type::NodeInternalDns),
];

/// The addresses of known types. Kubernetes allows others, and Contiv's reflector drops them too.
pub(super) fn addresses_to_message(
    addresses: Vec<Address>,
    check: &mut Check,
) -> Vec<wire::NodeAddress> {
    let mut known = Vec::new();
    for (
        i,
        Address {
            address_type,
            address,
        },
    ) in addresses.into_iter().enumerate()
    {
        let Some((_, r#type)) = TYPES.into_iter().find(|(word, _)| *word == address_type) else {
            continue;
        };
        if matches!(r#type, Type::NodeExternalIp | Type::NodeInternalIp) {
            check.address(format_args!("status.addresses[{i}].address"), &address);
        }
        known.push(wire::NodeAddress {
            r#type: r#type.into(),
            address,
        });
    }
    known
}

impl Address {
    pub(super) fn from_message(message: wire::NodeAddress) -> Self {
        let word = TYPES
            .into_iter()
            .find(|(_, known)| *known == message.r#type())
            .map_or("", |(word, _)| word);
        Self {
            address_type: word.to_owned(),
            address: message.address,
        }
    }
}

impl From<NodeInfo> for wire::NodeSystemInfo {
    fn from(info: NodeInfo) -> Self {
        Self {
            machine_id: info.machine_id,
            system_uuid: info.system_uuid,
            boot_id: info.boot_id,
            kernel_version: info.kernel_version,
            os_image: info.os_image,
            container_runtime_version: info.container_runtime_version,
            kubelet_version: info.kubelet_version,
            kube_proxy_version: info.kube_proxy_version,
            operating_system: info.operating_system,
            architecture: info.architecture,
        }
    }
}

impl From<wire::NodeSystemInfo> for NodeInfo {
    fn from(info: wire::NodeSystemInfo) -> Self {
        Self {
            machine_id: info.machine_id,
            system_uuid: info.system_uuid,
            boot_id: info.boot_id,
            kernel_version: info.kernel_version,
            os_image: info.os_image,
            container_runtime_version: info.container_runtime_version,
            kubelet_version: info.kubelet_version,
            kube_proxy_version: info.kube_proxy_version,
            operating_system: info.operating_system,
            architecture: info.architecture,
        }
    }
}
