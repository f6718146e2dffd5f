//! A runtime for control loops over a [`contiv_store::Store`].

pub mod cache;
pub mod queue;
pub mod reflector;
pub mod resource;
#[cfg(test)]
mod test_support;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use cache::{Cache, CacheError, Index, Labels};
pub use resource::{Event, Key, Object, ResourceType};

/// Any error of the code that a controller runs.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
