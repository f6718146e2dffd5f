//! The reconciler: the function that a controller calls for a key.

use std::{future::Future, sync::Arc};

use futures::{FutureExt, future::BoxFuture};

use super::{Context, Outcome};
use crate::{BoxError, resource::Key};

/// Reconciles the object of one key: compares the desired state with the actual one and acts.
///
/// A reconciler receives only the key and reads the current state from the caches. It may be called for a deleted object and
/// for one that did not change. It is not called for an object of the managed type that has never been readable; for other
/// types it must check [`View::unreadable`](crate::cache::View::unreadable) before it treats an object as deleted. Closures
/// `Fn(Context<T>, Key) -> Future` are reconcilers too.
pub trait Reconciler<T>: Send + Sync + 'static {
    /// Reconciles one key. Runs for the same key never overlap.
    ///
    /// # Errors
    /// Any error is retried with a back-off, and so is a panic; but a [`RequeueAfterError`](super::RequeueAfterError) is an outcome.
    fn reconcile(
        &self,
        context: Context<T>,
        key: Key,
    ) -> impl Future<Output = Result<Outcome, BoxError>> + Send;
}

impl<T, F, Fut> Reconciler<T> for F
where
    F: Fn(Context<T>, Key) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Outcome, BoxError>> + Send,
{
    fn reconcile(
        &self,
        context: Context<T>,
        key: Key,
    ) -> impl Future<Output = Result<Outcome, BoxError>> + Send {
        self(context, key)
    }
}

/// A reconciler, boxed.
pub(super) type ReconcileFn<T> =
    Arc<dyn Fn(Context<T>, Key) -> BoxFuture<'static, Result<Outcome, BoxError>> + Send + Sync>;

pub(super) fn erase<T: Send + Sync + 'static>(reconciler: impl Reconciler<T>) -> ReconcileFn<T> {
    let reconciler = Arc::new(reconciler);
    Arc::new(move |context, key| {
        let reconciler = Arc::clone(&reconciler);
        async move { reconciler.reconcile(context, key).await }.boxed()
    })
}
