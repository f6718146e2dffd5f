//! One of a Service's `spec.ports`.

use std::fmt;

use contiv_proto::message::service::service as wire;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::Check;
use wire::service_port::{IntOrString, int_or_string::Type};

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(
    clippy::struct_field_names,
    reason = "the names are those of Kubernetes"
)]
pub(super) struct Port {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) protocol: String,
    pub(super) port: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_port: Option<TargetPort>,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) node_port: i64,
    #[serde(skip_serializing_if = "String::is_empty")]
    app_protocol: String,
}

/// A port number, or the name of a pod's port.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum TargetPort {
    Number(i64),
    Name(String),
}

impl<'de> Deserialize<'de> for TargetPort {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TargetPortVisitor)
    }
}

struct TargetPortVisitor;

impl de::Visitor<'_> for TargetPortVisitor {
    type Value = TargetPort;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a port number or the name of a port")
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<TargetPort, E> {
        Ok(TargetPort::Number(number))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<TargetPort, E> {
        i64::try_from(number)
            .map(TargetPort::Number)
            .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(number), &self))
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<TargetPort, E> {
        Ok(TargetPort::Name(name.to_owned()))
    }
}

impl Port {
    pub(super) fn into_message(self, i: usize, check: &mut Check) -> wire::ServicePort {
        wire::ServicePort {
            name: self.name,
            protocol: check.protocol(format_args!("spec.ports[{i}].protocol"), self.protocol),
            port: check.port(format_args!("spec.ports[{i}].port"), self.port),
            target_port: self.target_port.map(|target| target.into_message(i, check)),
            node_port: check
                .optional_port(format_args!("spec.ports[{i}].nodePort"), self.node_port),
            app_protocol: self.app_protocol,
        }
    }

    pub(super) fn from_message(message: wire::ServicePort) -> Self {
        Self {
            name: message.name,
            protocol: message.protocol,
            port: i64::from(message.port),
            target_port: message.target_port.and_then(TargetPort::from_message),
            node_port: i64::from(message.node_port),
            app_protocol: message.app_protocol,
        }
    }
}

impl TargetPort {
    fn into_message(self, i: usize, check: &mut Check) -> IntOrString {
        let field = format_args!("spec.ports[{i}].targetPort");
        match self {
            Self::Number(number) => {
                let int_val = check.port(field, number);
                IntOrString {
                    r#type: Type::Number.into(),
                    int_val,
                    string_val: String::new(),
                }
            }
            Self::Name(name) => {
                if name.is_empty() {
                    check.refuse(field, "empty; expected a port number or the name of a port");
                }
                IntOrString {
                    r#type: Type::String.into(),
                    int_val: 0,
                    string_val: name,
                }
            }
        }
    }

    /// None for zero, which Contiv writes if there is no target port.
    fn from_message(message: IntOrString) -> Option<Self> {
        match message.r#type() {
            Type::String => Some(Self::Name(message.string_val)),
            Type::Number => {
                (message.int_val != 0).then(|| Self::Number(i64::from(message.int_val)))
            }
        }
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the form that serde calls"
)]
pub(super) fn is_zero(number: &i64) -> bool {
    *number == 0
}
