//! Wrong usage.

use thiserror::Error;

/// Wrong usage or configuration, as opposed to a failure.
#[derive(Debug, Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub(crate) String);
