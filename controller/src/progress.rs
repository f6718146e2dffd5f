//! Whether a running manager makes progress, for a watchdog.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;
use thiserror::Error;

use crate::{liveness::LivenessProbe, queue::WorkQueue, resource::Key};

/// A reconciler that runs longer is considered hanging. Its requests to a store succeed or fail within seconds.
const MAX_RUN_TIME: Duration = Duration::from_secs(300);

/// The work queues of the running controllers, by controller name.
pub(crate) type Queues = Arc<Mutex<BTreeMap<String, WorkQueue<Key>>>>;

/// The part of the manager that makes no progress.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Stall {
    /// A task is blocked or has ended.
    #[error("{0} does not answer")]
    Silent(String),
    /// A reconciler hangs.
    #[error("controller {controller} has been working on one object for {} s", .so_far.as_secs())]
    LongRun {
        /// The controller's name.
        controller: String,
        /// How long it has been running.
        so_far: Duration,
    },
}

/// Checks whether the tasks of a manager make progress. Cheap to clone.
#[derive(Clone)]
pub struct Progress {
    tasks: Vec<(String, LivenessProbe)>,
    queues: Queues,
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress")
            .field("tasks", &self.tasks)
            .finish_non_exhaustive()
    }
}

impl Progress {
    pub(crate) fn new(tasks: Vec<(String, LivenessProbe)>, queues: Queues) -> Self {
        Self { tasks, queues }
    }

    /// Adds a probe of another task, with its name in a [`Stall`].
    #[must_use]
    pub fn with(mut self, name: &str, probe: LivenessProbe) -> Self {
        self.tasks.push((name.to_owned(), probe));
        self
    }

    /// The part that makes no progress; none if all tasks answer and no reconciler has been running for over five minutes.
    pub async fn stall(&self) -> Option<Stall> {
        for (name, probe) in &self.tasks {
            if !probe.is_alive().await {
                return Some(Stall::Silent(name.clone()));
            }
        }
        let queues = self.queues.lock();
        let mut runs = queues
            .iter()
            .map(|(controller, queue)| (controller, queue.longest_run()));
        let (controller, so_far) = runs.find(|(_, so_far)| *so_far > MAX_RUN_TIME)?;
        Some(Stall::LongRun {
            controller: controller.clone(),
            so_far,
        })
    }
}
