//! Errors of stores, and problems of single objects that must not affect others.

use std::{fmt, io, time::Duration};

use serde::Serialize;
use thiserror::Error;

use crate::Inconsistency;

/// Why a store's request failed.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The watch requested revisions that the store no longer has. List again.
    #[error("the store has compacted revision {requested}; its oldest is {oldest} or later")]
    Compacted {
        /// The requested revision.
        requested: i64,
        /// The oldest one that may be available.
        oldest: i64,
    },
    /// The store has never had the requested revision: it was restored from a backup, or emptied. List again.
    #[error("the store is at revision {newest}, before revision {requested}: its data went back")]
    Rewound {
        /// The requested revision.
        requested: i64,
        /// The store's newest.
        newest: i64,
    },
    /// At the reader's revision the store has other data than the reader: it was restored from a backup, or emptied, and has
    /// been written to since. List again.
    #[error(
        "{key} differs from its value at revision {revision}: the store was restored from older data, or replaced"
    )]
    Replaced {
        /// The reader's revision.
        revision: i64,
        /// A key that differs; or the watched prefix.
        key: String,
    },
    /// The store's messages contradict each other, or what it has said before: one of them was lost, repeated or altered. List again.
    #[error("{key}: {reason}")]
    Inconsistent {
        /// What shows it.
        inconsistency: Inconsistency,
        /// The key, or the prefix.
        key: String,
        /// What was said, and what should have been.
        reason: String,
    },
    /// The watch cannot deliver a change that exceeds this client's limit. List again: a list skips values that are too large.
    #[error("a change is larger than the {limit} bytes that are read at once")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// The store cannot be reached. Try again later.
    #[error("failed to reach the store at {endpoint}: {reason}")]
    Unavailable {
        /// The contacted endpoint.
        endpoint: String,
        /// The problem.
        reason: String,
    },
    /// The store answers, and asks for a pause before the next request: it is overloaded, or about to stop.
    #[error("the store at {endpoint} asks for a pause of {pause:?}: {reason}")]
    Busy {
        /// The contacted endpoint.
        endpoint: String,
        /// Its answer.
        reason: String,
        /// The pause that it asks for.
        pause: Duration,
    },
    /// The watch was silent for long, and the store answers other requests but not whether the watch is alive. Open it again:
    /// nothing is known to be missed.
    #[error("the watch at {endpoint} has sent nothing for {silence:?}")]
    Silent {
        /// The contacted endpoint.
        endpoint: String,
        /// The time of silence.
        silence: Duration,
    },
    /// The store refused the request; retrying will not help.
    #[error("the store refused to {action}: {reason}")]
    Refused {
        /// The request.
        action: String,
        /// The reason.
        reason: String,
    },
    /// A condition of a transaction does not hold, and nothing was written. Read again, and decide again.
    #[error("{key} has changed since it was read; nothing was written")]
    Conflict {
        /// The first key with a failed condition.
        key: String,
    },
    /// A file or folder could not be read or written.
    #[error("failed to {action} {path}: {source}")]
    File {
        /// Such as "read".
        action: &'static str,
        /// The file or folder.
        path: String,
        /// The system's error.
        source: io::Error,
    },
}

impl StoreError {
    /// True if the store has another history than the reader: it was restored from a backup, emptied or replaced.
    pub(crate) const fn is_other_history(&self) -> bool {
        matches!(self, Self::Rewound { .. } | Self::Replaced { .. })
    }

    /// True if changes may have been missed, so that only a list helps.
    pub(crate) const fn needs_list(&self) -> bool {
        self.is_other_history()
            || matches!(
                self,
                Self::Compacted { .. } | Self::TooLarge { .. } | Self::Inconsistent { .. }
            )
    }

    /// The pause that the store asks for; zero if it asks for none.
    pub(crate) const fn requested_pause(&self) -> Duration {
        match self {
            Self::Busy { pause, .. } => *pause,
            _ => Duration::ZERO,
        }
    }
}

/// A problem of one object, or of a whole file if no object can be named.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Problem {
    /// The place: a file (with its document number, from 1, if there are several), or a key.
    pub source: String,
    /// The object, as in "Service default/web", if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The field, as in `spec.ports[0].port`, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The problem, and what would be valid.
    pub reason: String,
    /// The object is used all the same: a field of it has no effect.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_warning: bool,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Printable(&self.source))?;
        for part in [&self.object, &self.field].into_iter().flatten() {
            write!(f, ": {}", Printable(part))?;
        }
        write!(f, ": {}", Printable(&self.reason))
    }
}

/// Escapes control characters of untrusted text, so that it stays on one line and cannot control a terminal.
struct Printable<'a>(&'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| {
            if c.is_control() {
                write!(f, "{}", c.escape_default())
            } else {
                write!(f, "{c}")
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problem_is_one_line_for_any_object_name() {
        let name = "Service default/we\nb\u{1b}[2J\u{9b}";
        let problem = Problem {
            source: "a\rb.yaml".to_owned(),
            object: Some(name.to_owned()),
            field: Some("metadata.labels.x\ny".to_owned()),
            reason: "no\ttext".to_owned(),
            is_warning: false,
        };
        let text = problem.to_string();
        assert!(!text.contains(char::is_control), "{text:?}");
        assert!(
            text.contains("we\\nb") && text.contains("labels.x\\ny"),
            "{text}"
        );
    }
}
