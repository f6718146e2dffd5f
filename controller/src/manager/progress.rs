//! Whether a running manager moves, for a watchdog.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;
use thiserror::Error;

use crate::{liveness::LivenessProbe, queue::WorkQueue, resource::Key};

/// A run of a reconciler that takes longer hangs. What it asks of a store answers or fails within seconds.
const MAX_RUN_TIME: Duration = Duration::from_secs(300);

/// The work queues of controllers that run, by the names of the controllers.
pub(crate) type Queues = Arc<Mutex<BTreeMap<String, WorkQueue<Key>>>>;

/// What stands still.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Stall {
    /// A task is blocked, or has ended.
    #[error("{0} does not answer")]
    Silent(String),
    /// A reconciler hangs.
    #[error("controller {controller} has been working on one object for {} s", .so_far.as_secs())]
    LongRun {
        /// Whose.
        controller: String,
        /// How long.
        so_far: Duration,
    },
}

/// Asks what a manager runs whether it moves. Cheap to clone.
#[derive(Clone)]
pub struct Progress {
    tasks: Vec<(String, LivenessProbe)>,
    queues: Queues,
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress").field("tasks", &self.tasks).finish_non_exhaustive()
    }
}

impl Progress {
    pub(super) fn new(tasks: Vec<(String, LivenessProbe)>, queues: Queues) -> Self {
        Self { tasks, queues }
    }

    /// Asks one more task, which is called so in a [`Stall`].
    #[must_use]
    pub fn with(mut self, name: &str, probe: LivenessProbe) -> Self {
        self.tasks.push((name.to_owned(), probe));
        self
    }

    /// What stands still; none if all answers, and no reconciler has taken over five minutes for one object.
    pub async fn stall(&self) -> Option<Stall> {
        for (name, probe) in &self.tasks {
            if !probe.is_alive().await {
                return Some(Stall::Silent(name.clone()));
            }
        }
        let queues = self.queues.lock();
        let mut runs = queues.iter().map(|(controller, queue)| (controller, queue.longest_run()));
        let (controller, so_far) = runs.find(|(_, so_far)| *so_far > MAX_RUN_TIME)?;
        Some(Stall::LongRun { controller: controller.clone(), so_far })
    }
}
