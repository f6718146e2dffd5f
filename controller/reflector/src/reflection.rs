//! One type: its two sides, followed, and what they differ in, written.

use std::{sync::Arc, time::Duration};

use contiv_controller::{BoxError, WriteError, Writer};
use contiv_proto::{Key, Kind};
use contiv_store::{Feed, FeedEvent, FeedHandle, Store};
use tokio::{
    sync::mpsc::Receiver,
    time::{Instant, sleep_until},
};
use tracing::{info, warn};

use crate::{
    batch::{LARGEST, Planned},
    state::State,
    stats::Stats,
};

/// How long to wait after a write that failed; twice as long each time, up to the longest. Contiv's times.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// When a key that was set aside is tried again if nothing is heard of it: then the store is listed anew, too.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Reflection {
    kind: Kind,
    source: Arc<dyn Store>,
    store: Arc<dyn Store>,
    writer: Writer,
    stats: Stats,
    state: State,
    /// How many writes go together: all, or one while it is to be found out which one the store refuses.
    limit: usize,
    pause: Duration,
    /// Nothing is written before.
    not_before: Option<Instant>,
    /// When to try again what was set aside.
    retry: Option<Instant>,
    was_synced: bool,
}

/// The two sides.
struct Feeds {
    wanted: Receiver<FeedEvent>,
    stored: Receiver<FeedEvent>,
    /// Of what is stored.
    handle: FeedHandle,
}

impl Reflection {
    pub(crate) fn new(
        kind: Kind,
        source: Arc<dyn Store>,
        store: Arc<dyn Store>,
        writer: Writer,
        stats: Stats,
    ) -> Self {
        Self {
            kind,
            source,
            store,
            writer,
            stats,
            state: State::default(),
            limit: LARGEST,
            pause: FIRST_PAUSE,
            not_before: None,
            retry: None,
            was_synced: false,
        }
    }

    /// Runs for ever.
    ///
    /// # Errors
    /// When the lease is lost, or a side can no longer be followed.
    pub(crate) async fn run(mut self) -> Result<(), BoxError> {
        let prefix = Key::prefix(self.kind);
        let (mut wanted, _wanted_handle) = Feed::start(Arc::clone(&self.source), prefix.as_str());
        // One list after the other: while it is taken in, a list is there twice.
        while !self.state.has_wanted() {
            let event = wanted.recv().await.ok_or("Kubernetes can no longer be followed")?;
            self.take_in_wanted(event);
        }
        let (stored, handle) = Feed::start(Arc::clone(&self.store), prefix);
        let mut feeds = Feeds { wanted, stored, handle };
        loop {
            self.take_in_all(&mut feeds)?;
            self.measure();
            if self.not_before.is_some_and(|at| Instant::now() < at) || !self.write(&feeds.handle).await? {
                self.wait(&mut feeds).await?;
            }
        }
    }

    /// Takes in whatever is there already.
    fn take_in_all(&mut self, feeds: &mut Feeds) -> Result<(), BoxError> {
        while let Ok(event) = feeds.wanted.try_recv() {
            self.take_in_wanted(event);
        }
        while let Ok(event) = feeds.stored.try_recv() {
            self.take_in_stored(event);
        }
        if feeds.wanted.is_closed() || feeds.stored.is_closed() {
            return Err("a side can no longer be followed".into());
        }
        Ok(())
    }

