//! Work under a manager that is no controller of keys: it runs while the lease is held, and is started again when it fails.

use std::{fmt, future::pending, sync::Arc};

use contiv_store::Store;
use futures::{FutureExt, future::BoxFuture};

use crate::{
    BoxError,
    controller::{AnyController, Environment, Placement, RunError, Setup, Standby},
};

/// One run of such work. Given to a manager with [`Manager::add_runnable`](crate::Manager::add_runnable), which makes one for
/// each run.
pub trait Runnable: Send + 'static {
    /// Prepares while another process holds the lease. It must not write to the store. Dropping the future loses no progress. It
    /// returns only on failure, after which a new run is made. Does nothing by default.
    fn warm_up(&mut self) -> BoxFuture<'_, BoxError> {
        pending().boxed()
    }

    /// Works until [`Setup::stop`] is cancelled. It is dropped where it awaits when the lease is lost, or when it outlasts the
    /// grace of the manager.
    ///
    /// # Errors
    /// When it cannot continue; then a new run is made.
    fn start(self: Box<Self>, setup: Setup) -> BoxFuture<'static, Result<(), BoxError>>;
}

/// Makes the next run without starting any work.
pub(crate) type MakeRunnable = Box<dyn Fn(&Arc<dyn Store>) -> Box<dyn Runnable> + Send + Sync>;

/// What a manager supervises in the place of a controller.
pub(crate) struct Runnables {
    pub(crate) name: String,
    pub(crate) make: MakeRunnable,
}

impl fmt::Display for Runnables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<Runnable name={}, placement={}>", self.name, self.placement())
    }
}

impl AnyController for Runnables {
    fn name(&self) -> &str {
        &self.name
    }

    fn managed_type(&self) -> Option<&str> {
        None
    }

    fn watched_types(&self) -> Vec<&str> {
        Vec::new()
    }

    fn placement(&self) -> Placement {
        Placement::Singleton
    }

    fn stand_by(self: Arc<Self>, store: &Arc<dyn Store>) -> Box<dyn Standby> {
        Box::new(NextRun((self.make)(store)))
    }
}

struct NextRun(Box<dyn Runnable>);

impl Standby for NextRun {
    fn keep_warm(&mut self) -> BoxFuture<'_, RunError> {
        self.0.warm_up().map(RunError::Runnable).boxed()
    }

    fn run(self: Box<Self>, environment: Environment) -> BoxFuture<'static, Result<(), RunError>> {
        async move {
            let work = self.0.start(Setup::new(&environment));
            let ended = environment.abort.run_until_cancelled(work).await;
            ended.unwrap_or(Ok(())).map_err(RunError::Runnable)
        }
        .boxed()
    }
}
