//! `v1` Endpoints.

use contiv_proto::message::endpoints as wire;
use serde::{Deserialize, Serialize};

use super::{
    check::Check, conversion::Manifest, metadata::Metadata, port::Port, reference::ObjectReference,
};
use wire::endpoint_subset::{EndpointAddress, EndpointPort};

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Endpoints {
    metadata: Metadata,
    subsets: Vec<Subset>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Subset {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    addresses: Vec<Address>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_ready_addresses: Vec<Address>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ports: Vec<Port>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Address {
    ip: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    hostname: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    node_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_ref: Option<ObjectReference>,
}

impl Manifest for Endpoints {
    type Message = wire::Endpoints;

    fn metadata(&mut self) -> &mut Metadata {
        &mut self.metadata
    }

    fn into_message(self, check: &mut Check) -> wire::Endpoints {
        let subset = |(i, subset): (usize, Subset)| subset.into_message(i, check);
        wire::Endpoints {
            endpoint_subsets: self.subsets.into_iter().enumerate().map(subset).collect(),
            name: self.metadata.name,
            namespace: self.metadata.namespace,
            labels: self.metadata.labels,
        }
    }

    fn from_message(message: &wire::Endpoints) -> Self {
        Self {
            metadata: Metadata {
                labels: message.labels.clone(),
                ..Metadata::named(&message.name, &message.namespace)
            },
            subsets: message
                .endpoint_subsets
                .iter()
                .cloned()
                .map(Subset::from_message)
                .collect(),
        }
    }
}

impl Subset {
    fn into_message(self, i: usize, check: &mut Check) -> wire::EndpointSubset {
        let mut addresses = |field: &str, addresses: Vec<Address>| -> Vec<EndpointAddress> {
            for (j, address) in addresses.iter().enumerate() {
                check.routable_address(format_args!("subsets[{i}].{field}[{j}].ip"), &address.ip);
            }
            addresses.into_iter().map(Address::into_message).collect()
        };
        let ready = addresses("addresses", self.addresses);
        let not_ready_addresses = addresses("notReadyAddresses", self.not_ready_addresses);
        let port = |(j, port): (usize, Port)| {
            let (name, port, protocol) =
                port.into_parts(format_args!("subsets[{i}].ports[{j}]"), check);
            EndpointPort {
                name,
                port,
                protocol,
            }
        };
        let ports = self.ports.into_iter().enumerate().map(port).collect();
        wire::EndpointSubset {
            addresses: ready,
            not_ready_addresses,
            ports,
        }
    }

    fn from_message(message: wire::EndpointSubset) -> Self {
        let port = |EndpointPort {
                        name,
                        port,
                        protocol,
                    }| Port::new(name, port, protocol);
        Self {
            addresses: message
                .addresses
                .into_iter()
                .map(Address::from_message)
                .collect(),
            not_ready_addresses: message
                .not_ready_addresses
                .into_iter()
                .map(Address::from_message)
                .collect(),
            ports: message.ports.into_iter().map(port).collect(),
        }
    }
}

impl Address {
    fn into_message(self) -> EndpointAddress {
        EndpointAddress {
            ip: self.ip,
            host_name: self.hostname,
            node_name: self.node_name,
            target_ref: self.target_ref.map(Into::into),
        }
    }

    fn from_message(message: EndpointAddress) -> Self {
        Self {
            ip: message.ip,
            hostname: message.host_name,
            node_name: message.node_name,
            target_ref: message.target_ref.map(Into::into),
        }
    }
}
