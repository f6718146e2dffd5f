//! One of an `EndpointSlice`'s `endpoints`.

use std::net::IpAddr;

use contiv_proto::{
    address::without_leading_zeros, message::endpointslice::endpoint_slice as wire,
};
use serde::{Deserialize, Serialize};

use super::super::{check::Check, reference::ObjectReference};

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Endpoint {
    addresses: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conditions: Option<Conditions>,
    #[serde(skip_serializing_if = "String::is_empty")]
    hostname: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    node_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    zone: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_ref: Option<ObjectReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hints: Option<Hints>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Conditions {
    #[serde(skip_serializing_if = "Option::is_none")]
    ready: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    serving: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    terminating: Option<bool>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Hints {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    for_zones: Vec<Hint>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    for_nodes: Vec<Hint>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Hint {
    name: String,
}

impl Endpoint {
    pub(super) fn into_message(
        self,
        i: usize,
        address_type: &str,
        check: &mut Check,
    ) -> wire::Endpoint {
        if self.addresses.is_empty() {
            check.leave_out(
                format_args!("endpoints[{i}].addresses"),
                "missing; an endpoint needs an address",
            );
        }
        for (j, address) in self.addresses.iter().enumerate() {
            check_family(i, j, address, address_type, check);
        }
        wire::Endpoint {
            addresses: self.addresses,
            conditions: self.conditions.map(
                |Conditions {
                     ready,
                     serving,
                     terminating,
                 }| wire::Conditions {
                    ready,
                    serving,
                    terminating,
                },
            ),
            host_name: self.hostname,
            node_name: self.node_name,
            zone: self.zone,
            target_ref: self.target_ref.map(Into::into),
            hints: self.hints.map(|hints| wire::Hints {
                for_zones: hints.for_zones.into_iter().map(|zone| zone.name).collect(),
                for_nodes: hints.for_nodes.into_iter().map(|node| node.name).collect(),
            }),
        }
    }

    pub(super) fn from_message(message: wire::Endpoint) -> Self {
        let hint = |name| Hint { name };
        Self {
            addresses: message.addresses,
            conditions: message.conditions.map(
                |wire::Conditions {
                     ready,
                     serving,
                     terminating,
                 }| {
                    Conditions {
                        ready,
                        serving,
                        terminating,
                    }
                },
            ),
            hostname: message.host_name,
            node_name: message.node_name,
            zone: message.zone,
            target_ref: message.target_ref.map(Into::into),
            hints: message.hints.map(|hints| Hints {
                for_zones: hints.for_zones.into_iter().map(hint).collect(),
                for_nodes: hints.for_nodes.into_iter().map(hint).collect(),
            }),
        }
    }
}

fn check_family(i: usize, j: usize, address: &str, address_type: &str, check: &mut Check) {
    let field = format_args!("endpoints[{i}].addresses[{j}]");
    let family = without_leading_zeros(address)
        .parse::<IpAddr>()
        .map(|address| address.to_canonical().is_ipv4());
    let is_right = match address_type {
        "IPv4" => family == Ok(true),
        "IPv6" => family == Ok(false),
        _ if address.is_empty() => false,
        _ => return,
    };
    if is_right {
        check.routable_address(field, address);
    } else {
        check.leave_out(
            field,
            format!("{address:?} is not an address of the slice's type, {address_type}"),
        );
    }
}
