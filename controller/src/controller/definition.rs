//! The definition of a controller: its type, watches, mappers and reconciler.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use tokio::sync::watch;
use tracing::Span;

use super::{
    Context, Status, custom_watch::AnyCustomWatch, reconciler::ReconcileFn, typed_watch::AnyWatch,
};
use crate::{
    BoxError,
    cache::Cache,
    queue::{Debounce, RetryPolicy},
    resource::ResourceType,
    runnable::Placement,
};

/// A task that runs concurrently with the reconcilers.
pub(super) type BackgroundFn<T> =
    Arc<dyn Fn(Context<T>) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;
pub(super) type NotifyFn = Arc<dyn Fn() + Send + Sync>;

/// A controller: one managed type, the types it depends on, and a reconciler. [`Controller::for_type`] builds it, a
/// [`Manager`](crate::manager::Manager) runs it.
pub struct Controller<T> {
    pub(super) name: String,
    pub(super) managed: ResourceType<T>,
    pub(super) watches: Vec<Box<dyn AnyWatch>>,
    pub(super) custom_watches: Vec<Box<dyn AnyCustomWatch>>,
    pub(super) reconciler: ReconcileFn<T>,
    pub(super) retry: RetryPolicy,
    pub(super) debounce: Option<Debounce>,
    pub(super) placement: Placement,
    pub(super) background: Option<BackgroundFn<T>>,
    pub(super) on_start: Option<NotifyFn>,
    pub(super) on_stop: Option<NotifyFn>,
    pub(super) concurrency: usize,
    pub(super) resync: Option<Duration>,
    pub(super) is_warm_standby: bool,
    /// The tracing span of all its tasks.
    pub(super) span: Span,
    /// The cache of the current run.
    pub(super) cache: watch::Sender<Option<Cache<T>>>,
}

impl<T: Send + Sync + 'static> Controller<T> {
    /// The status of the controller. It can still be read after the controller is given to a manager.
    pub fn status(&self) -> Status<T> {
        Status::of(&self.cache)
    }
}
