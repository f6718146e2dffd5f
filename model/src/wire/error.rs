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
    /// The path to the field in the spelling of manifests, as in `spec.ports[0].nodePort`.
    pub field: String,
    /// The problem, and what would be valid.
    pub problem: String,
}

/// A valid field that has no effect, or not the one that its author probably expects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldWarning {
    /// The path to the field in the spelling of manifests, as in `spec.ports[0].nodePort`.
    pub field: String,
    /// The reason, and what to do.
    pub reason: String,
}

impl fmt::Display for FieldWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.reason)
    }
}

/// What was found in the fields of an object that is used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// Invalid fields that are left out, ignored or read differently.
    pub invalid: Vec<FieldError>,
    /// Valid fields that have no effect, or not the one that their author probably expects.
    pub warnings: Vec<FieldWarning>,
}

fn join(problems: &[FieldError]) -> String {
    problems
        .iter()
        .map(FieldError::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

/// A usable object, and what was found in its fields; or all invalid fields of one that is not usable.
pub(super) type Validated<T> = Result<(T, Findings), Vec<FieldError>>;

/// Collects the problems of one object's fields.
#[derive(Debug, Default)]
pub(super) struct Problems {
    errors: Vec<FieldError>,
    findings: Findings,
    /// Addresses that are not usable. They are left out if others are.
    left_out: Vec<FieldError>,
    /// Whether the object has a valid address or a node port.
    has_address: bool,
}

impl Problems {
    /// Reports that a field is invalid.
    pub(super) fn add(&mut self, field: impl fmt::Display, problem: impl Into<String>) {
        self.errors.push(FieldError {
            field: field.to_string(),
            problem: problem.into(),
        });
    }

    /// Reports that a field is invalid, which does not prevent the object's use.
    pub(super) fn tolerate(&mut self, field: impl fmt::Display, problem: impl Into<String>) {
        self.findings.invalid.push(FieldError {
            field: field.to_string(),
            problem: problem.into(),
        });
    }

    /// Warns of a valid field that has no effect, or not the one that its author probably expects.
    pub(super) fn warn(&mut self, field: impl fmt::Display, reason: impl Into<String>) {
        self.findings.warnings.push(FieldWarning {
            field: field.to_string(),
            reason: reason.into(),
        });
    }

    /// The value of a field, or none after its problem was added.
    pub(super) fn check<T>(
        &mut self,
        field: impl fmt::Display,
        checked: Result<T, impl fmt::Display>,
    ) -> Option<T> {
        checked
            .map_err(|problem| self.add(field, problem.to_string()))
            .ok()
    }

    /// The address in a field; none if it is left out. Leading zeros are reported.
    pub(super) fn address<T, E: fmt::Display>(
        &mut self,
        field: impl fmt::Display,
        text: &str,
        check: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        match self.decimal(&field, text, check) {
            Ok(address) => {
                self.has_address = true;
                Some(address)
            }
            Err(problem) => {
                self.leave_out(field, problem.to_string());
                None
            }
        }
    }

    /// The address or range in a field, without the space around it, or the reason why it is invalid. Leading zeros are reported.
    pub(super) fn decimal<T, E>(
        &mut self,
        field: impl fmt::Display,
        text: &str,
        check: impl Fn(&str) -> Result<T, E>,
    ) -> Result<T, E> {
        let text = text.trim();
        check(text).or_else(|problem| {
            let plain = without_leading_zeros(text);
            let address = check(&plain)
                .ok()
                .filter(|_| *plain != *text)
                .ok_or(problem)?;
            self.tolerate(
                field,
                format!("{text:?} has leading zeros; read as {plain}, in decimal; write that"),
            );
            Ok(address)
        })
    }

    /// Records that an address is left out. It is an error if the object has no other address.
    pub(super) fn leave_out(&mut self, field: impl fmt::Display, problem: impl Into<String>) {
        self.left_out.push(FieldError {
            field: field.to_string(),
            problem: problem.into(),
        });
    }

    /// Records that clients can reach the object without its own address, as with a node port.
    pub(super) const fn mark_reachable(&mut self) {
        self.has_address = true;
    }

    /// The meaning of the word in a field; an unknown word is reported and means `unknown`.
    pub(super) fn word<T: Copy>(
        &mut self,
        field: impl fmt::Display,
        text: &str,
        words: &[(&str, T)],
        unknown: T,
    ) -> T {
        self.known(field, field::word(text, words))
            .unwrap_or(unknown)
    }

    /// The value of a field, or none after a report that the value is unknown.
    pub(super) fn known<T>(
        &mut self,
        field: impl fmt::Display,
        checked: Result<T, impl fmt::Display>,
    ) -> Option<T> {
        checked
            .map_err(|problem| self.tolerate(field, format!("{problem}; it is ignored")))
            .ok()
    }

    /// The object with what was found. An error if one of its fields is invalid, or if it has addresses and all of them are
    /// invalid: without them it would count as an object without addresses.
    pub(super) fn finish<T>(self, object: T) -> Validated<T> {
        let Self {
            mut errors,
            mut findings,
            mut left_out,
            has_address,
        } = self;
        if !errors.is_empty() || !left_out.is_empty() && !has_address {
            left_out.append(&mut errors);
            return Err(left_out);
        }
        for FieldError { field, problem } in left_out {
            findings.invalid.push(FieldError {
                field,
                problem: format!("{problem}; it is left out"),
            });
        }
        Ok((object, findings))
    }
}

#[cfg(test)]
mod tests {
    use contiv_proto::check;

    use super::*;

    #[test]
    fn space_around_a_range_is_ignored() {
        let read = Problems::default().decimal("field", " 10.1.1.7/24\n", check::range);
        assert_eq!(read, check::range("10.1.1.0/24"));
    }
}
