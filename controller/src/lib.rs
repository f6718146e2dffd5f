//! A runtime for control loops over a [`contiv_store::Store`].
//!
//! A *controller* brings the objects of a store to their desired state. It watches one managed type and the types that this one
//! depends on. For each change a *mapper* returns the affected keys, which are added to a *work queue*; a *reconciler*
//! receives one key at a time, reads the current state and acts. A *manager* starts and restarts controllers. With a *lease* of
//! an election only one of several processes runs them, and its writes are fenced.
//!
//! | module | content |
//! |---|---|
//! | [`queue`] | the work queue: deduplicated, delayed, retried, debounced keys, with draining and metrics |
//! | [`resource`] | types of stored objects with their indexes, the objects and their events |
//! | [`reflector`], [`cache`] | lists and watches all objects of one type into a cache |
//! | [`mapper`] | maps an object to the keys of the objects that depend on it |
//! | [`controller`] | the builder, the reconciler and its context |
//! | [`callbacks`] | controllers written as callbacks for present and for deleted objects |
//! | [`manager`] | starts controllers and restarts them |
//! | [`runnable`] | what a manager runs: controllers, and other tasks that are supervised like them |
//! | [`lease`] | which process runs singletons: each process, the leader of an election, or the one that a test chooses |
//! | [`liveness`] | whether a task is alive, for a watchdog |
//! | [`writer`] | writes that never overwrite a concurrent change and never happen after the lease is lost |
//!
//! The crate's folder `examples/` has programs to start from; `contiv-store-testing` has a store in memory with seeded faults.
//! All times are those of tokio's clock, so tests of controllers can pause it.

pub mod cache;
pub mod callbacks;
pub mod controller;
mod error;
pub mod lease;
pub mod liveness;
pub mod manager;
pub mod mapper;
mod progress;
pub mod queue;
pub mod reflector;
pub mod resource;
pub mod runnable;
#[cfg(test)]
mod test_support;
pub mod writer;

pub use cache::{Cache, CacheError, Caches};
pub use controller::{
    BuildError, Context, Controller, ControllerBuilder, Outcome, Reconciler, RequeueAfterError,
    RunError, Status,
};
pub use error::BoxError;
pub use lease::Lease;
pub use manager::Manager;
pub use mapper::Mapper;
pub use resource::{Event, Index, Key, Labels, Object, ResourceType};
pub use runnable::{Placement, Run, Runnable, Setup};
pub use writer::{Fence, Write, WriteError, Writer};
