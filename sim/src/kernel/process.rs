//! The process that sends a request.

use super::{attributes::Writer, uapi::generation};

/// Whoever asked for a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// The name of its thread.
    pub name: String,
    /// Its number.
    pub pid: u32,
}

/// Writes the message about a generation of the ruleset and the process that made it.
pub(super) fn write_generation(number: u32, by: &Process, out: &mut Writer) {
    out.u32(generation::ID, number);
    out.u32(generation::PROC_PID, by.pid);
    out.text(generation::PROC_NAME, &by.name);
}
