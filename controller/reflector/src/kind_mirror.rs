//! Mirrors one type: writes the differences of source and store.

use std::{future::pending, sync::Arc, time::Duration};

use contiv_controller::{BoxError, WriteError, Writer};
use contiv_proto::Key;
use contiv_store::Backoff;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use crate::{
    batch::{MAX_WRITES, PlannedWrite},
    first_ten::FirstTen,
    source_and_stored::SourceAndStored,
};

/// The first pause between two attempts of a failing write. Contiv's times.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// When a parked key is retried without an event: then the store is listed again too.
const PARKED_RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// The pause after Kubernetes has answered a new leader, since missed changes follow immediately.
const CATCH_UP_DELAY: Duration = Duration::from_millis(100);

pub(crate) struct KindMirror {
    objects: SourceAndStored,
    writer: Writer,
    /// How many writes are made together: all, or one while searching for the write that the store refuses.
    limit: usize,
    backoff: Backoff,
    /// The earliest time of the next write.
    not_before: Option<Instant>,
    /// When to retry parked keys.
    retry: Option<Instant>,
    was_synced: bool,
}

impl KindMirror {
    /// Continues from the known state of source and store.
    pub(crate) const fn new(objects: SourceAndStored, writer: Writer) -> Self {
        Self {
            objects,
            writer,
            limit: MAX_WRITES,
            backoff: Backoff::new(FIRST_PAUSE, MAX_PAUSE),
            not_before: None,
            retry: None,
            was_synced: false,
        }
    }

    /// Writes until an error.
    ///
    /// # Errors
    /// When the lease is lost, or source or store can no longer be watched.
    pub(crate) async fn run(mut self) -> Result<(), BoxError> {
        // The previous leader may have seen newer changes of Kubernetes.
        self.objects.mark_stale();
        while !self.objects.is_fresh() || !self.objects.state.is_listed() {
            self.objects.next().await?;
        }
        self.not_before = Some(Instant::now() + CATCH_UP_DELAY);
        loop {
            self.objects.handle_pending_events();
            self.measure();
            if self.not_before.is_some_and(|at| Instant::now() < at) || !self.write().await? {
                self.wait().await?;
            }
        }
    }

    /// Waits for an event, or the end of a pause.
    async fn wait(&mut self) -> Result<(), BoxError> {
        let due = self.not_before.into_iter().chain(self.retry).min();
        let timer = async {
            match due {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
        };
        tokio::select! {
            result = self.objects.next() => result?,
            () = timer => {}
        }
        let now = Instant::now();
        if self.not_before.is_some_and(|at| at <= now) {
            self.not_before = None;
        }
        if self.retry.is_some_and(|at| at <= now) {
            self.retry = None;
            self.objects.state.retry();
            self.objects.resync_stored();
        }
        Ok(())
    }

    fn measure(&mut self) {
        let taken = self.objects.state.newly_taken();
        if !taken.is_empty() {
            let titles: Vec<String> = taken.iter().map(|path| title(path)).collect();
            warn!(
                objects = %FirstTen(&titles),
                "the store has objects of these names that are not the reflector's; those of Kubernetes are not reflected"
            );
        }
        let SourceAndStored {
            state, stats, kind, ..
        } = &self.objects;
        let (objects, due, is_listed) = (state.source_len(), state.due(), state.is_listed());
        stats.set_progress(*kind, objects, due, is_listed);
        if is_listed && due == 0 && !std::mem::replace(&mut self.was_synced, true) {
            info!(%kind, objects, "the store has what Kubernetes has");
        }
    }

    /// Writes the next batch. False if there is none.
    async fn write(&mut self) -> Result<bool, BoxError> {
        let planned = self.objects.state.plan(self.limit);
        if planned.is_empty() {
            self.limit = MAX_WRITES;
            return Ok(false);
        }
        let writes = planned
            .iter()
            .map(|planned| planned.write.clone())
            .collect();
        match self.writer.commit(writes).await {
            Ok(revision) => {
                for PlannedWrite { action, .. } in &planned {
                    self.objects.stats.count_write(self.objects.kind, *action);
                }
                self.objects
                    .state
                    .written(&planned, revision.unwrap_or_default());
                self.backoff.reset();
            }
            Err(error) => self.recover(&planned, error)?,
        }
        Ok(true)
    }

    /// Handles a batch that failed.
    fn recover(&mut self, planned: &[PlannedWrite], error: WriteError) -> Result<(), BoxError> {
        let failed = |objects: &SourceAndStored| {
            for PlannedWrite { action, .. } in planned {
                objects.stats.count_failure(objects.kind, *action);
            }
        };
        match error {
            WriteError::LeaseLost { .. } | WriteError::DuplicateKey { .. } => {
                return Err(error.into());
            }
            // Another process wrote it, or this one did and the answer was lost: an event will follow.
            WriteError::Conflict { key } => self.park(&key),
            WriteError::Store(error @ contiv_store::StoreError::Refused { .. }) => match planned {
                [one] => {
                    failed(&self.objects);
                    warn!(key = %one.path, %error, "the store refuses an object; the others go on");
                    let path = Arc::clone(&one.path);
                    self.park(&path);
                }
                _ => self.limit = 1,
            },
            WriteError::Store(error) => {
                failed(&self.objects);
                warn!(kind = %self.objects.kind, %error, "failed to write; trying again");
                // No jitter: only the leader writes.
                self.not_before = Some(Instant::now() + self.backoff.next(1.0));
                // That shows which writes succeeded.
                self.objects.resync_stored();
            }
        }
        Ok(())
    }

    fn park(&mut self, key: &str) {
        self.objects.state.park(key);
        self.retry
            .get_or_insert_with(|| Instant::now() + PARKED_RETRY_INTERVAL);
    }
}

/// `service default/web`.
fn title(path: &str) -> String {
    Key::parse(path)
        .ok()
        .flatten()
        .map_or_else(|| path.to_owned(), |key| key.to_string())
}
