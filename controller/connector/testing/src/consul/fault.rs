//! Faults to inject.

use std::time::Duration;

/// A fault of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Connections are closed immediately.
    Down,
    /// Every request is answered with 500.
    NoLeader,
    /// Queries for instances are answered with 500; the query for services works.
    NoHealth,
    /// Answers are truncated.
    Truncated,
    /// The header with the index is missing.
    NoIndex,
    /// Every answer is delayed.
    Slow(Duration),
}
