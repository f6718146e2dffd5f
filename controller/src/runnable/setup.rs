//! What a run is given.

use std::{fmt, sync::Arc};

use contiv_store::Store;
use tokio_util::sync::CancellationToken;

use crate::{
    progress::Queues,
    queue::WorkQueueMetrics,
    writer::{Fence, Writer},
};

/// What a manager gives to each run, and a controller to its initializer, when the caches do not exist yet.
#[derive(Clone)]
pub struct Setup {
    /// The store, for reads that no cache can answer.
    pub store: Arc<dyn Store>,
    /// Writes to the store while the lease is held.
    pub writer: Writer,
    /// Cancelled when no further work may be started; work in progress may finish.
    pub stop: CancellationToken,
    /// Cancelled when work in progress must be dropped too.
    pub(crate) abort: CancellationToken,
    pub(crate) metrics: Option<WorkQueueMetrics>,
    /// Where a run registers its work queue.
    pub(crate) queues: Queues,
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").field("writer", &self.writer).finish_non_exhaustive()
    }
}

impl Setup {
    /// For a run over this store, whose writes are fenced by this term.
    pub(crate) fn new(store: Arc<dyn Store>, fence: Option<Fence>) -> Self {
        Self {
            writer: Writer::new(Arc::clone(&store), fence),
            store,
            stop: CancellationToken::new(),
            abort: CancellationToken::new(),
            metrics: None,
            queues: Queues::default(),
        }
    }
}
