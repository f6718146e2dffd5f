//! All types together, before the lease is won and after.

use std::sync::Arc;

use contiv_controller::{BoxError, Run, Runnable, Setup};
use contiv_store::{Store, kube::KINDS};
use futures::{
    FutureExt,
    future::{BoxFuture, select_all, try_join_all},
};

use crate::{kind_mirror::KindMirror, source_and_stored::SourceAndStored, stats::Stats};

/// Reflects `source`, the store of a Kubernetes API server, into the store of the manager, and counts in `stats`.
pub fn controller(source: Arc<dyn Store>, stats: &Stats) -> impl Runnable {
    MirrorController { source, stats: stats.clone() }
}

struct MirrorController {
    source: Arc<dyn Store>,
    stats: Stats,
}

impl Runnable for MirrorController {
    fn name(&self) -> &'static str {
        "reflector"
    }

    fn prepare(self: Arc<Self>, store: &Arc<dyn Store>) -> Box<dyn Run> {
        let of = |kind| {
            SourceAndStored::new(kind, Arc::clone(&self.source), Arc::clone(store), self.stats.clone())
        };
        Box::new(Mirrors { kinds: KINDS.map(of).into(), stats: self.stats.clone() })
    }
}

/// Follows source and store for every type. While it waits for the lease it does nothing else, so that it can continue from there.
struct Mirrors {
    kinds: Vec<SourceAndStored>,
    stats: Stats,
}

impl Run for Mirrors {
    fn warm_up(&mut self) -> BoxFuture<'_, BoxError> {
        let kinds = self.kinds.iter_mut().map(|objects| objects.keep_warm().boxed());
        select_all(kinds).map(|(error, ..)| error).boxed()
    }

    fn start(self: Box<Self>, setup: Setup) -> BoxFuture<'static, Result<(), BoxError>> {
        let Self { kinds, stats } = *self;
        async move {
            let _stopped = OnEnd(stats);
            let mirrors =
                kinds.into_iter().map(|objects| KindMirror::new(objects, setup.writer.clone()).run());
            let ended = setup.stop.run_until_cancelled(try_join_all(mirrors)).await;
            ended.unwrap_or_else(|| Ok(Vec::new())).map(drop)
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
