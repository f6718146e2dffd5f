//! A reference to another object.

use contiv_proto::message::endpoints as wire;
use serde::{Deserialize, Serialize};

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ObjectReference {
    #[serde(skip_serializing_if = "String::is_empty")]
    kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    resource_version: String,
}

impl From<ObjectReference> for wire::ObjectReference {
    fn from(reference: ObjectReference) -> Self {
        let ObjectReference {
            kind,
            namespace,
            name,
            uid,
            api_version,
            resource_version,
        } = reference;
        Self {
            kind,
            namespace,
            name,
            uid,
            api_version,
            resource_version,
        }
    }
}

impl From<wire::ObjectReference> for ObjectReference {
    fn from(reference: wire::ObjectReference) -> Self {
        let wire::ObjectReference {
            kind,
            namespace,
            name,
            uid,
            api_version,
            resource_version,
        } = reference;
        Self {
            kind,
            namespace,
            name,
            uid,
            api_version,
            resource_version,
        }
    }
}
