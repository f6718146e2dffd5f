//! Keeps a controller, or other work, running while its lease is held.

use std::{sync::Arc, time::Duration};

use contiv_store::{Backoff, Store};
use tokio::{
    task::{JoinError, JoinHandle},
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::{
    BoxError,
    lease::{Lease, LeaseTerm},
    progress::Queues,
    queue::WorkQueueMetrics,
    runnable::{Run, Runnable, Setup},
};

/// The pause between two attempts to fill the caches of a standby.
const STANDBY_PAUSE: Duration = Duration::from_secs(1);
/// After a run that took longer a controller is restarted at once, otherwise after a pause, as in consul's supervisor.
const LONG_RUN: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// How long work may take to end at an await point, before it is dropped.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

/// The result of a run, unless it panicked.
type RunResult = Result<Result<(), BoxError>, JoinError>;

pub(super) struct Supervisor {
    pub(super) runnable: Arc<dyn Runnable>,
    pub(super) store: Arc<dyn Store>,
    pub(super) lease: Lease,
    pub(super) metrics: Option<WorkQueueMetrics>,
    pub(super) queues: Queues,
    pub(super) grace_period: Duration,
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
        let mut backoff = Backoff::new(FIRST_PAUSE, MAX_PAUSE);
        let stop = self.stop.clone();
        while let Some((term, run)) = stop.run_until_cancelled(self.wait()).await {
            let start = Instant::now();
            match self.run_once(&term, run).await {
                RunEnd::Stopped => return,
                RunEnd::LeaseLost => backoff.reset(),
                RunEnd::ByItself => {
                    let pause = pause_after(start.elapsed(), &mut backoff);
                    tokio::select! {
                        () = sleep(pause) => {}
                        () = stop.cancelled() => return,
                        () = self.lease.until_over(&term) => backoff.reset(),
                    }
                }
            }
        }
    }

    /// Waits for the lease, and meanwhile keeps the caches of the next run current.
    async fn wait(&mut self) -> (LeaseTerm, Box<dyn Run>) {
        loop {
            let mut run = Arc::clone(&self.runnable).prepare(&self.store);
            let problem = tokio::select! {
                biased;
                term = self.lease.acquired() => return (term, run),
                problem = run.warm_up() => problem,
            };
            error!(controller = self.runnable.name(), %problem, "the caches of the standby are lost");
            sleep(STANDBY_PAUSE).await;
        }
    }

    /// Runs it for at most one term and returns when all its tasks have ended.
    async fn run_once(&mut self, term: &LeaseTerm, run: Box<dyn Run>) -> RunEnd {
        let setup = Setup {
            metrics: self.metrics.clone(),
            queues: Arc::clone(&self.queues),
            ..Setup::new(Arc::clone(&self.store), term.fence.clone())
        };
        let (stop, abort) = (setup.stop.clone(), setup.abort.clone());
        info!(controller = self.runnable.name(), "starting");
        // A separate task, so that a panic ends only this run.
        let mut task = tokio::spawn(run.start(setup));
        tokio::select! {
            ended = &mut task => {
                self.report(ended);
                RunEnd::ByItself
            }
            () = self.lease.until_over(term) => {
                info!(controller = self.runnable.name(), "the lease is lost; stopping");
                stop.cancel();
                self.report(abort_work(task, &abort).await);
                RunEnd::LeaseLost
            }
            () = self.stop.cancelled() => {
                stop.cancel();
                let ended = match timeout(self.grace_period, &mut task).await {
                    Ok(ended) => ended,
                    Err(_) => abort_work(task, &abort).await,
                };
                self.report(ended);
                RunEnd::Stopped
            }
        }
    }

    fn report(&self, ended: RunResult) {
        let name = self.runnable.name();
        match ended {
            Ok(Ok(())) => info!(controller = name, "stopped"),
            Ok(Err(problem)) => error!(controller = name, %problem, "failed"),
            Err(problem) if problem.is_cancelled() => {
                error!(controller = name, "did not stop; dropped");
            }
            Err(problem) => error!(controller = name, %problem, "panicked"),
        }
    }
}

/// Aborts a run at its next await point.
async fn abort_work(
    mut task: JoinHandle<Result<(), BoxError>>,
    abort: &CancellationToken,
) -> RunResult {
    abort.cancel();
    if let Ok(ended) = timeout(ABORT_TIMEOUT, &mut task).await {
        return ended;
    }
    task.abort();
    task.await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_run_is_restarted_at_once() {
        let mut backoff = Backoff::new(FIRST_PAUSE, MAX_PAUSE);
        assert!(pause_after(LONG_RUN, &mut backoff) <= FIRST_PAUSE);
        assert!(pause_after(Duration::ZERO, &mut backoff) >= FIRST_PAUSE);
        assert_eq!(
            pause_after(LONG_RUN + Duration::from_millis(1), &mut backoff),
            Duration::ZERO
        );
        assert!(pause_after(LONG_RUN, &mut backoff) <= FIRST_PAUSE);
    }
}
