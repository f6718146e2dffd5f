//! From stored messages to validated objects, one file per type. The only place that names [`contiv_proto`].
//!
//! Validation is strict: an object with one invalid field is refused whole, and whatever was known of it before stays in
//! force. Accepted is all that real clusters contain, such as a load balancer that has a host name and no address; addresses with
//! leading zeros, and words that are not known here and that kube-proxy ignores, are warnings.

mod annotations;
mod endpoint_slice;
mod endpoints;
mod error;
mod field;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod ip_allocation;
mod node;
mod pod;
mod service;
mod vpp_node;

use contiv_proto::{Key, Kind, annotation::LAST_CHANGE_TRIGGER_TIME};

use crate::{EndpointSliceId, NodeName, Object, ObjectKey, PodId, ServiceId, object::ObjectKind};

pub use error::{FieldError, WireError};

/// Reads and validates the value stored under `key`. `Ok(None)` for the types of no consequence to the processor.
///
/// The key decides which object it is: a name that the value leaves out is taken from the key. `create_revision` is the
/// store's revision that created the key; it tells which of two services of the same age is the older.
///
/// # Errors
/// When the value is not the message it should be, names another object than the key does, or has invalid fields; all
/// of these are named. An error is never a deletion.
pub fn decode(key: &Key, value: &[u8], create_revision: i64) -> Result<Option<Object>, WireError> {
    Ok(decode_all(key, value, create_revision)?.object)
}

/// What a value holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// None for the types of no consequence to the processor.
    pub object: Option<Object>,
    /// Fields that do not keep the object from being used: those with leading zeros in an address, and those whose value is
    /// not known here and ignored.
    pub warnings: Vec<FieldError>,
    /// What an endpoint slice says of when its last change was triggered, unread.
    pub triggered: Option<String>,
}

/// The same, with all that is not part of the object.
///
/// # Errors
/// As [`decode`].
pub fn decode_all(key: &Key, value: &[u8], create_revision: i64) -> Result<Decoded, WireError> {
    let mut message = contiv_proto::Object::decode(key, value)
        .map_err(|source| WireError::Undecodable { object: key.to_string(), source })?;
    let triggered = match &mut message {
        contiv_proto::Object::EndpointSlice(slice) => slice.annotations.remove(LAST_CHANGE_TRIGGER_TIME),
        _ => None,
    };
    let (object, warnings) = validate(&message, create_revision)
        .map_err(|problems| WireError::Invalid { object: key.to_string(), problems })?;
    Ok(Decoded { object, warnings, triggered })
}

/// Which object a key names. None for the types of no consequence to the processor.
pub fn object_key(key: &Key) -> Option<ObjectKey> {
    Some(match key.kind() {
        Kind::Service => ObjectKey::Service(ServiceId::new(key.namespace(), key.name())),
        Kind::Endpoints => ObjectKey::Endpoints(ServiceId::new(key.namespace(), key.name())),
        Kind::EndpointSlice => ObjectKey::EndpointSlice(EndpointSliceId::new(key.namespace(), key.name())),
        Kind::Pod => ObjectKey::Pod(PodId::new(key.namespace(), key.name())),
        Kind::Node => ObjectKey::Node(NodeName::new(key.name())),
        // The name of such a key is a number: `Key` has made sure of it.
        Kind::VppNode => ObjectKey::VppNode(key.name().parse().ok()?),
        Kind::IpAllocation => ObjectKey::IpAllocation(PodId::new(key.namespace(), key.name())),
        Kind::ExternalWorkload | Kind::Namespace => return None,
    })
}

/// The type of objects that a stored type becomes. None for the types of no consequence to the processor.
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

/// Validates a message that is decoded already, such as one made of a manifest. With the object come the fields that do not
/// keep it from being used.
///
/// # Errors
/// Every invalid field.
pub fn validate(
    message: &contiv_proto::Object,
    create_revision: i64,
) -> Result<(Option<Object>, Vec<FieldError>), Vec<FieldError>> {
    use contiv_proto::Object as Message;
    Ok(match message {
        Message::Service(message) => wrapped(service::validate(message, create_revision)?, Object::Service),
        Message::Endpoints(message) => wrapped(endpoints::validate(message)?, Object::Endpoints),
        Message::EndpointSlice(message) => wrapped(endpoint_slice::validate(message)?, Object::EndpointSlice),
        Message::Pod(message) => wrapped(pod::validate(message)?, Object::Pod),
        Message::Node(message) => wrapped(node::validate(message)?, Object::Node),
        Message::VppNode(message) => wrapped(vpp_node::validate(message)?, Object::VppNode),
        Message::IpAllocation(message) => wrapped(ip_allocation::validate(message)?, Object::IpAllocation),
        Message::ExternalWorkload(_) | Message::Namespace(_) => (None, Vec::new()),
    })
}

fn wrapped<T>(
    (object, warnings): (T, Vec<FieldError>),
    wrap: fn(T) -> Object,
) -> (Option<Object>, Vec<FieldError>) {
    (Some(wrap(object)), warnings)
}

#[cfg(test)]
mod tests;
