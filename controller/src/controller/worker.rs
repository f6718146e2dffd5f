//! A worker: takes a key, runs the reconciler and applies its outcome.

use std::{panic::AssertUnwindSafe, time::Duration};

use futures::FutureExt;
use rand::RngExt;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use super::{
    Context, Controller, Outcome, RequeueAfterError, panic_text::panic_text,
    reconciler::ReconcileFn,
};
use crate::{
    BoxError,
    queue::{Retry, WorkQueue},
    resource::Key,
};

/// Resyncs are early by up to this fraction, so that not all keys are due at the same time.
const RESYNC_JITTER: f64 = 0.2;

pub(super) struct Worker<T> {
    pub(super) name: String,
    pub(super) reconciler: ReconcileFn<T>,
    pub(super) resync: Option<Duration>,
    pub(super) queue: WorkQueue<Key>,
    pub(super) context: Context<T>,
}

impl<T: Send + Sync + 'static> Worker<T> {
    pub(super) fn new(
        controller: &Controller<T>,
        queue: &WorkQueue<Key>,
        context: &Context<T>,
    ) -> Self {
        Self {
            name: controller.name.clone(),
            reconciler: std::sync::Arc::clone(&controller.reconciler),
            resync: controller.resync,
            queue: queue.clone(),
            context: context.clone(),
        }
    }

    /// Works until the queue has ended or work is aborted.
    pub(super) async fn run(self, abort: CancellationToken) {
        while let Some(key) = self.queue.get().await {
            tokio::select! {
                biased;
                () = abort.cancelled() => return,
                () = self.process(&key) => {}
            }
        }
    }

    async fn process(&self, key: &Key) {
        if let Some(problem) = self.context.cache().view().unreadable(key) {
            // The reconciler would treat the object as deleted, so it does not run until the object can be read or really is
            // deleted.
            warn!(controller = self.name, %key, problem, "cannot be read, so it is not reconciled");
            return;
        }
        let deleted = self.context.last_known(key);
        let is_settled =
            match reconcile(&self.reconciler, self.context.clone(), Key::clone(key)).await {
                Ok(outcome) => {
                    self.on_success(key, outcome);
                    true
                }
                Err(error) => self.on_failure(key, &error),
            };
        if is_settled && let Some(deleted) = deleted {
            self.context.deleted_objects().forget(&deleted);
        }
    }

    fn on_success(&self, key: &Key, outcome: Outcome) {
        debug!(controller = self.name, %key, ?outcome, "reconciled");
        self.queue.forget(key);
        match outcome {
            Outcome::Done => {
                if self.context.cache().get(key).is_some() {
                    self.schedule_resync(key);
                }
            }
            Outcome::RequeueAfter(delay) => self.queue.add_after(Key::clone(key), delay),
            Outcome::RequeueNow => self.queue.add(Key::clone(key)),
        }
    }

    /// Records a failure and returns whether the key will not be retried.
    fn on_failure(&self, key: &Key, error: &BoxError) -> bool {
        match self.queue.retry(Key::clone(key)) {
            Retry::After(delay) => {
                warn!(controller = self.name, %key, %error, ?delay, "failed to reconcile; trying again");
                false
            }
            Retry::Dropped => {
                error!(controller = self.name, %key, %error, "failed to reconcile as often as the budget allows");
                self.schedule_resync(key);
                self.resync.is_none()
            }
        }
    }

    fn schedule_resync(&self, key: &Key) {
        if let Some(interval) = self.resync {
            let delay = interval.mul_f64(1.0 - rand::rng().random_range(0.0..RESYNC_JITTER));
            self.queue.add_after(Key::clone(key), delay);
        }
    }
}

/// Runs the reconciler once. A panic becomes an error, and [`RequeueAfterError`] an outcome.
pub(super) async fn reconcile<T>(
    reconciler: &ReconcileFn<T>,
    context: Context<T>,
    key: Key,
) -> Result<Outcome, BoxError> {
    // The call that creates the future may panic too.
    let run = async { reconciler(context, key).await };
    let result = AssertUnwindSafe(run)
        .catch_unwind()
        .await
        .unwrap_or_else(|panic| Err(format!("it panicked: {}", panic_text(panic.as_ref())).into()));
    result.or_else(|error| Ok(Outcome::from(*error.downcast::<RequeueAfterError>()?)))
}
