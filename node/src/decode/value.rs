//! One value of the store, decoded.

use contiv_model::{
    Event, Object, ObjectKey,
    wire::{self, Decoded, FieldError, FieldWarning, Findings},
};
use contiv_proto::Key;
use contiv_store::{Entry, Problem};

/// Larger than any object of Kubernetes, whose requests are limited to 3 MiB, and of etcd, 1.5 MiB by default.
pub(super) const MAX_VALUE_SIZE: usize = 4 << 20;

/// A value that cannot be used. It is never treated as a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadValue {
    /// The full key.
    pub key: String,
    /// The object, if the key names one.
    pub object: Option<ObjectKey>,
    /// The reason.
    pub reason: String,
    /// Whether the value is used except for the bad part.
    pub is_used: bool,
    /// The value is empty: the store of an API server delivers an object that it cannot use as an empty value, and reports the
    /// problem separately.
    pub is_empty: bool,
}

/// The result of decoding one entry or change.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DecodedValue {
    /// An event.
    Good {
        event: Event,
        /// Its trigger time, if there is one.
        triggered: Option<String>,
        /// The part that is not used, if there is one.
        partly: Option<Box<BadValue>>,
        /// Warnings of its fields. Their source is the key.
        warnings: Vec<Problem>,
    },
    /// Irrelevant to the processor.
    Ignored,
    /// Not for the processor: a value that cannot be used, or of which a part is used elsewhere.
    Bad(BadValue),
}

pub(super) fn decode(entry: &Entry) -> DecodedValue {
    let bad = |object, reason: String| {
        let is_empty = entry.value.is_empty();
        DecodedValue::Bad(BadValue {
            key: entry.key.clone(),
            object,
            reason,
            is_used: false,
            is_empty,
        })
    };
    let key = match Key::parse(&entry.key) {
        Ok(Some(key)) => key,
        Ok(None) => return DecodedValue::Ignored,
        Err(error) => return bad(None, error.problem),
    };
    if entry.value.len() > MAX_VALUE_SIZE {
        let size = entry.value.len();
        let reason = format!("the value has {size} bytes; at most {MAX_VALUE_SIZE} are read");
        return bad(wire::object_key(&key), reason);
    }
    match wire::decode_all(&key, &entry.value, entry.create_revision) {
        Ok(Decoded {
            object,
            findings: Findings { invalid, warnings },
            triggered,
        }) => {
            let partly = (!invalid.is_empty()).then(|| BadValue {
                key: entry.key.clone(),
                object: object.as_ref().map(Object::key),
                reason: join(&key, &invalid),
                is_used: true,
                is_empty: false,
            });
            match (object, partly) {
                (Some(object), partly) => {
                    let warning = |FieldWarning { field, reason }| Problem {
                        source: entry.key.clone(),
                        object: Some(key.to_string()),
                        field: Some(field),
                        reason,
                        is_warning: true,
                    };
                    DecodedValue::Good {
                        event: Event::Put(object),
                        triggered,
                        partly: partly.map(Box::new),
                        warnings: warnings.into_iter().map(warning).collect(),
                    }
                }
                // An external workload.
                (None, Some(partly)) => DecodedValue::Bad(partly),
                (None, None) => DecodedValue::Ignored,
            }
        }
        Err(error) => bad(wire::object_key(&key), error.to_string()),
    }
}

fn join(key: &Key, invalid: &[FieldError]) -> String {
    let invalid: Vec<String> = invalid.iter().map(ToString::to_string).collect();
    format!("{key}: {}", invalid.join("; "))
}

/// The deletion of a key that names no object changes nothing.
pub(super) fn decode_deletion(key: &str) -> DecodedValue {
    let object = Key::parse(key)
        .ok()
        .flatten()
        .and_then(|key| wire::object_key(&key));
    object.map_or(DecodedValue::Ignored, |object| DecodedValue::Good {
        event: Event::Delete(object),
        triggered: None,
        partly: None,
        warnings: Vec::new(),
    })
}
