//! Controllers: reconcile a key whenever something it depends on has changed.
//!
//! ```
//! use contiv_controller::{Context, Controller, Key, Mapper, Outcome, ResourceType};
//!
//! # fn main() -> Result<(), contiv_controller::BuildError> {
//! let text = |entry: &contiv_store::Entry| String::from_utf8(entry.value.to_vec());
//! let services = ResourceType::new("service", "/services/", text);
//! let pods = ResourceType::new("pod", "/pods/", text); // a pod is the name of its service
//!
//! let controller = Controller::for_type(&services)
//!     .with_watch(&pods, Mapper::map_owner(|service: &String| Some(format!("/services/{service}").into())))
//!     .with_reconciler(|context: Context<String>, key: Key| async move {
//!         match context.cache().get(&key) {
//!             Some(service) => println!("{key} is there, at revision {}", service.mod_revision),
//!             None => println!("{key} is gone"),
//!         }
//!         Ok(Outcome::Done)
//!     })
//!     .build()?;
//! assert_eq!(
//!     controller.to_string(),
//!     "<Controller managed_type=service, watched_types=[pod], backoff=<base=5ms, max=16m40s>, placement=singleton>"
//! );
//! # Ok(())
//! # }
//! ```

mod background;
mod build_error;
mod builder;
mod context;
mod custom_watch;
mod display;
mod first_pass;
mod last_known;
mod map_loop;
mod opened;
mod outcome;
mod run;
mod standby;
mod status;
mod typed_watch;
mod worker;

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use contiv_store::Store;
use futures::{FutureExt, future::BoxFuture};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    BoxError,
    cache::{Cache, Index, QueryFn},
    manager::Queues,
    queue::{Debounce, RetryPolicy, WorkQueueMetrics},
    resource::{Key, ResourceType},
    writer::Writer,
};
pub use background::Background;
use background::BackgroundFn;
pub use build_error::BuildError;
pub use builder::ControllerBuilder;
pub use context::{Context, Setup};
pub use first_pass::FirstPass;
pub use outcome::Outcome;
pub use run::RunError;
pub(crate) use standby::Standby;
pub use status::Status;
use {custom_watch::AnyCustomWatch, typed_watch::AnyWatch};

/// Where a controller runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// In one process at a time: the one that holds the lease.
    #[default]
    Singleton,
    /// In every process, all the time. Such a controller should not write to the store.
    EachNode,
}

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
    /// Any error is retried with a back-off, and so is a panic.
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
type ReconcileFn<T> =
    Arc<dyn Fn(Context<T>, Key) -> BoxFuture<'static, Result<Outcome, BoxError>> + Send + Sync>;

fn erase<T: Send + Sync + 'static>(reconciler: impl Reconciler<T>) -> ReconcileFn<T> {
    let reconciler = Arc::new(reconciler);
    Arc::new(move |context, key| {
        let reconciler = Arc::clone(&reconciler);
        async move { reconciler.reconcile(context, key).await }.boxed()
    })
}

/// A hook that is awaited before or beside the reconcilers.
type HookFn<A> = Arc<dyn Fn(A) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;
type NotifyFn = Arc<dyn Fn() + Send + Sync>;

/// A controller: one managed type, the types it depends on, and a reconciler. Made by [`Controller::for_type`], run by a
/// [`Manager`](crate::manager::Manager).
pub struct Controller<T> {
    name: String,
    managed: ResourceType<T>,
    indexes: Vec<Index<T>>,
    watches: Vec<Box<dyn AnyWatch>>,
    custom_watches: Vec<Box<dyn AnyCustomWatch>>,
    queries: Arc<BTreeMap<String, QueryFn>>,
    reconciler: ReconcileFn<T>,
    retry: RetryPolicy,
    debounce: Option<Debounce>,
    placement: Placement,
    initializer: Option<HookFn<Setup>>,
    background: Option<BackgroundFn<T>>,
    on_start: Option<NotifyFn>,
    on_stop: Option<NotifyFn>,
    concurrency: usize,
    resync: Option<Duration>,
    is_warm_standby: bool,
    /// The cache of the current run.
    cache: watch::Sender<Option<Cache<T>>>,
}

impl<T: Send + Sync + 'static> Controller<T> {
    /// A controller of the objects of one type.
    pub fn for_type(managed: &ResourceType<T>) -> ControllerBuilder<T> {
        ControllerBuilder::new(managed)
    }

    /// The status of the controller, which can also be read after it was given to a manager.
    pub fn status(&self) -> Status<T> {
        Status::of(&self.cache)
    }
}

impl<T: Send + Sync + 'static> Controller<T> {
    /// A context whose caches hold the current content of the store. Nothing is started.
    pub(crate) async fn context(&self, environment: &Environment) -> Result<Context<T>, RunError> {
        let mut opened = opened::OpenedCaches::new(self, &environment.store);
        opened.prime().await?;
        let context = Context::new(Setup::new(environment), opened.cache, opened.caches);
        context.first_pass().begin(std::collections::BTreeSet::new());
        Ok(context)
    }

    /// Runs the reconciler once.
    pub(crate) async fn reconcile_once(&self, context: Context<T>, key: Key) -> Result<Outcome, BoxError> {
        let unreadable = context.cache().view().unreadable(&key).map(str::to_owned);
        if let Some(problem) = unreadable {
            return Err(format!("{key} cannot be read, so it is not reconciled: {problem}").into());
        }
        worker::reconcile(&self.reconciler, context, key).await
    }

    /// The mapper of a watched type; none if the type is not watched.
    pub(crate) fn mapper_of<U: 'static>(
        &self,
        watched: &ResourceType<U>,
    ) -> Option<crate::mapper::Mapper<U>> {
        let watch = self.watches.iter().find(|watch| watch.type_name() == watched.name())?;
        watch.as_any().downcast_ref::<typed_watch::TypedWatch<U>>().map(|watch| watch.mapper.clone())
    }
}

/// What the manager gives to each run of a controller.
#[derive(Clone)]
pub(crate) struct Environment {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) writer: Writer,
    pub(crate) metrics: Option<WorkQueueMetrics>,
    /// Where a run registers its work queue.
    pub(crate) queues: Queues,
    /// Cancelled when no further work may be started; work in progress may finish.
    pub(crate) stop: CancellationToken,
    /// Cancelled when work in progress must be dropped too.
    pub(crate) abort: CancellationToken,
}

/// A controller of any type.
pub(crate) trait AnyController: std::fmt::Display + Send + Sync {
    fn name(&self) -> &str;
    fn managed_type(&self) -> &str;
    fn watched_types(&self) -> Vec<&str>;
    fn placement(&self) -> Placement;
    /// The standby from which the next run is started.
    fn stand_by(self: Arc<Self>, store: &Arc<dyn Store>) -> Box<dyn Standby>;
}

impl<T: Send + Sync + 'static> AnyController for Controller<T> {
    fn name(&self) -> &str {
        &self.name
    }

    fn managed_type(&self) -> &str {
        self.managed.name()
    }

    fn watched_types(&self) -> Vec<&str> {
        self.watches.iter().map(|watch| watch.type_name()).collect()
    }

    fn placement(&self) -> Placement {
        self.placement
    }

    fn stand_by(self: Arc<Self>, store: &Arc<dyn Store>) -> Box<dyn Standby> {
        Box::new(standby::StandbyController::new(self, store))
    }
}
