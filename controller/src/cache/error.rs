//! Why a cache does not answer.

use thiserror::Error;

/// Why a cache query failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CacheError {
    /// Unknown index.
    #[error(
        "{resource_type} has no index {index:?}; give its type one with ResourceType::with_index"
    )]
    NoSuchIndex {
        /// The name of the type.
        resource_type: String,
        /// The requested name.
        index: String,
    },
    /// The controller does not watch this type.
    #[error("the controller does not watch {resource_type}; add a watch of it with with_watch")]
    NotWatched {
        /// The name of the type.
        resource_type: String,
    },
    /// The reflector of the cache has stopped.
    #[error("the cache of {resource_type} is no longer kept up to date: its reflector has stopped")]
    Ended {
        /// The name of the type.
        resource_type: String,
    },
}
