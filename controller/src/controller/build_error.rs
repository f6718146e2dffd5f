//! Errors of building a controller.

use thiserror::Error;

/// Misuse of the builder. Each message says what to do.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BuildError {
    /// There is no reconciler.
    #[error("the controller of {managed} has no reconciler; give it one with with_reconciler")]
    NoReconciler {
        /// The managed type.
        managed: String,
    },
    /// A type is watched twice.
    #[error(
        "the controller of {managed} watches {watched} twice; watch it once, with one mapper that returns the keys of all \
         (the managed type is watched already)"
    )]
    DuplicateWatch {
        /// The managed type.
        managed: String,
        /// The type that is watched twice.
        watched: String,
    },
    /// A type has two indexes of one name.
    #[error("{resource_type} has two indexes called {index:?}; rename one of them")]
    DuplicateIndex {
        /// The type.
        resource_type: String,
        /// The name of the index.
        index: String,
    },
    /// A limit is out of range.
    #[error("the controller of {managed}: {problem}")]
    Limits {
        /// The managed type.
        managed: String,
        /// Why it is invalid, and the allowed values.
        problem: &'static str,
    },
}
