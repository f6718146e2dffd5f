//! What runs beside the reconcilers.

use std::{future::pending, sync::Arc};

use contiv_store::Store;
use futures::{FutureExt, future::BoxFuture};

use super::Context;
use crate::BoxError;

/// A task beside the reconcilers, for one run at most. See [`ControllerBuilder::with_warm_background`].
///
/// [`ControllerBuilder::with_warm_background`]: super::ControllerBuilder::with_warm_background
pub trait Background<T>: Send {
    /// Prepares itself while a warm standby waits for the lease. It must write nothing; what it has done is not lost when
    /// it is dropped. Ends only when it has failed: then another task is made.
    fn keep_warm(&mut self) -> BoxFuture<'_, BoxError> {
        pending().boxed()
    }

    /// Does its work while the lease is held. It must end when [`Context::stop`] says so.
    ///
    /// # Errors
    /// When it cannot go on: the controller is started again.
    fn run(self: Box<Self>, context: Context<T>) -> BoxFuture<'static, Result<(), BoxError>>;
}

/// Makes the task of the next run, for a store. Nothing is to be done yet.
pub(super) type BackgroundFn<T> = Arc<dyn Fn(&Arc<dyn Store>) -> Box<dyn Background<T>> + Send + Sync>;

/// A closure, which has nothing to prepare.
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
