//! Controllers with callbacks: `upsert` for each existing object, and `delete` for each deleted one.
//!
//! A thin adapter upon [`Controller`]: the callback is chosen when the key is worked on. An object that was deleted and made
//! again meanwhile is an upsert only. One call may be repeated, so both must be idempotent.
//!
//! ```
//! use contiv_controller::{ResourceType, callbacks::{new_resource, test_run}};
//! use contiv_store_testing::MemoryStore;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let names = ResourceType::new("name", "/names/", |entry| String::from_utf8(entry.value.to_vec()));
//! let resource = new_resource(
//!     &names,
//!     |key, object| async move { println!("{key} is {}", object.value); Ok(()) },
//!     |key, last_known| async move { println!("{key} was {}", last_known.value); Ok(()) },
//! );
//! let closer = test_run(resource, MemoryStore::new().shared());
//! closer.close().await;
//! # Ok(())
//! # }
//! ```

use std::{future::Future, marker::PhantomData, sync::Arc};

use contiv_store::Store;
use tokio::task::JoinHandle;
use tokio_util::sync::DropGuard;
use tracing::error;

use crate::{
    BoxError,
    controller::{Context, Controller, ControllerBuilder, Outcome, Status},
    queue::TokenBucket,
    resource::{Key, Object, ResourceType},
    runnable::{Runnable, Setup},
};

/// How often a failing call is retried: as in consul-k8s and flomesh.
pub const RETRY_BUDGET: u32 = 5;

/// Receives each object of one type.
pub trait Resource<T: Send + Sync + 'static>: Send + Sync + 'static {
    /// The type.
    fn resource_type(&self) -> ResourceType<T>;

    /// The object exists, with this state.
    ///
    /// # Errors
    /// Any error is retried, [`RETRY_BUDGET`] times.
    fn upsert(
        &self,
        key: Key,
        object: Arc<Object<T>>,
    ) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// The object was deleted; this was its last known state.
    ///
    /// # Errors
    /// Any error is retried, [`RETRY_BUDGET`] times.
    fn delete(
        &self,
        key: Key,
        last_known: Arc<Object<T>>,
    ) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// Runs concurrently with the calls: consul-k8s' `Backgrounder`. It starts before the first list, and must end when
    /// [`Context::stop`] is cancelled: [`test_run`] waits for it without a limit, a manager as long as its
    /// [grace period](crate::Manager::with_grace_period), and not at all once the lease is lost. Then it is dropped at its next
    /// await point. Does nothing by default.
    ///
    /// # Errors
    /// Any error ends the calls as well; the manager restarts both.
    fn background(&self, context: Context<T>) -> impl Future<Output = Result<(), BoxError>> + Send {
        async move {
            context.stop().cancelled().await;
            Ok(())
        }
    }
}

/// A resource from two closures.
pub fn new_resource<T, U, UFut, D, DFut>(
    resource_type: &ResourceType<T>,
    upsert: U,
    delete: D,
) -> impl Resource<T> + use<T, U, UFut, D, DFut>
where
    T: Send + Sync + 'static,
    U: Fn(Key, Arc<Object<T>>) -> UFut + Send + Sync + 'static,
    UFut: Future<Output = Result<(), BoxError>> + Send + 'static,
    D: Fn(Key, Arc<Object<T>>) -> DFut + Send + Sync + 'static,
    DFut: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    Closures {
        resource_type: resource_type.clone(),
        upsert,
        delete,
        futures: PhantomData,
    }
}

struct Closures<T, U, UFut, D, DFut> {
    resource_type: ResourceType<T>,
    upsert: U,
    delete: D,
    futures: PhantomData<fn() -> (UFut, DFut)>,
}

impl<T, U, UFut, D, DFut> Resource<T> for Closures<T, U, UFut, D, DFut>
where
    T: Send + Sync + 'static,
    U: Fn(Key, Arc<Object<T>>) -> UFut + Send + Sync + 'static,
    UFut: Future<Output = Result<(), BoxError>> + Send + 'static,
    D: Fn(Key, Arc<Object<T>>) -> DFut + Send + Sync + 'static,
    DFut: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    fn resource_type(&self) -> ResourceType<T> {
        self.resource_type.clone()
    }

    fn upsert(
        &self,
        key: Key,
        object: Arc<Object<T>>,
    ) -> impl Future<Output = Result<(), BoxError>> + Send {
        (self.upsert)(key, object)
    }

    fn delete(
        &self,
        key: Key,
        last_known: Arc<Object<T>>,
    ) -> impl Future<Output = Result<(), BoxError>> + Send {
        (self.delete)(key, last_known)
    }
}

/// A controller that makes the calls of a resource. It can be configured further before it is built.
pub fn controller_of<T: Send + Sync + 'static>(resource: impl Resource<T>) -> ControllerBuilder<T> {
    let resource = Arc::new(resource);
    let background = Arc::clone(&resource);
    Controller::for_type(&resource.resource_type())
        .with_retry_budget(RETRY_BUDGET)
        .with_retry_bucket(TokenBucket {
            per_second: 10.0,
            burst: 100,
        })
        .with_background(move |context: Context<T>| {
            let resource = Arc::clone(&background);
            async move { resource.background(context).await }
        })
        .with_reconciler(move |context: Context<T>, key: Key| {
            let resource = Arc::clone(&resource);
            async move {
                if let Some(object) = context.cache().get(&key) {
                    resource.upsert(key, object).await?;
                } else if let Some(last_known) = context.last_known(&key) {
                    resource.delete(key, last_known).await?;
                }
                Ok(Outcome::Done)
            }
        })
}

/// Runs the controller of a resource, for a test. It is not restarted when it fails.
///
/// # Panics
/// Never: the controller of a resource can always be built.
pub fn test_run<T: Send + Sync + 'static>(
    resource: impl Resource<T>,
    store: Arc<dyn Store>,
) -> Closer<T> {
    let setup = Setup::new(store, None);
    let stop = setup.stop.clone().drop_guard();
    let controller = controller_of(resource)
        .build()
        .unwrap_or_else(|error| unreachable!("{error}"));
    let status = controller.status();
    let run = Arc::new(controller).prepare(&setup.store);
    let task = tokio::spawn(async move {
        if let Err(problem) = run.start(setup).await {
            error!(%problem, "the controller failed");
        }
    });
    Closer { status, task, stop }
}

/// Stops what [`test_run`] started.
#[derive(Debug)]
#[must_use = "everything stops when this is dropped"]
pub struct Closer<T> {
    status: Status<T>,
    task: JoinHandle<()>,
    stop: DropGuard,
}

impl<T> Closer<T> {
    /// The status of the controller.
    pub fn status(&self) -> &Status<T> {
        &self.status
    }

    /// Stops, and returns when everything has stopped.
    ///
    /// # Panics
    /// If the controller did.
    pub async fn close(self) {
        drop(self.stop);
        if let Err(error) = self.task.await
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

#[cfg(test)]
mod tests;
