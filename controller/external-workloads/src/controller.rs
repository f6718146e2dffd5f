//! The control loop.

use std::{sync::Arc, time::Duration};

use contiv_controller::{BuildError, Context, Controller, Key, queue::TokenBucket};

use crate::{
    reconciler::SliceReconciler,
    service::{Service, services},
    slice::slices,
    tracker::CommitTracker,
    watches::{
        changes_endpoints, is_news, selectors, slice_service, to_service, to_services,
        workload_labels,
    },
    workload::workloads,
};

/// Its name, in logs and as the label `name` of its work queue's metrics.
pub const NAME: &str = "external-workloads";

/// How often a failing service is retried before it is dropped until the next change or resync.
const RETRY_BUDGET: u32 = 15;
/// The limit for retries of all services together.
const RETRY_BUCKET: TokenBucket = TokenBucket {
    per_second: 10.0,
    burst: 100,
};
/// How often each service is reconciled without a change.
const RESYNC_INTERVAL: Duration = Duration::from_secs(10 * 60);
/// How many services are reconciled concurrently. Most of the time is spent waiting for the store, which can write many at
/// once.
const CONCURRENT_RECONCILIATIONS: usize = 32;

/// Maintains the endpoint slices of all services that select external workloads, while the lease is held.
///
/// Register it with a [`Manager`](contiv_controller::Manager) whose lease comes from an election: then every write is fenced,
/// and names its term.
///
/// # Errors
/// Never: this configuration is valid.
pub fn controller() -> Result<Controller<Service>, BuildError> {
    let services = services().with_index(selectors());
    let workloads = workloads().with_index(workload_labels());
    let slices = slices().with_index(slice_service());
    let tracker = Arc::new(CommitTracker::default());
    let reconciler = SliceReconciler {
        workloads: workloads.clone(),
        slices: slices.clone(),
        tracker: Arc::clone(&tracker),
    };
    let news = Arc::clone(&tracker);
    Controller::for_type(&services)
        .named(NAME)
        .with_watch_of(&workloads, changes_endpoints, to_services(&services))
        .with_watch_of(&slices, move |event| is_news(&news, event), to_service())
        // Writes of an earlier term are outdated: other instances have written since.
        .on_start(move || tracker.clear())
        .with_retry_budget(RETRY_BUDGET)
        .with_retry_bucket(RETRY_BUCKET)
        .with_resync(Some(RESYNC_INTERVAL))
        .with_warm_standby()
        .with_concurrency(CONCURRENT_RECONCILIATIONS)
        .with_reconciler(move |context: Context<Service>, key: Key| {
            reconciler.clone().reconcile(context, key)
        })
        .build()
}

#[cfg(test)]
mod tests;
