//! Why a stored value cannot be used.

use std::fmt;

use contiv_proto::{DecodeError, address::without_leading_zeros};
use serde::Serialize;
use thiserror::Error;

use super::field;

/// Why a stored value cannot be used. The last known state of the object is kept.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WireError {
    /// The value is not the right message, or names another object than its key.
    #[error("{object}: {source}")]
    Undecodable {
        /// Type and id, as in `service default/web`.
        object: String,
        /// The cause.
        source: DecodeError,
    },
    /// The message has invalid fields.
    #[error("{object}: {}", join(.problems))]
    Invalid {
        /// Type and id, as in `service default/web`.
        object: String,
        /// Every invalid field; at least one.
        problems: Vec<FieldError>,
    },
}

/// An invalid field.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize)]
#[error("{field}: {problem}")]
pub struct FieldError {
    /// The path to the field in the spelling of the `.proto` file, as in `port[0].node_port`.
    pub field: String,
    /// What is wrong, and what would be valid.
    pub problem: String,
}

fn join(problems: &[FieldError]) -> String {
    problems.iter().map(FieldError::to_string).collect::<Vec<_>>().join("; ")
}

/// A valid object, and warnings about fields that were ignored or read differently.
pub(super) type Validated<T> = Result<(T, Vec<FieldError>), Vec<FieldError>>;

/// Collects the problems of one object's fields.
#[derive(Debug, Default)]
pub(super) struct Problems {
    errors: Vec<FieldError>,
    warnings: Vec<FieldError>,
}

impl Problems {
    /// Reports that a field is invalid.
    pub(super) fn add(&mut self, field: impl fmt::Display, problem: impl Into<String>) {
        self.errors.push(FieldError { field: field.to_string(), problem: problem.into() });
    }

    /// Adds a warning: a problem that does not prevent the object's use.
    fn warn(&mut self, field: impl fmt::Display, problem: impl Into<String>) {
        self.warnings.push(FieldError { field: field.to_string(), problem: problem.into() });
    }

    /// The value of a field, or none after its problem was added.
    pub(super) fn check<T>(&mut self, field: impl fmt::Display, checked: Result<T, String>) -> Option<T> {
        checked.map_err(|problem| self.add(field, problem)).ok()
    }

    /// The address or range in a field. Leading zeros cause a warning.
    pub(super) fn address<T>(
        &mut self,
        field: impl fmt::Display,
        text: &str,
        check: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let problem = match check(text) {
            Ok(address) => return Some(address),
            Err(problem) => problem,
        };
        let plain = without_leading_zeros(text);
        match check(&plain) {
            Ok(address) if *plain != *text => {
                self.warn(
                    field,
                    format!("{text:?} has leading zeros; read as {plain}, in decimal; write that"),
                );
                Some(address)
            }
            _ => {
                self.add(field, problem);
                None
            }
        }
    }

    /// The meaning of the word in a field; an unknown word causes a warning and means `unknown`.
    pub(super) fn word<T: Copy>(
        &mut self,
        field: impl fmt::Display,
        text: &str,
        words: &[(&str, T)],
        unknown: T,
    ) -> T {
        self.known(field, field::word(text, words)).unwrap_or(unknown)
    }

    /// The value of a field; none where it is unknown, which is a warning.
    pub(super) fn known<T>(&mut self, field: impl fmt::Display, checked: Result<T, String>) -> Option<T> {
        checked.map_err(|problem| self.warn(field, format!("{problem}; it is ignored"))).ok()
    }

    /// The object with the warnings, unless one of its fields is invalid.
    pub(super) fn finish<T>(self, object: T) -> Validated<T> {
        if self.errors.is_empty() { Ok((object, self.warnings)) } else { Err(self.errors) }
    }
}
