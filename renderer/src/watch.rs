//! Changes that others make to a renderer's dataplane: what every renderer tells of them in the same words.

use std::fmt;

use crate::RenderError;

/// Hears of changes that others make to the dataplane of one renderer. It has a thread of its own.
pub trait Watch: Send {
    /// Waits for the next change by others. None when the renderer is gone, and with it what there is to watch.
    ///
    /// # Errors
    /// When nothing can be heard any more. Then a new watch must be asked for, and a resync must follow.
    fn next(&mut self) -> Result<Option<ForeignChange>, RenderError>;
}

/// Something that others did to a renderer's dataplane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignChange {
    /// What was done, for people: "deleted the table".
    pub what: String,
    /// Who did it, where the kernel says so.
    pub by: Option<Process>,
}

impl fmt::Display for ForeignChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.by {
            Some(process) => write!(f, "{process} {}", self.what),
            None => write!(f, "somebody {}", self.what),
        }
    }
}

/// A process, as the kernel names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// The name of its thread, at most 15 bytes. A process chooses its name, so this is no proof.
    pub name: String,
    /// Its number in the first pid namespace.
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
    fn change_reads_as_sentence_and_name_cannot_break_line() {
        let what = "deleted the table".to_owned();
        let by = Some(Process { name: "nft\n".to_owned(), pid: 7 });
        assert_eq!(ForeignChange { what: what.clone(), by }.to_string(), "nft\\n (pid 7) deleted the table");
        assert_eq!(ForeignChange { what, by: None }.to_string(), "somebody deleted the table");
    }
}
