//! Why a value cannot be read, or a message cannot be written.

use thiserror::Error;

use crate::key::Key;

/// Why a value is not the message that it should be.
///
/// An error here says nothing about whether the object exists: a value that cannot be read is never a deletion.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The value is empty. Even a message without fields is `{}`.
    #[error("the value is empty; write a JSON object, or delete the key")]
    Empty,
    /// The value begins as JSON but is not valid JSON.
    #[error("not valid JSON: {problem}")]
    Json {
        /// The JSON parser's message, with line and column.
        problem: String,
    },
    /// A field has an invalid value.
    #[error("field {field}: {problem}")]
    Field {
        /// The path to the field, as in `port[0].node_port`, spelled as in the value.
        field: String,
        /// Why it is invalid.
        problem: String,
    },
    /// The value is neither a JSON object nor a protobuf message of this type.
    #[error("neither a JSON object nor a binary protobuf message: {problem}")]
    Binary {
        /// The protobuf parser's message.
        problem: String,
    },
    /// The value names another object than its key.
    #[error("field {field} is {found:?}, but the key is that of {key}; correct one of them")]
    Identity {
        /// The field that disagrees.
        field: &'static str,
        /// Its value.
        found: String,
        /// The key under which the value is stored.
        key: Key,
    },
}

/// A message cannot be written as JSON because a field holds a number that its enum does not have.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("field {field}: {problem}")]
pub struct EncodeError {
    /// The path to the field, as in `addresses[0].type`.
    pub field: String,
    /// Why it is invalid.
    pub problem: String,
}
