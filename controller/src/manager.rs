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

mod supervisor;

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use contiv_store::Store;
use thiserror::Error;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::error;

pub use crate::progress::{Progress, Stall};
use crate::{
    lease::Lease,
    liveness::{LivenessProbe, LivenessReporter, liveness_channel},
    progress::Queues,
    queue::WorkQueueMetrics,
    runnable::{Placement, Runnable},
};
use supervisor::Supervisor;

/// How long work in progress and waiting keys may take when the manager is stopped.
const STOP_GRACE_PERIOD: Duration = Duration::from_secs(10);

/// Why a controller or a set of controllers is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ManagerError {
    /// Two controllers have one name.
    #[error("there are two controllers called {name:?}; give one of them another name with named")]
    DuplicateController {
        /// The name.
        name: String,
    },
    /// Two controllers each write a type that the other watches, and could trigger each other endlessly.
    #[error(
        "the controllers of {} and {} each watch what the other manages; let one of them manage what both need",
        .one, .other
    )]
    Cycle {
        /// The first type by name.
        one: String,
        /// The second type by name.
        other: String,
    },
}

/// Runs controllers and other [`Runnable`]s: singletons while the lease is held, the others always. They are independent, so a
/// failing one does not delay the others.
pub struct Manager {
    store: Arc<dyn Store>,
    lease: Lease,
    metrics: Option<WorkQueueMetrics>,
    grace_period: Duration,
    registered: Vec<Registered>,
    queues: Queues,
}

/// A registered runnable, with the probe of its supervisor.
struct Registered {
    runnable: Arc<dyn Runnable>,
    probe: LivenessProbe,
    reporter: LivenessReporter,
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.runnables().map(Runnable::name).collect();
        f.debug_struct("Manager")
            .field("registered", &names)
            .finish_non_exhaustive()
    }
}

impl Manager {
    /// Creates a manager without controllers. Singletons run while `lease` is held.
    pub fn new(store: Arc<dyn Store>, lease: Lease) -> Self {
        Self {
            store,
            lease,
            metrics: None,
            grace_period: STOP_GRACE_PERIOD,
            registered: Vec::new(),
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
    pub fn with_grace_period(mut self, grace_period: Duration) -> Self {
        self.grace_period = grace_period;
        self
    }

    /// Registers a controller, or other work.
    ///
    /// # Errors
    /// [`ManagerError::DuplicateController`].
    pub fn register(&mut self, runnable: impl Runnable) -> Result<(), ManagerError> {
        if self
            .runnables()
            .any(|other| other.name() == runnable.name())
        {
            return Err(ManagerError::DuplicateController {
                name: runnable.name().to_owned(),
            });
        }
        let (probe, reporter) = liveness_channel();
        self.registered.push(Registered {
            runnable: Arc::new(runnable),
            probe,
            reporter,
        });
        Ok(())
    }

    /// Checks that no two controllers each watch the other's managed type. Longer cycles are not detected.
    ///
    /// # Errors
    /// [`ManagerError::Cycle`] with the first such pair.
    pub fn validate_dependencies(&self) -> Result<(), ManagerError> {
        let edges: BTreeSet<(&str, &str)> = self
            .runnables()
            .filter_map(|runnable| Some((runnable.managed_type()?, runnable.watched_types())))
            .flat_map(|(managed, watched)| watched.into_iter().map(move |of| (of, managed)))
            .collect();
        let mutual = edges
            .iter()
            .find(|(one, other)| one < other && edges.contains(&(other, one)));
        mutual.map_or(Ok(()), |(one, other)| {
            Err(ManagerError::Cycle {
                one: (*one).to_owned(),
                other: (*other).to_owned(),
            })
        })
    }

    fn runnables(&self) -> impl Iterator<Item = &dyn Runnable> {
        self.registered
            .iter()
            .map(|registered| registered.runnable.as_ref())
    }

    /// Reports whether the registered controllers make progress once they run.
    pub fn progress(&self) -> Progress {
        let task = |registered: &Registered| {
            (
                format!("controller {}", registered.runnable.name()),
                registered.probe.clone(),
            )
        };
        Progress::new(
            self.registered.iter().map(task).collect(),
            Arc::clone(&self.queues),
        )
    }

    /// Runs the controllers until `stop` is cancelled, and returns when all have stopped. A manager can be run once.
    pub async fn run(self, stop: CancellationToken) {
        let mut supervisors = JoinSet::new();
        for Registered {
            runnable, reporter, ..
        } in self.registered
        {
            let lease = match runnable.placement() {
                Placement::Singleton => self.lease.clone(),
                Placement::EachNode => Lease::always_leader(),
            };
            let supervisor = Supervisor {
                runnable,
                store: Arc::clone(&self.store),
                lease,
                metrics: self.metrics.clone(),
                queues: Arc::clone(&self.queues),
                grace_period: self.grace_period,
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
