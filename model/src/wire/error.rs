//! Why a stored value cannot be used.

use std::fmt;

use contiv_proto::{DecodeError, address::without_leading_zeros};
use serde::Serialize;
use thiserror::Error;

use super::field;

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

/// A field that is not as it should be.
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

/// A valid object, and the fields of it that were read otherwise than they are written or not at all.
pub(super) type Validated<T> = Result<(T, Vec<FieldError>), Vec<FieldError>>;

/// Collects the fields of one object that are not as they should be.
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

    /// Reports a field that does not keep the object from being used.
    fn warn(&mut self, field: impl fmt::Display, problem: impl Into<String>) {
        self.warnings.push(FieldError { field: field.to_string(), problem: problem.into() });
    }

    /// The value of a field, or none after its problem has been noted.
    pub(super) fn check<T>(&mut self, field: impl fmt::Display, checked: Result<T, String>) -> Option<T> {
        checked.map_err(|problem| self.add(field, problem)).ok()
    }

    /// The address or range in a field, which may have leading zeros: that is a warning.
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

    /// What the word in a field stands for; one that is not known is a warning, and stands for `unknown`.
    pub(super) fn word<T: Copy>(
        &mut self,
        field: impl fmt::Display,
        text: &str,
        words: &[(&str, T)],
        unknown: T,
    ) -> T {
        self.known(field, field::word(text, words)).unwrap_or(unknown)
    }

    /// The value of a field; none where it is not known here, which is a warning.
    pub(super) fn known<T>(&mut self, field: impl fmt::Display, checked: Result<T, String>) -> Option<T> {
        checked.map_err(|problem| self.warn(field, format!("{problem}; it is ignored"))).ok()
    }

    /// The object with the warnings, unless a field of it is invalid.
    pub(super) fn finish<T>(self, object: T) -> Validated<T> {
        if self.errors.is_empty() { Ok((object, self.warnings)) } else { Err(self.errors) }
    }
}
