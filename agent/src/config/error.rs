//! The problems of a configuration.

use thiserror::Error;

/// All problems of the configuration, a line each.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", .0.join("\n"))]
pub struct ConfigError(pub Vec<String>);

impl ConfigError {
    pub(super) fn one(problem: impl Into<String>) -> Self {
        Self(vec![problem.into()])
    }
}
