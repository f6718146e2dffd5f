//! Objects in Kubernetes' protobuf, which costs an API server about half of what JSON does. Each becomes JSON with the fields that
//! contiv uses, and is read as such.
//!
//! Only of the types that every node reads; types of custom resource definitions have no protobuf.

mod list;
mod messages;

use contiv_proto::Kind;
use http::{Response, header};
use prost::Message;
use serde::Serialize;

pub(super) use list::{ListMetadata, ListSplitter};
use messages::{MAGIC, TypeMeta};

/// The media type; that of a watch has a parameter.
const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The message around an object or list, `runtime.Unknown`, after [`MAGIC`].
#[derive(Clone, PartialEq, Message)]
struct Unknown {
    #[prost(message, optional, tag = "1")]
    type_meta: Option<TypeMeta>,
    #[prost(bytes = "bytes", tag = "2")]
    raw: bytes::Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct WatchEvent {
    #[prost(string, tag = "1")]
    r#type: String,
    #[prost(message, optional, tag = "2")]
    object: Option<RawExtension>,
}

#[derive(Clone, PartialEq, Message)]
struct RawExtension {
    #[prost(bytes = "bytes", tag = "1")]
    raw: bytes::Bytes,
}

/// The `Accept` header of requests for a type: protobuf or JSON, as kube-proxy sends it, or JSON alone.
pub(super) const fn accepted(kind: Kind) -> &'static str {
    if can_read(kind) {
        "application/vnd.kubernetes.protobuf,application/json"
    } else {
        "application/json"
    }
}

/// True if an answer is in protobuf.
pub(super) fn is_in<B>(answer: &Response<B>) -> bool {
    let media_type = answer
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|media_type| media_type.to_str().ok());
    media_type.is_some_and(|media_type| media_type.split(';').next() == Some(MEDIA_TYPE))
}

/// True if objects of this type can be read.
const fn can_read(kind: Kind) -> bool {
    matches!(kind, Kind::Node | Kind::Service | Kind::EndpointSlice)
}

/// An item of a list as JSON.
///
/// # Errors
/// When it is no object of this type.
pub(super) fn item_to_json(kind: Kind, item: &[u8]) -> Result<String, String> {
    match kind {
        Kind::Node => to_json::<messages::Node>(item),
        Kind::Service => to_json::<messages::Service>(item),
        Kind::EndpointSlice => to_json::<messages::EndpointSlice>(item),
        _ => Err(format!("{kind} is not read as protobuf")),
    }
}

/// The type of a watch's event, and its object as JSON: a `Status` for an error.
///
/// # Errors
/// When it is no event of such objects.
pub(super) fn event_to_json(kind: Kind, event: bytes::Bytes) -> Result<(String, String), String> {
    let WatchEvent { r#type, object } =
        WatchEvent::decode(event).map_err(|error| error.to_string())?;
    let object = object.unwrap_or_default().raw;
    if !object.starts_with(MAGIC) {
        return Err("an event without an object in protobuf".to_owned());
    }
    let Unknown { type_meta, raw } =
        Unknown::decode(object.slice(MAGIC.len()..)).map_err(|error| error.to_string())?;
    if r#type == "ERROR" {
        return Ok((r#type, to_json::<messages::Status>(&raw)?));
    }
    check_kind(kind, &type_meta.unwrap_or_default().kind)?;
    let json = item_to_json(kind, &raw)?;
    Ok((r#type, json))
}

/// Fails unless an object says that it is of this type.
pub(super) fn check_kind(expected: Kind, said: &str) -> Result<(), String> {
    match said.parse::<Kind>() {
        Ok(kind) if kind == expected => Ok(()),
        _ => Err(format!("it is a {said:?}, and no {expected}")),
    }
}

/// The `Status` of an answer with an error as JSON; none if it is not in protobuf.
pub(super) fn status_to_json(body: &[u8]) -> Option<String> {
    let unknown = Unknown::decode(body.strip_prefix(MAGIC)?).ok()?;
    to_json::<messages::Status>(&unknown.raw).ok()
}

fn to_json<M: Message + Default + Serialize>(message: &[u8]) -> Result<String, String> {
    let message = M::decode(message).map_err(|error| error.to_string())?;
    serde_json::to_string(&message).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
