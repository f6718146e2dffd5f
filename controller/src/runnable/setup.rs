//! The input of a run.

use std::{fmt, sync::Arc};

use contiv_store::Store;
use tokio_util::sync::CancellationToken;

use crate::{
    progress::Queues,
    queue::WorkQueueMetrics,
    writer::{Fence, Writer},
};

/// The input of each run, from the manager.
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
    /// The work queues of all runs; a run registers its own.
    pub(crate) queues: Queues,
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup")
            .field("writer", &self.writer)
            .finish_non_exhaustive()
    }
}

impl Setup {
    /// For a run on this store, whose writes are conditional on `fence`.
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
