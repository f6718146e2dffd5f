//! All types together, before the lease is won and after.

use std::sync::Arc;

use bytes::Bytes;
use contiv_controller::{Background, BoxError, Context};
use contiv_store::Store;
use futures::{
    FutureExt,
    future::{BoxFuture, select_all, try_join_all},
};
use tokio::sync::mpsc;

use crate::{KINDS, kind_mirror::KindMirror, source_and_stored::SourceAndStored, stats::Stats};

/// Follows both sides of every type. While it waits for the lease it does nothing else, so that it can continue from there.
pub(crate) struct MirrorController {
    sides: Vec<SourceAndStored>,
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
        Self { sides: KINDS.map(of).into(), stats: stats.clone(), told: told.clone() }
    }
}

impl Background<Bytes> for MirrorController {
    fn keep_warm(&mut self) -> BoxFuture<'_, BoxError> {
        let sides = self.sides.iter_mut().map(|sides| sides.keep_warm().boxed());
        select_all(sides).map(|(error, ..)| error).boxed()
    }

    fn run(self: Box<Self>, context: Context<Bytes>) -> BoxFuture<'static, Result<(), BoxError>> {
        let Self { sides, stats, told } = *self;
        let mut changes = stats.changes();
        let telling = async move {
            while changes.changed().await.is_ok() {
                // One pending notification is enough.
                let _ = told.try_send(());
            }
        };
        async move {
            let mirrors =
                sides.into_iter().map(|sides| KindMirror::new(sides, context.writer().clone()).run());
            let work = async {
                tokio::select! {
                    () = telling => Ok(()),
                    ended = try_join_all(mirrors) => ended.map(drop),
                }
            };
            context.stop().run_until_cancelled(work).await.unwrap_or(Ok(()))
        }
        .boxed()
    }
}
