//! All types together, before the lease is won and after.

use std::sync::Arc;

use contiv_controller::{BoxError, Runnable, Setup};
use contiv_store::{Store, kube::KINDS};
use futures::{
    FutureExt,
    future::{BoxFuture, select_all, try_join_all},
};
use tokio::sync::mpsc;

use crate::{kind_mirror::KindMirror, source_and_stored::SourceAndStored, stats::Stats};

/// Follows source and store for every type. While it waits for the lease it does nothing else, so that it can continue from there.
pub(crate) struct MirrorController {
    kinds: Vec<SourceAndStored>,
    stats: Stats,
    /// Notified after each change of the counters.
    told: mpsc::Sender<()>,
}

impl MirrorController {
    pub(crate) fn new(
        source: &Arc<dyn Store>,
        store: &Arc<dyn Store>,
        stats: &Stats,
        told: &mpsc::Sender<()>,
    ) -> Self {
        let of = |kind| SourceAndStored::new(kind, Arc::clone(source), Arc::clone(store), stats.clone());
        Self { kinds: KINDS.map(of).into(), stats: stats.clone(), told: told.clone() }
    }
}

impl Runnable for MirrorController {
    fn warm_up(&mut self) -> BoxFuture<'_, BoxError> {
        let kinds = self.kinds.iter_mut().map(|objects| objects.keep_warm().boxed());
        select_all(kinds).map(|(error, ..)| error).boxed()
    }

    fn start(self: Box<Self>, setup: Setup) -> BoxFuture<'static, Result<(), BoxError>> {
        let Self { kinds, stats, told } = *self;
        let stopped = OnEnd(stats.clone());
        let mut changes = stats.changes();
        let telling = async move {
            while changes.changed().await.is_ok() {
                // One pending notification is enough.
                let _ = told.try_send(());
            }
        };
        async move {
            let _stopped = stopped;
            let mirrors =
                kinds.into_iter().map(|objects| KindMirror::new(objects, setup.writer.clone()).run());
            let work = async {
                tokio::select! {
                    () = telling => Ok(()),
                    ended = try_join_all(mirrors) => ended.map(drop),
                }
            };
            setup.stop.run_until_cancelled(work).await.unwrap_or(Ok(()))
        }
        .boxed()
    }
}

/// Nothing is synced any more when the run ends, in whatever way.
struct OnEnd(Stats);

impl Drop for OnEnd {
    fn drop(&mut self) {
        self.0.stopped();
    }
}
