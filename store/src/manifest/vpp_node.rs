//! `contiv.io/v1` `VppNode`: the number of a node and the addresses of its dataplane. `spec` is the stored message as
//! JSON; the object's name is that of the node.

use contiv_proto::message::vppnode as wire;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    check::Check,
    conversion::Manifest,
    ip_allocation::{fill_in, spec_to_message},
    metadata::Metadata,
};

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct VppNode {
    metadata: Metadata,
    spec: Value,
}

impl Manifest for VppNode {
    type Message = wire::VppNode;

    fn metadata(&mut self) -> &mut Metadata {
        &mut self.metadata
    }

    fn into_message(self, check: &mut Check) -> wire::VppNode {
        let mut message: wire::VppNode = spec_to_message(&self.spec, check);
        if message.id == 0 && check.findings.is_empty() {
            check.refuse(
                format_args!("spec.id"),
                "missing; expected a number above zero",
            );
        }
        fill_in("name", &mut message.name, self.metadata.name, check);
        for (i, address) in message.ip_addresses.iter().enumerate() {
            check.address_of_interface(format_args!("spec.ip_addresses[{i}]"), address);
        }
        if !message.ip_address.is_empty() {
            check.address_of_interface(format_args!("spec.ip_address"), &message.ip_address);
        }
        message
    }

    fn from_message(message: &wire::VppNode) -> Self {
        // Contiv may have stored a node before its name was known.
        let name = if message.name.is_empty() {
            message.id.to_string()
        } else {
            message.name.clone()
        };
        Self {
            metadata: Metadata::named(&name, ""),
            spec: serde_json::to_value(message).unwrap_or_default(),
        }
    }
}
