//! Why a stored value cannot be used.

use std::fmt;

use contiv_proto::DecodeError;
use serde::Serialize;
use thiserror::Error;

/// Why a stored value cannot be used. What was known of the object before stays in force.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WireError {
    /// The value is not the message it should be, or names another object than its key does.
    #[error("{object}: {source}")]
    Undecodable {
        /// Type and id, as in `service default/web`.
        object: String,
        /// What is wrong.
        source: DecodeError,
    },
    /// The message has fields that make no sense.
    #[error("{object}: {}", join(.problems))]
    Invalid {
        /// Type and id, as in `service default/web`.
        object: String,
        /// Every invalid field; at least one.
        problems: Vec<FieldError>,
    },
}

/// A field that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize)]
#[error("{field}: {problem}")]
pub struct FieldError {
    /// The path to the field in the spelling of the `.proto` file, as in `port[0].node_port`.
    pub field: String,
    /// What is wrong with it and what would be right.
    pub problem: String,
}

fn join(problems: &[FieldError]) -> String {
    problems.iter().map(FieldError::to_string).collect::<Vec<_>>().join("; ")
}

/// Collects the invalid fields of one object.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<FieldError>);

impl Problems {
    /// Reports that a field is invalid.
    pub(super) fn add(&mut self, field: impl fmt::Display, problem: impl Into<String>) {
        self.0.push(FieldError { field: field.to_string(), problem: problem.into() });
    }

    /// The value of a field, or none after its problem has been noted.
    pub(super) fn check<T>(&mut self, field: impl fmt::Display, checked: Result<T, String>) -> Option<T> {
        checked.map_err(|problem| self.add(field, problem)).ok()
    }

    /// The object, unless a field of it is invalid.
    pub(super) fn finish<T>(self, object: T) -> Result<T, Vec<FieldError>> {
        if self.0.is_empty() { Ok(object) } else { Err(self.0) }
    }
}
