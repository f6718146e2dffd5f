//! What a controller is run with.

use std::sync::Arc;

use contiv_store::Store;
use tokio_util::sync::CancellationToken;

use crate::{progress::Queues, queue::WorkQueueMetrics, writer::Writer};

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
