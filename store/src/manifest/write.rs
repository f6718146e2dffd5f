//! Converts stored objects to manifests.

use contiv_proto::Object;
use serde_json::{Map, Value};

use super::{
    conversion::Manifest, endpoint_slice::EndpointSlice, endpoints::Endpoints,
    external_workload::ExternalWorkload, ip_allocation::CustomIpAllocation, kind,
    namespace::Namespace, node::Node, pod::Pod, service::Service, vpp_node::VppNode,
};

/// The manifest of a stored object, as [`super::parse_file`] reads it.
pub fn to_value(object: &Object) -> Value {
    let manifest = match object {
        Object::Pod(message) => value_of::<Pod>(message),
        Object::Service(message) => value_of::<Service>(message),
        Object::Endpoints(message) => value_of::<Endpoints>(message),
        Object::EndpointSlice(message) => value_of::<EndpointSlice>(message),
        Object::ExternalWorkload(message) => value_of::<ExternalWorkload>(message),
        Object::Node(message) => value_of::<Node>(message),
        Object::Namespace(message) => value_of::<Namespace>(message),
        Object::VppNode(message) => value_of::<VppNode>(message),
        Object::IpAllocation(message) => value_of::<CustomIpAllocation>(message),
    };
    let (api_version, kind) = kind::manifest_of(object.kind());
    let mut fields = Map::new();
    fields.insert("apiVersion".to_owned(), api_version.into());
    fields.insert("kind".to_owned(), kind.into());
    if let Value::Object(manifest) = manifest {
        fields.extend(manifest);
    }
    Value::Object(fields)
}

fn value_of<M: Manifest>(message: &M::Message) -> Value {
    // Text, numbers and maps with text keys: always valid JSON.
    serde_json::to_value(M::from_message(message)).unwrap_or_default()
}

/// Manifests as one YAML file, a document for each.
///
/// # Errors
/// When a value cannot be expressed in YAML, which [`to_value`] never produces.
pub fn to_yaml(manifests: &[Value]) -> Result<String, serde_saphyr::SerializeError> {
    serde_saphyr::to_string_multiple(manifests)
}
