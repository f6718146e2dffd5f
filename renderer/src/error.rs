//! Why a renderer failed.

use thiserror::Error;

/// A call that did not reach its goal. Call [`crate::Renderer::resync`] to try again.
#[derive(Debug, Error)]
pub enum RenderError {
    /// The kernel refused, or could not be spoken to.
    #[error("the kernel refused to {action}: {reason}")]
    Kernel {
        /// What was asked.
        action: String,
        /// What the kernel said, and what to do about it.
        reason: String,
    },
    /// An update came before a successful resync.
    #[error("the state of the dataplane is not known; a resync must come first")]
    Unsynced,
}
