//! The controller of all types, as a standby and as the leader.

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
    MirrorController {
        source,
        stats: stats.clone(),
    }
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
            SourceAndStored::new(
                kind,
                Arc::clone(&self.source),
                Arc::clone(store),
                self.stats.clone(),
            )
        };
        Box::new(Mirrors {
            kinds: KINDS.map(of).into(),
            stats: self.stats.clone(),
        })
    }
}

/// Watches source and store for every type. A standby does only that, so that a new leader starts from known state.
struct Mirrors {
    kinds: Vec<SourceAndStored>,
    stats: Stats,
}

impl Run for Mirrors {
    fn warm_up(&mut self) -> BoxFuture<'_, BoxError> {
        let kinds = self
            .kinds
            .iter_mut()
            .map(|objects| objects.run_until_error().boxed());
        select_all(kinds).map(|(error, ..)| error).boxed()
    }

    fn start(self: Box<Self>, setup: Setup) -> BoxFuture<'static, Result<(), BoxError>> {
        let Self { kinds, stats } = *self;
        async move {
            let _stopped = MarkStopped(stats);
            let mirrors = kinds
                .into_iter()
                .map(|objects| KindMirror::new(objects, setup.writer.clone()).run());
            let ended = setup.stop.run_until_cancelled(try_join_all(mirrors)).await;
            ended.unwrap_or_else(|| Ok(Vec::new())).map(drop)
        }
        .boxed()
    }
}

/// Marks all types as not synced when dropped: however the run ends.
struct MarkStopped(Stats);

impl Drop for MarkStopped {
    fn drop(&mut self) {
        self.0.mark_stopped();
    }
}