    /// Waits until something happens, or a pause is over.
    async fn wait(&mut self, feeds: &mut Feeds) -> Result<(), BoxError> {
        let due = self.not_before.into_iter().chain(self.retry).min();
        let timer = async {
            match due {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = feeds.wanted.recv() => {
                self.take_in_wanted(event.ok_or("Kubernetes can no longer be followed")?);
            }
            event = feeds.stored.recv() => {
                self.take_in_stored(event.ok_or("the store can no longer be followed")?);
            }
            () = timer => {}
        }
        let now = Instant::now();
        if self.not_before.is_some_and(|at| at <= now) {
            self.not_before = None;
        }
        if self.retry.is_some_and(|at| at <= now) {
            self.retry = None;
            self.state.retry();
            feeds.handle.request_resync();
        }
        Ok(())
    }

    fn take_in_wanted(&mut self, event: FeedEvent) {
        let kind = self.kind;
        match event {
            FeedEvent::Snapshot(snapshot) => {
                let unreadable = self.state.list_wanted(snapshot);
                self.stats.could_not_read(kind, unreadable);
                self.stats.resynced(kind);
            }
            FeedEvent::Changed(batch) => {
                let unreadable = self.state.change_wanted(batch);
                self.stats.could_not_read(kind, unreadable);
            }
            FeedEvent::Problems(problems) => {
                for problem in problems {
                    warn!(%problem, "an object of Kubernetes cannot be read; what is stored of it stays");
                }
            }
            FeedEvent::Down { .. } => self.stats.lost(kind),
            FeedEvent::Up | FeedEvent::Replaced { .. } => {}
        }
    }

    fn take_in_stored(&mut self, event: FeedEvent) {
        match event {
            FeedEvent::Snapshot(snapshot) => {
                self.state.list_stored(snapshot);
                self.stats.resynced(self.kind);
            }
            FeedEvent::Changed(batch) => self.state.change_stored(batch),
            FeedEvent::Down { .. } => self.stats.lost(self.kind),
            FeedEvent::Up | FeedEvent::Replaced { .. } | FeedEvent::Problems(_) => {}
        }
    }

    fn measure(&mut self) {
        let (objects, due, is_listed) = (self.state.wanted(), self.state.due(), self.state.is_listed());
        self.stats.measure(self.kind, objects, due, is_listed);
        if is_listed && due == 0 && !std::mem::replace(&mut self.was_synced, true) {
            info!(kind = %self.kind, objects, "the store has what Kubernetes has");
        }
    }

    /// Writes the next batch. False if there is none.
    async fn write(&mut self, handle: &FeedHandle) -> Result<bool, BoxError> {
        let planned = self.state.plan(self.limit);
        if planned.is_empty() {
            self.limit = LARGEST;
            return Ok(false);
        }
        let writes = planned.iter().map(|planned| planned.write.clone()).collect();
        match self.writer.commit(writes).await {
            Ok(revision) => {
                for Planned { action, .. } in &planned {
                    self.stats.wrote(self.kind, *action);
                }
                self.state.written(&planned, revision.unwrap_or_default());
                self.pause = FIRST_PAUSE;
            }
            Err(error) => self.recover(&planned, error, handle)?,
        }
        Ok(true)
    }

    /// Decides what becomes of a batch that was not written.
    fn recover(
        &mut self,
        planned: &[Planned],
        error: WriteError,
        handle: &FeedHandle,
    ) -> Result<(), BoxError> {
        let failed = |planned: &[Planned], stats: &Stats| {
            for Planned { action, .. } in planned {
                stats.failed(self.kind, *action);
            }
        };
        match error {
            WriteError::Deposed { .. } | WriteError::Twice { .. } => return Err(error.into()),
            // Somebody else wrote it, or this program did and the answer was lost: it will be heard of.
            WriteError::Conflict { key } => self.set_aside(&key),
            WriteError::Store(error @ contiv_store::StoreError::Refused { .. }) => match planned {
                [one] => {
                    failed(planned, &self.stats);
                    warn!(key = %one.path, %error, "the store refuses an object; the others go on");
                    let path = Arc::clone(&one.path);
                    self.set_aside(&path);
                }
                _ => self.limit = 1,
            },
            WriteError::Store(error) => {
                failed(planned, &self.stats);
                warn!(kind = %self.kind, %error, "failed to write; trying again");
                self.not_before = Some(Instant::now() + self.pause);
                self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                // What was written of it is seen then.
                handle.request_resync();
            }
        }
        Ok(())
    }

    fn set_aside(&mut self, key: &str) {
        self.state.set_aside(key);
        self.retry.get_or_insert_with(|| Instant::now() + PATIENCE);
    }
}
