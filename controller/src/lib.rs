//! A runtime for control loops over a [`contiv_store::Store`].

pub mod cache;
pub mod callbacks;
pub mod controller;
pub mod lease;
pub mod manager;
pub mod mapper;
pub mod queue;
pub mod reflector;
pub mod resource;
#[cfg(test)]
mod test_support;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod writer;

pub use cache::{Cache, CacheError, Caches, Index, Labels};
pub use controller::{
    BuildError, Context, Controller, ControllerBuilder, FirstPass, Outcome, Placement, Reconciler, RunError,
    Setup,
};
pub use lease::Lease;
pub use manager::Manager;
pub use mapper::{Mapper, Transform};
pub use resource::{Event, Key, Object, ResourceType};
pub use writer::{Fence, Write, WriteError, Writer};

/// Any error of the code that a controller runs.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
