//! From stored messages to validated objects, one file per type. The only place that names [`contiv_proto`].
//!
//! An object with an invalid field is rejected whole, and its last known state is kept. Everything that real clusters contain is
//! accepted, such as a load balancer with a host name and no address. Reported, and no obstacle, are: an address that is left out,
//! as in Contiv, where the object has others (its name and ports are meaningful without it); an address with leading zeros; and
//! an unknown word that kube-proxy ignores. A warning is something else: the field is valid, and has no effect.

mod annotations;
mod endpoint_slice;
mod endpoints;
mod error;
mod external_workload;
mod field;
mod ip_allocation;
mod node;
mod pod;
mod service;
mod vpp_node;

use contiv_proto::{Key, Kind, annotation::LAST_CHANGE_TRIGGER_TIME};

use crate::{EndpointSliceId, NodeName, Object, ObjectKey, PodId, ServiceId, object::ObjectKind};

pub use error::{FieldError, FieldWarning, Findings, WireError};

/// Reads and validates the value stored under `key`. `Ok(None)` for types that the processor does not use.
///
/// The key decides which object it is: a missing name is taken from the key. `create_revision` is the store's revision that
/// created the key; it orders services of the same age.
///
/// # Errors
/// When the value is not the right message, names another object than the key, or has invalid fields; all of these are named.
/// An error is never a deletion.
pub fn decode(key: &Key, value: &[u8], create_revision: i64) -> Result<Option<Object>, WireError> {
    Ok(decode_all(key, value, create_revision)?.object)
}

/// The content of a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// None for types that the processor does not use.
    pub object: Option<Object>,
    /// What was found in its fields.
    pub findings: Findings,
    /// When an endpoint slice's last change was triggered, unparsed.
    pub triggered: Option<String>,
}

/// Like [`decode`], with everything that is not part of the object.
///
/// # Errors
/// As [`decode`].
pub fn decode_all(key: &Key, value: &[u8], create_revision: i64) -> Result<Decoded, WireError> {
    let mut message =
        contiv_proto::Object::decode(key, value).map_err(|source| WireError::Undecodable {
            object: key.to_string(),
            source,
        })?;
    let triggered = match &mut message {
        contiv_proto::Object::EndpointSlice(slice) => {
            slice.annotations.remove(LAST_CHANGE_TRIGGER_TIME)
        }
        _ => None,
    };
    let (object, findings) =
        validate(&message, create_revision).map_err(|problems| WireError::Invalid {
            object: key.to_string(),
            problems,
        })?;
    Ok(Decoded {
        object,
        findings,
        triggered,
    })
}

/// The object that a key names. None for types that the processor does not use.
pub fn object_key(key: &Key) -> Option<ObjectKey> {
    Some(match key.kind() {
        Kind::Service => ObjectKey::Service(ServiceId::new(key.namespace(), key.name())),
        Kind::Endpoints => ObjectKey::Endpoints(ServiceId::new(key.namespace(), key.name())),
        Kind::EndpointSlice => {
            ObjectKey::EndpointSlice(EndpointSliceId::new(key.namespace(), key.name()))
        }
        Kind::Pod => ObjectKey::Pod(PodId::new(key.namespace(), key.name())),
        Kind::Node => ObjectKey::Node(NodeName::new(key.name())),
        // `Key` has checked that the name of such a key is a number.
        Kind::VppNode => ObjectKey::VppNode(key.name().parse().ok()?),
        Kind::IpAllocation => ObjectKey::IpAllocation(PodId::new(key.namespace(), key.name())),
        Kind::ExternalWorkload | Kind::Namespace => return None,
    })
}

/// The key under which an object is stored. None where its names cannot be part of a key.
pub fn stored_key(object: &ObjectKey) -> Option<Key> {
    let (kind, namespace, name) = match object {
        ObjectKey::Service(id) => (Kind::Service, &*id.namespace, id.name.to_string()),
        ObjectKey::Endpoints(id) => (Kind::Endpoints, &*id.namespace, id.name.to_string()),
        ObjectKey::EndpointSlice(id) => (Kind::EndpointSlice, &*id.namespace, id.name.to_string()),
        ObjectKey::Pod(id) => (Kind::Pod, &*id.namespace, id.name.to_string()),
        ObjectKey::Node(name) => (Kind::Node, "", name.to_string()),
        ObjectKey::VppNode(id) => (Kind::VppNode, "", id.to_string()),
        ObjectKey::IpAllocation(pod) => (Kind::IpAllocation, &*pod.namespace, pod.name.to_string()),
    };
    Key::new(kind, namespace, name).ok()
}

/// The object type of a stored type. None for types that the processor does not use.
pub const fn object_kind(kind: Kind) -> Option<ObjectKind> {
    Some(match kind {
        Kind::Service => ObjectKind::Service,
        Kind::Endpoints => ObjectKind::Endpoints,
        Kind::EndpointSlice => ObjectKind::EndpointSlice,
        Kind::Pod => ObjectKind::Pod,
        Kind::Node => ObjectKind::Node,
        Kind::VppNode => ObjectKind::VppNode,
        Kind::IpAllocation => ObjectKind::IpAllocation,
        Kind::ExternalWorkload | Kind::Namespace => return None,
    })
}

/// Validates a decoded message, such as one from a manifest. Returns the object with what was found in its fields.
///
/// # Errors
/// Every invalid field.
pub fn validate(
    message: &contiv_proto::Object,
    create_revision: i64,
) -> Result<(Option<Object>, Findings), Vec<FieldError>> {
    use contiv_proto::Object as Message;
    Ok(match message {
        Message::Service(message) => {
            wrapped(service::validate(message, create_revision)?, |service| {
                Object::Service(Box::new(service))
            })
        }
        Message::Endpoints(message) => wrapped(endpoints::validate(message)?, Object::Endpoints),
        Message::EndpointSlice(message) => {
            wrapped(endpoint_slice::validate(message)?, Object::EndpointSlice)
        }
        Message::Pod(message) => wrapped(pod::validate(message)?, Object::Pod),
        Message::Node(message) => wrapped(node::validate(message)?, Object::Node),
        Message::VppNode(message) => wrapped(vpp_node::validate(message)?, Object::VppNode),
        Message::IpAllocation(message) => {
            wrapped(ip_allocation::validate(message)?, Object::IpAllocation)
        }
        Message::ExternalWorkload(message) => (None, external_workload::validate(message)?.1),
        Message::Namespace(_) => (None, Findings::default()),
    })
}

fn wrapped<T>(
    (object, findings): (T, Findings),
    wrap: fn(T) -> Object,
) -> (Option<Object>, Findings) {
    (Some(wrap(object)), findings)
}

#[cfg(test)]
mod tests;
