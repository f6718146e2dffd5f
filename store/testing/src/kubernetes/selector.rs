//! Field and label selectors.

use serde_json::Value;

/// A field selector.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Selector {
    /// A field such as `metadata.name`, with the value it must have, or must not.
    field: Option<(&'static str, bool, String)>,
}

/// The supported fields.
const FIELDS: [(&str, &str); 4] = [
    ("metadata.name", "/metadata/name"),
    ("metadata.namespace", "/metadata/namespace"),
    ("spec.nodeName", "/spec/nodeName"),
    ("spec.clusterIP", "/spec/clusterIP"),
];

impl Selector {
    /// # Errors
    /// A description of an unsupported selector.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let term = text
            .split_once("!=")
            .map(|(field, value)| (field, false, value));
        let term = term.or_else(|| {
            text.split_once('=')
                .map(|(field, value)| (field, true, value))
        });
        let known = term.and_then(|(field, is_equal, value)| {
            let (_, pointer) = FIELDS.into_iter().find(|(name, _)| *name == field)?;
            Some((pointer, is_equal, value.trim_start_matches('=').to_owned()))
        });
        match known {
            Some(field) => Ok(Self { field: Some(field) }),
            None => Err(format!("field label not supported: {text}")),
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.field.is_none()
    }

    pub(super) fn matches(&self, object: &Value) -> bool {
        let Some((pointer, is_equal, value)) = &self.field else {
            return true;
        };
        (object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            == value)
            == *is_equal
    }
}

/// A label selector.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LabelSelector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    Absent(String),
    Equal(String, String),
}

impl LabelSelector {
    pub(super) fn parse(text: &str) -> Self {
        let terms = text.split(',').filter(|term| !term.is_empty());
        let requirements = terms.map(
            |term| match (term.strip_prefix('!'), term.split_once('=')) {
                (Some(name), _) => Requirement::Absent(name.to_owned()),
                (None, term) => {
                    let (name, value) = term.unwrap_or_default();
                    Requirement::Equal(name.to_owned(), value.to_owned())
                }
            },
        );
        Self(requirements.collect())
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.0.iter().all(|requirement| match requirement {
            Requirement::Absent(name) => labels[name.as_str()].is_null(),
            Requirement::Equal(name, value) => labels[name.as_str()] == value.as_str(),
        })
    }
}
