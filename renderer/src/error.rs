//! Why a renderer failed.

use std::collections::BTreeMap;

use contiv_model::ServiceId;
use thiserror::Error;

/// A call that failed. Call [`crate::Renderer::resync`] to try again.
#[derive(Debug, Error)]
pub enum RenderError {
    /// The kernel refused, or could not be reached.
    #[error("the kernel refused to {action}: {reason}")]
    Kernel {
        /// The request, as a verb with its object.
        action: String,
        /// The kernel's answer, and what to do about it.
        reason: String,
    },
    /// The kernel lacks modules that every service needs.
    #[error(
        "the kernel lacks {}: `modprobe -a {}`, or install the package with the modules of this kernel; nothing is programmed \
         until then", modules.join(", "), modules.join(" ")
    )]
    MissingModules {
        /// Their names.
        modules: Vec<&'static str>,
    },
    /// Some services cannot be rendered. A call without these may succeed.
    #[error("{}", refused(.services))]
    Refused {
        /// The reason for each of them; empty if they are not known.
        services: BTreeMap<ServiceId, String>,
    },
    /// An update before a successful resync.
    #[error("the state of the dataplane is not known; a resync must come first")]
    Unsynced,
}

fn refused(services: &BTreeMap<ServiceId, String>) -> String {
    let named = services
        .iter()
        .take(3)
        .map(|(id, reason)| format!("service {id}: {reason}"));
    let more = match services.len().saturating_sub(3) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    format!("refused: {}{more}", named.collect::<Vec<_>>().join("; "))
}
