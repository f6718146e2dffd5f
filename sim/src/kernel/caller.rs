//! The sender of a batch.

/// The sender of a request, as the kernel sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub(crate) port: u32,
    /// The time in milliseconds.
    pub(crate) now: u64,
    /// Expressions and chain types whose modules the kernel lacks.
    pub(crate) missing: &'a [String],
    /// Other processes listen to its changes.
    pub(crate) is_heard: bool,
}
