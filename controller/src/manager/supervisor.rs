//! Keeps one controller running while its lease is held.

use std::{sync::Arc, time::Duration};

use contiv_store::{Backoff, Store};
use tokio::{
    task::{JoinError, JoinHandle},
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::{
    controller::{AnyController, Environment, RunError, Standby},
    lease::{Lease, LeaseTerm},
    progress::Queues,
    queue::WorkQueueMetrics,
    writer::Writer,
};

/// The pause between two attempts to fill the caches of a standby.
const STANDBY_PAUSE: Duration = Duration::from_secs(1);
/// After a run that took longer a controller is restarted at once, otherwise after a pause, as in consul's supervisor.
const LONG_RUN: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

pub(super) struct Supervisor {
    pub(super) controller: Arc<dyn AnyController>,
    pub(super) store: Arc<dyn Store>,
    pub(super) lease: Lease,
    pub(super) metrics: Option<WorkQueueMetrics>,
    pub(super) queues: Queues,
    pub(super) grace: Duration,
    pub(super) stop: CancellationToken,
}

/// The pause before the next run, given the length of the last one.
fn pause_after(run: Duration, backoff: &mut Backoff) -> Duration {
    if run > LONG_RUN {
        backoff.reset();
        return Duration::ZERO;
    }
    backoff.next(rand::random())
}

/// Why a run ended.
enum RunEnd {
    Stopped,
    LeaseLost,
    ByItself,
}

impl Supervisor {
    pub(super) async fn run(mut self) {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let stop = self.stop.clone();
        while let Some((term, standby)) = stop.run_until_cancelled(self.wait()).await {
            let start = Instant::now();
            match self.run_once(&term, standby).await {
                RunEnd::Stopped => return,
                RunEnd::LeaseLost => backoff.reset(),
                RunEnd::ByItself => {
                    let pause = pause_after(start.elapsed(), &mut backoff);
                    tokio::select! {
                        () = sleep(pause) => {}
                        () = stop.cancelled() => return,
                        () = self.lease.is_over(&term) => backoff.reset(),
                    }
                }
            }
        }
    }

    /// Waits for the lease while the standby is kept warm.
    async fn wait(&mut self) -> (LeaseTerm, Box<dyn Standby>) {
        loop {
            let mut standby = Arc::clone(&self.controller).stand_by(&self.store);
            let problem = tokio::select! {
                biased;
                term = self.lease.acquired() => return (term, standby),
                problem = standby.keep_warm() => problem,
            };
            error!(controller = self.controller.name(), %problem, "the caches of the standby are lost");
            sleep(STANDBY_PAUSE).await;
        }
    }

    /// Runs the controller for at most one term and returns when all its tasks have ended.
    async fn run_once(&mut self, term: &LeaseTerm, standby: Box<dyn Standby>) -> RunEnd {
        let environment = Environment {
            store: Arc::clone(&self.store),
            writer: Writer::new(Arc::clone(&self.store), term.fence.clone()),
            metrics: self.metrics.clone(),
            queues: Arc::clone(&self.queues),
            stop: CancellationToken::new(),
            abort: CancellationToken::new(),
        };
        let (stop, abort) = (environment.stop.clone(), environment.abort.clone());
        info!(controller = self.controller.name(), "starting");
        // A separate task, so that a panic ends only this run.
        let mut task = tokio::spawn(standby.run(environment));
        tokio::select! {
            ended = &mut task => {
                self.report(ended);
                RunEnd::ByItself
            }
            () = self.lease.is_over(term) => {
                info!(controller = self.controller.name(), "the lease is lost; stopping");
                stop.cancel();
                abort.cancel();
                self.report(task.await);
                RunEnd::LeaseLost
            }
            () = self.stop.cancelled() => {
                stop.cancel();
                self.end(task, &abort).await;
                RunEnd::Stopped
            }
        }
    }

    /// Waits for a stopped task to end, and aborts its work when the grace period is over.
    async fn end(&self, mut task: JoinHandle<Result<(), RunError>>, abort: &CancellationToken) {
        let ended = if let Ok(ended) = timeout(self.grace, &mut task).await {
            ended
        } else {
            abort.cancel();
            task.await
        };
        self.report(ended);
    }

    fn report(&self, ended: Result<Result<(), RunError>, JoinError>) {
        let name = self.controller.name();
        match ended {
            Ok(Ok(())) => info!(controller = name, "stopped"),
            Ok(Err(problem)) => error!(controller = name, %problem, "failed"),
            Err(problem) => error!(controller = name, %problem, "panicked"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_that_was_long_is_started_again_at_once() {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        assert!(pause_after(LONG_RUN, &mut backoff) <= FIRST_PAUSE);
        assert!(pause_after(Duration::ZERO, &mut backoff) >= FIRST_PAUSE);
        assert_eq!(pause_after(LONG_RUN + Duration::from_millis(1), &mut backoff), Duration::ZERO);
        assert!(pause_after(LONG_RUN, &mut backoff) <= FIRST_PAUSE);
    }
}
