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
        "the controller of {managed} watches {watched} twice; watch it once, with Mapper::multi for several mappers \
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
    /// An index is of a type that is not watched.
    #[error(
        "index {index:?} is of {resource_type}, which the controller does not watch; add a watch of it with with_watch"
    )]
    IndexOfUnwatched {
        /// The type.
        resource_type: String,
        /// The name of the index.
        index: String,
    },
    /// Two queries have one name.
    #[error("the controller of {managed} has two queries called {query:?}; rename one of them")]
    DuplicateQuery {
        /// The managed type.
        managed: String,
        /// The name of the query.
        query: String,
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
