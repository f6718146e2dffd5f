//! The manager: starts controllers, and starts them again.
//!
//! ```
//! use contiv_controller::{Context, Controller, Key, Outcome, ResourceType, lease::Lease, manager::Manager};
//! use contiv_store_testing::MemoryStore;
//! use tokio_util::sync::CancellationToken;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let names = ResourceType::new("name", "/names/", |entry| String::from_utf8(entry.value.to_vec()));
//! let controller = Controller::for_type(&names)
//!     .with_reconciler(|_: Context<String>, _: Key| async { Ok(Outcome::Done) })
//!     .build()?;
//!
//! let mut manager = Manager::new(MemoryStore::new().shared(), Lease::always_leader());
//! manager.register(controller)?;
//! let stop = CancellationToken::new();
//! let running = tokio::spawn(manager.run(stop.clone()));
//! stop.cancel();
//! running.await?;
//! # Ok(())
//! # }
//! ```

mod dependencies;
mod supervisor;

use std::{fmt, sync::Arc, time::Duration};

use contiv_store::Store;
use thiserror::Error;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::error;

pub use crate::progress::{Progress, Stall};
use crate::{
    controller::{AnyController, BuildError, Controller, Placement},
    lease::Lease,
    liveness::{LivenessProbe, LivenessReporter, liveness_channel},
    progress::Queues,
    queue::WorkQueueMetrics,
    runnable::{Runnable, Runnables},
};
pub use dependencies::{Cycle, Dependencies};
use supervisor::Supervisor;

/// How long work in progress and waiting keys may take when the manager is stopped.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// Why a controller or a set of controllers is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ManagerError {
    /// Two controllers have one name.
    #[error("there are two controllers called {name:?}; give one of them another name with named")]
    DuplicateController {
        /// The name.
        name: String,
    },
    /// A controller cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// Two controllers each write what the other watches and could trigger each other for ever.
    #[error(
        "the controllers of {} and {} each watch what the other manages; let one of them manage what both need",
        .0.one, .0.other
    )]
    Cycle(Cycle),
}

/// Runs controllers: singletons while the lease is held, the others always. They are independent, so a failing one does not
/// delay the others.
pub struct Manager {
    store: Arc<dyn Store>,
    lease: Lease,
    metrics: Option<WorkQueueMetrics>,
    grace: Duration,
    controllers: Vec<Registered>,
    queues: Queues,
}

/// A controller with the probe of its supervisor.
struct Registered {
    controller: Arc<dyn AnyController>,
    probe: LivenessProbe,
    reporter: LivenessReporter,
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let controllers: Vec<String> = self.controllers().map(ToString::to_string).collect();
        f.debug_struct("Manager").field("controllers", &controllers).finish_non_exhaustive()
    }
}

impl Manager {
    /// Creates a manager without controllers. Singletons run while `lease` is held.
    pub fn new(store: Arc<dyn Store>, lease: Lease) -> Self {
        Self {
            store,
            lease,
            metrics: None,
            grace: STOP_GRACE,
            controllers: Vec::new(),
            queues: Queues::default(),
        }
    }

    /// Adds metrics of the work queues, labelled with the names of the controllers.
    #[must_use]
    pub fn with_metrics(mut self, metrics: &WorkQueueMetrics) -> Self {
        self.metrics = Some(metrics.clone());
        self
    }

    /// Sets how long work in progress and waiting keys may take when the manager is stopped, before they are dropped. The default
    /// is 10 s. When the lease is lost they are dropped at once.
    #[must_use]
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Registers a controller.
    ///
    /// # Errors
    /// [`ManagerError::DuplicateController`].
    pub fn register<T: Send + Sync + 'static>(
        &mut self,
        controller: Controller<T>,
    ) -> Result<(), ManagerError> {
        self.add(Arc::new(controller))
    }

    /// Registers work that is no controller of keys. It runs while the lease is held; `make` makes each run, without starting any
    /// work, and the run is warmed up while it waits for the lease.
    ///
    /// # Errors
    /// [`ManagerError::DuplicateController`].
    pub fn add_runnable<R: Runnable>(
        &mut self,
        name: &str,
        make: impl Fn(&Arc<dyn Store>) -> R + Send + Sync + 'static,
    ) -> Result<(), ManagerError> {
        let make = Box::new(move |store: &Arc<dyn Store>| -> Box<dyn Runnable> { Box::new(make(store)) });
        self.add(Arc::new(Runnables { name: name.to_owned(), make }))
    }

    fn add(&mut self, controller: Arc<dyn AnyController>) -> Result<(), ManagerError> {
        let name = controller.name().to_owned();
        if self.controllers().any(|other| other.name() == name) {
            return Err(ManagerError::DuplicateController { name });
        }
        let (probe, reporter) = liveness_channel();
        self.controllers.push(Registered { controller, probe, reporter });
        Ok(())
    }

    /// The dependencies between the types of all controllers.
    pub fn dependencies(&self) -> Dependencies {
        let watched = |controller: &dyn AnyController| -> Vec<(String, String)> {
            let managed = controller.managed_type().unwrap_or_default();
            controller.watched_types().into_iter().map(|of| (of.to_owned(), managed.to_owned())).collect()
        };
        let managed = self.controllers().filter_map(|controller| Some(controller.managed_type()?.to_owned()));
        let edges = self.controllers().flat_map(watched);
        Dependencies::new(managed.collect(), edges.collect())
    }

    /// Checks that no two controllers each watch the other's managed type.
    ///
    /// # Errors
    /// [`ManagerError::Cycle`] with the first such pair.
    pub fn validate_dependencies(&self) -> Result<(), ManagerError> {
        self.dependencies()
            .cycles()
            .into_iter()
            .next()
            .map_or(Ok(()), |cycle| Err(ManagerError::Cycle(cycle)))
    }

    fn controllers(&self) -> impl Iterator<Item = &dyn AnyController> {
        self.controllers.iter().map(|registered| registered.controller.as_ref())
    }

    /// Reports whether the registered controllers make progress once they run.
    pub fn progress(&self) -> Progress {
        let task = |registered: &Registered| {
            (format!("controller {}", registered.controller.name()), registered.probe.clone())
        };
        Progress::new(self.controllers.iter().map(task).collect(), Arc::clone(&self.queues))
    }

    /// Runs the controllers until `stop` is cancelled, and returns when all have stopped. A manager can be run once.
    pub async fn run(self, stop: CancellationToken) {
        let mut supervisors = JoinSet::new();
        for Registered { controller, reporter, .. } in self.controllers {
            let lease = match controller.placement() {
                Placement::Singleton => self.lease.clone(),
                Placement::EachNode => Lease::always_leader(),
            };
            let supervisor = Supervisor {
                controller,
                store: Arc::clone(&self.store),
                lease,
                metrics: self.metrics.clone(),
                queues: Arc::clone(&self.queues),
                grace: self.grace,
                stop: stop.clone(),
            };
            supervisors.spawn(reporter.report_while(supervisor.run()));
        }
        while let Some(ended) = supervisors.join_next().await {
            if let Err(error) = ended {
                error!(%error, "a supervisor failed; its controller stays stopped");
            }
        }
    }
}

#[cfg(test)]
mod tests;
