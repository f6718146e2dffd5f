//! Tasks that run beside the reconcilers.

use std::{future::pending, sync::Arc};

use contiv_store::Store;
use futures::{FutureExt, future::BoxFuture};

use super::Context;
use crate::BoxError;

/// A task beside the reconcilers, used for at most one run. See [`ControllerBuilder::with_warm_background`].
///
/// [`ControllerBuilder::with_warm_background`]: super::ControllerBuilder::with_warm_background
pub trait Background<T>: Send {
    /// Prepares the task while a warm standby waits for the lease. It must not write to the store. Dropping the future loses no
    /// progress. It returns only on failure, after which a new task is made.
    fn keep_warm(&mut self) -> BoxFuture<'_, BoxError> {
        pending().boxed()
    }

    /// Runs the task while the lease is held. It must end when [`Context::stop`] is cancelled.
    ///
    /// # Errors
    /// When it cannot continue; the controller is then restarted.
    fn run(self: Box<Self>, context: Context<T>) -> BoxFuture<'static, Result<(), BoxError>>;
}

/// Makes the task of the next run without starting any work.
pub(super) type BackgroundFn<T> = Arc<dyn Fn(&Arc<dyn Store>) -> Box<dyn Background<T>> + Send + Sync>;

/// A closure as a task, without a preparation.
pub(super) struct ClosureBackground<F>(pub(super) Arc<F>);

impl<T, F, Fut> Background<T> for ClosureBackground<F>
where
    F: Fn(Context<T>) -> Fut + Send + Sync,
    Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    fn run(self: Box<Self>, context: Context<T>) -> BoxFuture<'static, Result<(), BoxError>> {
        (self.0)(context).boxed()
    }
}
