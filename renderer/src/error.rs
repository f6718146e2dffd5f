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
    /// The kernel lacks modules that every service needs. It is no service's fault.
    #[error(
        "the kernel lacks {}: `modprobe -a {}`, or install the package with the modules of this kernel; nothing is programmed \
         until then", modules.join(", "), modules.join(" ")
    )]
    MissingModules {
        /// Their names.
        modules: Vec<&'static str>,
    },
    /// An update came before a successful resync.
    #[error("the state of the dataplane is not known; a resync must come first")]
    Unsynced,
}
