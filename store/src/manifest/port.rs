//! A port with name, number and protocol only: that of endpoints, and of external workloads.

use std::fmt::Arguments;

use serde::{Deserialize, Serialize};

use super::check::Check;

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
#[expect(
    clippy::struct_field_names,
    reason = "the names are those of Kubernetes"
)]
pub(super) struct Port {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    port: i64,
    #[serde(skip_serializing_if = "String::is_empty")]
    protocol: String,
}

impl Port {
    pub(super) fn new(name: String, port: i32, protocol: String) -> Self {
        Self {
            name,
            port: port.into(),
            protocol,
        }
    }

    /// Name, number and protocol, with its default, of a port in `field`.
    pub(super) fn into_parts(
        self,
        field: Arguments<'_>,
        check: &mut Check,
    ) -> (String, i32, String) {
        let port = check.port(format_args!("{field}.port"), self.port);
        let protocol = check.protocol(format_args!("{field}.protocol"), self.protocol);
        (self.name, port, protocol)
    }
}
