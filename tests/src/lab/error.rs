//! Errors of the lab.

use std::{fmt, io, process::ExitStatus, time::Duration};

use thiserror::Error;

/// The result of everything in the lab.
pub type Result<T, E = LabError> = std::result::Result<T, E>;

/// Why an operation of the lab failed.
#[derive(Error)]
pub enum LabError {
    /// A system call or a file failed.
    #[error("failed to {action}: {source}")]
    System {
        /// As in "bind 10.96.0.1:80 in pod1".
        action: String,
        /// The system's error.
        source: io::Error,
    },
    /// A command failed.
    #[error("`{command}` failed ({status}):\n{output}")]
    Command {
        /// The command line.
        command: String,
        /// How it ended; 124 means that it took too long.
        status: ExitStatus,
        /// The output.
        output: String,
    },
    /// An expected event did not happen in time.
    #[error("timed out after {limit:?}: {event}")]
    TooLate {
        /// The expected event, as a sentence.
        event: String,
        /// The time limit.
        limit: Duration,
    },
    /// The test could not be run in its own namespaces.
    #[error("not isolated: {0}")]
    NotIsolated(String),
    /// The run inside the namespaces failed; its output is printed before.
    #[error("failed inside its namespaces ({0})")]
    Inside(ExitStatus),
    /// An unexpected answer.
    #[error("{0}")]
    Unexpected(String),
}

impl LabError {
    /// An error of the system, with the attempted action.
    pub fn system(action: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System {
            action: action.into(),
            source: source.into(),
        }
    }
}

/// The test harness prints errors in their debug form, which is made the sentence.
impl fmt::Debug for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
