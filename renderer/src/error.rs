//! Why a renderer failed.

use thiserror::Error;

/// A call that did not reach its goal. The dataplane is as it was before the call.
#[derive(Debug, Error)]
pub enum RenderError {
    /// The kernel refused a transaction.
    #[error("the kernel refused to {action}: {reason}")]
    Kernel {
        /// What was asked.
        action: String,
        /// The kernel's error, and what to do about it.
        reason: String,
    },
    /// The kernel could not be spoken to.
    #[error("failed to {action}: {source}")]
    Socket {
        /// Such as "open a netlink socket".
        action: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
}
