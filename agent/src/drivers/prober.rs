//! Probes of backends: whether one accepts a connection of this node.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{net::TcpStream, runtime::Handle, sync::Semaphore, time::timeout};

/// How many probes run at the same time; others wait.
pub(super) const MAX_PROBES: usize = 64;

/// Makes probes. Clones share the limit.
#[derive(Debug, Clone)]
pub(super) struct Prober {
    /// How long an answer may take.
    answer_within: Duration,
    permits: Arc<Semaphore>,
}

impl Prober {
    pub(super) fn new(answer_within: Duration) -> Self {
        Self {
            answer_within,
            permits: Arc::new(Semaphore::new(MAX_PROBES)),
        }
    }

    /// How long an answer may take.
    pub(super) const fn answer_within(&self) -> Duration {
        self.answer_within
    }

    /// Tries to connect to a backend, and reports whether it accepted.
    pub(super) fn probe<F>(
        &self,
        runtime: &Handle,
        backend: SocketAddr,
        report: impl FnOnce(bool) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let (permits, answer_within) = (Arc::clone(&self.permits), self.answer_within);
        runtime.spawn(async move {
            // Never closed.
            let Ok(permit) = permits.acquire().await else {
                return;
            };
            let connected = timeout(answer_within, TcpStream::connect(backend)).await;
            drop(permit);
            report(matches!(connected, Ok(Ok(_)))).await;
        });
    }
}
