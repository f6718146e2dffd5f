//! Field selectors.

use serde_json::Value;

/// A field selector.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Selector {
    /// A field such as `metadata.name`, with the value it must have.
    field: Option<(&'static str, String)>,
}

/// The supported fields.
const FIELDS: [(&str, &str); 3] = [
    ("metadata.name", "/metadata/name"),
    ("metadata.namespace", "/metadata/namespace"),
    ("spec.nodeName", "/spec/nodeName"),
];

impl Selector {
    /// # Errors
    /// A description of an unsupported selector.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let known = text.split_once('=').and_then(|(field, value)| {
            let (_, pointer) = FIELDS.into_iter().find(|(name, _)| *name == field)?;
            Some((pointer, value.trim_start_matches('=').to_owned()))
        });
        match known {
            Some(field) => Ok(Self { field: Some(field) }),
            None => Err(format!("field label not supported: {text}")),
        }
    }

    pub(super) fn matches(&self, json: &str) -> bool {
        let Some((pointer, wanted)) = &self.field else { return true };
        let object: Value = serde_json::from_str(json).unwrap_or_default();
        object.pointer(pointer).and_then(Value::as_str).unwrap_or_default() == wanted
    }
}
