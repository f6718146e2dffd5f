//! Runnables of a manager: controllers, and other work that is supervised and leased like them.

mod placement;
mod setup;

use std::{future::pending, sync::Arc};

use contiv_store::Store;
use futures::{FutureExt, future::BoxFuture};

use crate::BoxError;

pub use placement::Placement;
pub use setup::Setup;

/// A unit of work that is registered with a [`Manager`](crate::Manager): a [`Controller`](crate::Controller), or another task.
///
/// ```
/// use std::sync::Arc;
///
/// use contiv_controller::{BoxError, Lease, Manager, Run, Runnable, Setup};
/// use contiv_store::Store;
/// use contiv_store_testing::MemoryStore;
/// use futures::{FutureExt, future::BoxFuture};
///
/// struct Once;
///
/// impl Runnable for Once {
///     fn name(&self) -> &str {
///         "once"
///     }
///
///     fn prepare(self: Arc<Self>, _: &Arc<dyn Store>) -> Box<dyn Run> {
///         Box::new(Writing)
///     }
/// }
///
/// struct Writing;
///
/// impl Run for Writing {
///     fn start(self: Box<Self>, setup: Setup) -> BoxFuture<'static, Result<(), BoxError>> {
///         async move {
///             setup.writer.create(&"/once".into(), "done").await?;
///             setup.stop.cancelled().await;
///             Ok(())
///         }
///         .boxed()
///     }
/// }
///
/// let mut manager = Manager::new(MemoryStore::new().shared(), Lease::always_leader());
/// manager.register(Once).expect("it is the only one");
/// ```
pub trait Runnable: Send + Sync + 'static {
    /// Its name in logs and metrics, which no other has in the same manager.
    fn name(&self) -> &str;

    /// Its placement. The default is a singleton.
    fn placement(&self) -> Placement {
        Placement::default()
    }

    /// The type whose objects it reconciles, if it is a controller of keys.
    fn managed_type(&self) -> Option<&str> {
        None
    }

    /// The types on which those objects depend.
    fn watched_types(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Makes the next run.
    fn prepare(self: Arc<Self>, store: &Arc<dyn Store>) -> Box<dyn Run>;
}

/// One run of a [`Runnable`].
pub trait Run: Send {
    /// Prepares while another process holds the lease. It must not write to the store. Dropping the future loses no progress. It
    /// returns only on failure, after which a new run is made. Does nothing by default.
    fn warm_up(&mut self) -> BoxFuture<'_, BoxError> {
        pending().boxed()
    }

    /// Works until [`Setup::stop`] is cancelled. A second after the lease is lost, or at the end of the manager's
    /// grace period, it is dropped at its next await point.
    ///
    /// # Errors
    /// When it cannot continue; then a new run is made.
    fn start(self: Box<Self>, setup: Setup) -> BoxFuture<'static, Result<(), BoxError>>;
}
