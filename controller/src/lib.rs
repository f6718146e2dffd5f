//! A runtime for control loops over a [`contiv_store::Store`].
//!
//! A *controller* brings what is in a store to the state it should be in. It follows one type of objects, and the types
//! that those depend on; whenever something changes, a *mapper* says whom that concerns; their keys go to a *work
//! queue*; and a *reconciler* gets one key at a time, reads what is so now, and acts. A *manager* starts controllers
//! and starts them again; with a *lease* of an election only one of several processes does, and its writes are fenced.
//!
//! | module | what it has |
//! |---|---|
//! | [`queue`] | the work queue: keys that are deduplicated, delayed, retried, debounced, drained, measured |
//! | [`resource`] | types of stored objects, the objects, and what happens to them |
//! | [`reflector`], [`cache`] | all objects of one type, with indexes, as they are in the store |
//! | [`mapper`] | from an object to the keys of those that depend on it |
//! | [`controller`] | the builder, the reconciler, and what it has at hand |
//! | [`callbacks`] | the other flavour: tell me of each object that is there and of each that is gone |
//! | [`manager`] | running controllers, and running them again |
//! | [`lease`] | who may run singletons: everybody, who won an election, whom a test says |
//! | [`liveness`] | whether a task still turns, for a watchdog |
//! | [`writer`] | writes that never go over somebody else's, and never come after the lease is lost |
//! | `testing` | with the feature `testing`: a store in memory that misbehaves by seed, controllers without loops |
//!
//! The crate's folder `examples/` has programs to start from. All times are those of tokio's clock, so tests of
//! controllers can pause it.

pub mod cache;
pub mod callbacks;
pub mod controller;
pub mod lease;
pub mod liveness;
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
    Background, BuildError, Context, Controller, ControllerBuilder, FirstPass, Outcome, Placement,
    Reconciler, RunError, Setup, Status,
};
pub use lease::Lease;
pub use manager::Manager;
pub use mapper::{Mapper, Transform};
pub use resource::{Event, Key, Object, ResourceType};
pub use writer::{Fence, Write, WriteError, Writer};

/// Any error of the code that a controller runs.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
