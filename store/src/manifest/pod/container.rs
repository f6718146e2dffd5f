//! One of a Pod's `spec.containers`.

use contiv_proto::message::pod::pod as wire;
use serde::{Deserialize, Serialize};

use super::Check;
use wire::container::port::Protocol;

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Container {
    name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ports: Vec<Port>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(
    clippy::struct_field_names,
    reason = "the names are those of Kubernetes"
)]
struct Port {
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    container_port: i64,
    #[serde(skip_serializing_if = "is_zero")]
    host_port: i64,
    #[serde(rename = "hostIP", skip_serializing_if = "String::is_empty")]
    host_ip: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    protocol: String,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the form that serde calls"
)]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

impl Container {
    pub(super) fn into_message(self, i: usize, check: &mut Check) -> wire::Container {
        let port = |(j, port): (usize, Port)| port.into_message(i, j, check);
        wire::Container {
            name: self.name,
            port: self.ports.into_iter().enumerate().map(port).collect(),
        }
    }

    pub(super) fn from_message(message: wire::Container) -> Self {
        Self {
            name: message.name,
            ports: message.port.into_iter().map(Port::from_message).collect(),
        }
    }
}

impl Port {
    fn into_message(self, i: usize, j: usize, check: &mut Check) -> wire::container::Port {
        let protocol = check.protocol(
            format_args!("spec.containers[{i}].ports[{j}].protocol"),
            self.protocol,
        );
        let field = format_args!("spec.containers[{i}].ports[{j}].containerPort");
        let container_port = check.port(field, self.container_port);
        let field = format_args!("spec.containers[{i}].ports[{j}].hostPort");
        let host_port = check.optional_port(field, self.host_port);
        if !self.host_ip.is_empty() {
            check.address(
                format_args!("spec.containers[{i}].ports[{j}].hostIP"),
                &self.host_ip,
            );
        }
        wire::container::Port {
            name: self.name,
            host_port,
            container_port,
            protocol: Protocol::from_str_name(&protocol)
                .unwrap_or_default()
                .into(),
            host_ip_address: self.host_ip,
        }
    }

    fn from_message(message: wire::container::Port) -> Self {
        Self {
            protocol: message.protocol().as_str_name().to_owned(),
            name: message.name,
            container_port: i64::from(message.container_port),
            host_port: i64::from(message.host_port),
            host_ip: message.host_ip_address,
        }
    }
}
