//! Why a request failed.

use std::io;

use nix::libc::EPERM;
use thiserror::Error;

use super::capability_sets;
use crate::error::RenderError;

/// Why a request failed.
#[derive(Debug, Error)]
pub(crate) enum NetlinkError {
    /// The kernel refused one message, and with it the whole batch.
    #[error("{subject}: {source}")]
    Refused {
        /// A description of the message.
        subject: String,
        source: io::Error,
        /// Every message that was refused.
        refusals: Vec<Refusal>,
    },
    /// The socket failed.
    #[error("{action}: {source}")]
    Socket {
        action: &'static str,
        source: io::Error,
    },
    /// The kernel lacks modules.
    #[error("the kernel has no {}", .0.join(", "))]
    MissingModules(Vec<&'static str>),
}

/// A message that the kernel refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The whole message.
    pub(crate) message: Vec<u8>,
    /// The offset of the attribute that caused the error, if the kernel reports it.
    pub(crate) offset: Option<usize>,
    /// The system's error number.
    pub(crate) errno: i32,
    /// The kernel's text, or that of the error number.
    pub(crate) reason: String,
}

impl NetlinkError {
    /// The system's error number.
    pub(crate) fn errno(&self) -> Option<i32> {
        match self {
            Self::Refused { source, .. } | Self::Socket { source, .. } => source.raw_os_error(),
            Self::MissingModules(_) => None,
        }
    }

    /// The error for the caller of a renderer, with advice.
    pub(crate) fn with_advice(&self, action: &str) -> RenderError {
        let hint = match self.errno() {
            Some(EPERM) => format!("; {}", capability_sets::advice()),
            _ => String::new(),
        };
        match self {
            Self::MissingModules(modules) => RenderError::MissingModules {
                modules: modules.clone(),
            },
            _ => RenderError::Kernel {
                action: action.to_owned(),
                reason: format!("{self}{hint}"),
            },
        }
    }
}
