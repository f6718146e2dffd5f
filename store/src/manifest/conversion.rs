//! Converts the manifest of one kind to its stored form, and back.

use contiv_proto::{Kind, Object};
use serde::{Serialize, de::DeserializeOwned};

use super::{check::Check, metadata::Metadata};

/// A manifest of one kind, with only the fields that contiv uses.
pub(super) trait Manifest: DeserializeOwned + Serialize {
    /// The stored form.
    type Message: Into<Object>;

    /// Converts the manifest to its stored form. If `check` finds it unusable, the result is not stored, and its value does not matter.
    fn into_message(self, check: &mut Check) -> Self::Message;

    /// Converts a stored message back to its manifest.
    fn from_message(message: &Self::Message) -> Self;

    /// The `metadata`, so that defaults can be filled in.
    fn metadata(&mut self) -> &mut Metadata;
}

/// Validates a manifest and converts it to its stored form, with defaults. The result must not be used if `check` finds the
/// manifest unusable.
pub(super) fn to_object<M: Manifest>(mut manifest: M, kind: Kind, check: &mut Check) -> Object {
    let metadata = manifest.metadata();
    check.name(format_args!("metadata.name"), &metadata.name);
    if !kind.is_namespaced() {
        // The API server ignores a namespace here too.
        metadata.namespace.clear();
    } else if metadata.namespace.is_empty() {
        "default".clone_into(&mut metadata.namespace);
    } else {
        check.name(format_args!("metadata.namespace"), &metadata.namespace);
    }
    manifest.into_message(check).into()
}
