//! Why a controller stopped by itself.

use thiserror::Error;
use tokio::task::JoinError;

use crate::BoxError;

/// Why a controller ended without being stopped. It is restarted.
#[derive(Debug, Error)]
pub enum RunError {
    /// Its background task failed.
    #[error("the background task failed: {0}")]
    Background(#[source] BoxError),
    /// A type can no longer be watched.
    #[error("{resource_type} can no longer be watched")]
    ReflectorEnded {
        /// The type.
        resource_type: String,
    },
    /// A task other than the reconciler or a mapper panicked.
    #[error("it panicked: {0}")]
    Panicked(#[source] JoinError),
}
