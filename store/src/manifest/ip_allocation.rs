//! `contiv.io/v1` `CustomIPAllocation`: the interfaces of a pod. `spec` is the stored message as JSON; name and
//! namespace of the object are those of the pod.

use contiv_proto::{DecodeError, Wire, message::ipalloc as wire, value};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{check::Check, conversion::Manifest, metadata::Metadata};

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct CustomIpAllocation {
    metadata: Metadata,
    spec: Value,
}

/// Reads a `spec` that is a stored message as JSON. After a problem the result must not be used.
pub(super) fn spec_to_message<M: Wire>(spec: &Value, check: &mut Check) -> M {
    if !spec.is_object() {
        check.refuse(
            format_args!("spec"),
            "missing; expected the fields of the stored message",
        );
        return M::default();
    }
    match value::decode(spec.to_string().as_bytes()) {
        Ok(message) => message,
        Err(DecodeError::Field { field, problem }) => {
            check.refuse(format_args!("spec.{field}"), problem);
            M::default()
        }
        Err(error) => {
            check.refuse(format_args!("spec"), error.to_string());
            M::default()
        }
    }
}

impl Manifest for CustomIpAllocation {
    type Message = wire::CustomIpAllocation;

    fn metadata(&mut self) -> &mut Metadata {
        &mut self.metadata
    }

    fn into_message(self, check: &mut Check) -> wire::CustomIpAllocation {
        let mut message: wire::CustomIpAllocation = spec_to_message(&self.spec, check);
        fill_in("pod_name", &mut message.pod_name, self.metadata.name, check);
        fill_in(
            "pod_namespace",
            &mut message.pod_namespace,
            self.metadata.namespace,
            check,
        );
        for (i, interface) in message.custom_interfaces.iter().enumerate() {
            check.name(
                format_args!("spec.custom_interfaces[{i}].name"),
                &interface.name,
            );
            let field = format_args!("spec.custom_interfaces[{i}].ip_address");
            if !interface.ip_address.is_empty() {
                check.address_of_interface(field, &interface.ip_address);
            } else if interface.service_endpoint {
                check.refuse(
                    field,
                    "missing; services reach the pod through this interface",
                );
            }
        }
        message
    }

    fn from_message(message: &wire::CustomIpAllocation) -> Self {
        Self {
            metadata: Metadata::named(&message.pod_name, &message.pod_namespace),
            spec: serde_json::to_value(message).unwrap_or_default(),
        }
    }
}

/// A value of `metadata` may be omitted in `spec`, but must not differ.
pub(super) fn fill_in(field: &str, found: &mut String, desired: String, check: &mut Check) {
    if found.is_empty() {
        *found = desired;
    } else if *found != desired {
        let reason =
            format!("{found:?} is not the object's own, {desired:?}; leave it out or correct it");
        check.refuse(format_args!("spec.{field}"), reason);
    }
}
