//! Foreign changes of a renderer's dataplane, in a form that is common to all renderers.

use std::{fmt, task::Poll};

use crate::RenderError;

/// Watches the dataplane of one renderer for foreign changes. It blocks its caller, so each watch has a thread of its own.
pub trait Watch: Send {
    /// Waits for the next foreign change. None when the renderer has ended.
    ///
    /// # Errors
    /// When this watch has failed for good. Then a new watch must be started, followed by a resync.
    fn next(&mut self) -> Result<Option<ForeignChange>, RenderError>;

    /// The next foreign change without waiting: pending if none has been received yet.
    ///
    /// # Errors
    /// As [`Self::next`].
    fn try_next(&mut self) -> Result<Poll<Option<ForeignChange>>, RenderError> {
        Ok(Poll::Pending)
    }
}

/// A foreign change of a renderer's dataplane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignChange {
    /// The change as the end of a sentence, after the process: "deleted the table".
    pub what: String,
    /// The process that made it, if the kernel reports it.
    pub by: Option<Process>,
}

impl fmt::Display for ForeignChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.by {
            Some(process) => write!(f, "{process} {}", self.what),
            None => write!(f, "an unknown process {}", self.what),
        }
    }
}

/// A process, as reported by the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// The name of its thread, at most 15 bytes. A process can choose its name, so this is no proof.
    pub name: String,
    /// Its ID in the initial PID namespace (that of the host).
    pub pid: u32,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {})", self.name.escape_debug(), self.pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_change_is_displayed_in_one_line_with_its_process() {
        let what = "deleted the table".to_owned();
        let by = Some(Process {
            name: "nft\n".to_owned(),
            pid: 7,
        });
        assert_eq!(
            ForeignChange {
                what: what.clone(),
                by
            }
            .to_string(),
            "nft\\n (pid 7) deleted the table"
        );
        assert_eq!(
            ForeignChange { what, by: None }.to_string(),
            "an unknown process deleted the table"
        );
    }
}
