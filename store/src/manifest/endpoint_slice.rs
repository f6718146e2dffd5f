//! `discovery.k8s.io/v1` `EndpointSlice`.

mod endpoint;

use contiv_proto::message::endpointslice as wire;
use serde::{Deserialize, Serialize};

use super::{check::Check, conversion::Manifest, metadata::Metadata};
use endpoint::Endpoint;

/// The label with the service of a slice.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct EndpointSlice {
    metadata: Metadata,
    address_type: String,
    endpoints: Vec<Endpoint>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<i64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    protocol: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    app_protocol: String,
}

impl Manifest for EndpointSlice {
    type Message = wire::EndpointSlice;

    fn metadata(&mut self) -> &mut Metadata {
        &mut self.metadata
    }

    fn into_message(self, check: &mut Check) -> wire::EndpointSlice {
        check.known_value(
            format_args!("addressType"),
            &self.address_type,
            &["IPv4", "IPv6", "FQDN"],
        );
        let endpoint =
            |(i, endpoint): (usize, Endpoint)| endpoint.into_message(i, &self.address_type, check);
        let endpoints = self
            .endpoints
            .into_iter()
            .enumerate()
            .map(endpoint)
            .collect();
        let port = |(i, port): (usize, Port)| port.into_message(i, check);
        let ports = self.ports.into_iter().enumerate().map(port).collect();
        wire::EndpointSlice {
            name: self.metadata.name,
            namespace: self.metadata.namespace,
            service_name: self
                .metadata
                .labels
                .get(SERVICE_NAME)
                .cloned()
                .unwrap_or_default(),
            address_type: self.address_type,
            endpoints,
            ports,
            labels: self.metadata.labels,
            annotations: self.metadata.annotations,
        }
    }

    fn from_message(message: &wire::EndpointSlice) -> Self {
        let mut labels = message.labels.clone();
        if !message.service_name.is_empty() {
            labels.insert(SERVICE_NAME.to_owned(), message.service_name.clone());
        }
        Self {
            metadata: Metadata {
                labels,
                annotations: message.annotations.clone(),
                ..Metadata::named(&message.name, &message.namespace)
            },
            address_type: message.address_type.clone(),
            endpoints: message
                .endpoints
                .iter()
                .cloned()
                .map(Endpoint::from_message)
                .collect(),
            ports: message
                .ports
                .iter()
                .cloned()
                .map(Port::from_message)
                .collect(),
        }
    }
}

impl Port {
    fn into_message(self, i: usize, check: &mut Check) -> wire::endpoint_slice::Port {
        let port = self
            .port
            .map(|port| check.port(format_args!("ports[{i}].port"), port));
        wire::endpoint_slice::Port {
            // The API server turns an absent name into an empty one.
            name: Some(self.name.unwrap_or_default()),
            port,
            protocol: check.protocol(format_args!("ports[{i}].protocol"), self.protocol),
            app_protocol: self.app_protocol,
        }
    }

    fn from_message(message: wire::endpoint_slice::Port) -> Self {
        Self {
            name: message.name,
            port: message.port.map(i64::from),
            protocol: message.protocol,
            app_protocol: message.app_protocol,
        }
    }
}
