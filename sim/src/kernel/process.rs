//! The process that sends a request.

use super::{attributes::Writer, uapi::generation};

/// The sender of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// The name of the thread.
    pub name: String,
    /// The process id.
    pub pid: u32,
}

/// Writes the message with a generation of the ruleset and the process that created it.
pub(super) fn write_generation(number: u32, by: &Process, out: &mut Writer) {
    out.u32(generation::ID, number);
    out.u32(generation::PROC_PID, by.pid);
    out.text(generation::PROC_NAME, &by.name);
}
