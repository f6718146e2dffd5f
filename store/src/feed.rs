//! List and watch, for ever: the one place that knows how to follow a store.

mod outage;

use std::{collections::VecDeque, convert::Infallible, ops::ControlFlow, sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt};
use tokio::{
    sync::{Notify, mpsc},
    time::Instant,
};
use tracing::{debug, error, warn};

use crate::{
    Backoff, Batch, Position, Preview, Problem, Snapshot, Store, StoreError, WatchEvent, WatchStream,
};
use outage::{Outage, Report};

/// Between two attempts to follow the store.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What a feed delivers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FeedEvent {
    /// Everything there is. The first event with content, and again whenever changes may have been missed; what is not
    /// in it is gone.
    Snapshot(Snapshot),
    /// What changed since the event before. Never empty.
    Changed(Batch),
    /// What the store itself cannot read is now this (the complete list; replaces the one before).
    Problems(Vec<Problem>),
    /// The store cannot be followed at the moment. Sent once for each cause of an outage; what was delivered so far still
    /// holds.
    Down {
        /// What went wrong.
        reason: String,
    },
    /// The store has other data than it had: it was restored from a backup, wiped, or exchanged. What was delivered still
    /// holds, until the snapshot that comes next.
    Replaced {
        /// By what it was noticed.
        reason: String,
    },
    /// The store is followed again and nothing was missed: the end of an outage that needs no snapshot. Also the answer to
    /// [`FeedHandle::request_renewal`].
    Up,
}

/// An event, and when the store said it: how long an event waits for its receiver counts from there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// What the feed delivers.
    pub event: FeedEvent,
    /// When the message of the store was there; of what the feed itself has found out, when it did.
    pub received: Instant,
}

/// How many events may wait for a slow receiver before the feed stops reading from the store.
const CAPACITY: usize = 64;
/// How many bytes of changes may wait, unless it is one batch alone.
const CAPACITY_BYTES: usize = 16 << 20;

/// Follows one prefix of a store, in a task of its own, until its receiver is dropped.
pub struct Feed {
    store: Arc<dyn Store>,
    prefix: String,
    preview: Option<Arc<dyn Preview>>,
    events: mpsc::Sender<Delivery>,
    /// The sizes of the events that were sent last; those that wait are among them.
    sizes: VecDeque<usize>,
    resync: Arc<Notify>,
    renewal: Arc<Notify>,
    backoff: Backoff,
    /// What was delivered; none when a list is due.
    position: Option<Position>,
    /// None while the store is followed.
    outage: Option<Outage>,
    /// Whether the receiver waits to hear that the store answers.
    is_renewing: bool,
    /// What the receiver knows of what the store cannot read.
    problems: Vec<Problem>,
}

/// Asks a running feed to list again, or to make sure that the store answers.
#[derive(Debug, Clone)]
pub struct FeedHandle {
    resync: Arc<Notify>,
    renewal: Arc<Notify>,
}

impl FeedHandle {
    /// Lists again now, and delivers what is there as a [`FeedEvent::Snapshot`]. Requests that come before the list
    /// begins are one request.
    pub fn request_resync(&self) {
        self.resync.notify_one();
    }

    /// Opens the watch again, from where it is, without listing anything. [`FeedEvent::Up`] says that the store has answered
    /// since, or [`FeedEvent::Snapshot`] where revisions are gone. A connection that is dead without a word is found out.
    pub fn request_renewal(&self) {
        self.renewal.notify_one();
    }
}

/// Why following stopped.
enum Stop {
    /// Nobody listens.
    ReceiverGone,
    /// List again, now.
    Resync,
    /// Open the watch again, now.
    Renewal,
    Failed(StoreError),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl Feed {
    /// Starts to follow everything below `prefix`. Must be called within a tokio runtime.
    pub fn start(store: Arc<dyn Store>, prefix: impl Into<String>) -> (mpsc::Receiver<Delivery>, FeedHandle) {
        Self::start_showing(store, prefix, None)
    }

    /// As [`Feed::start`], for a receiver who wants to see what lists bring while they are read.
    pub fn start_with_preview(
        store: Arc<dyn Store>,
        prefix: impl Into<String>,
        preview: Arc<dyn Preview>,
    ) -> (mpsc::Receiver<Delivery>, FeedHandle) {
        Self::start_showing(store, prefix, Some(preview))
    }

    fn start_showing(
        store: Arc<dyn Store>,
        prefix: impl Into<String>,
        preview: Option<Arc<dyn Preview>>,
    ) -> (mpsc::Receiver<Delivery>, FeedHandle) {
        let (events, receiver) = mpsc::channel(CAPACITY);
        let (resync, renewal) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let handle = FeedHandle { resync: Arc::clone(&resync), renewal: Arc::clone(&renewal) };
        let feed = Self {
            store,
            prefix: prefix.into(),
            preview,
            events,
            sizes: VecDeque::new(),
            resync,
            renewal,
            backoff: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
            position: None,
            outage: None,
            is_renewing: false,
            problems: Vec::new(),
        };
        tokio::spawn(feed.run());
        (receiver, handle)
    }

    async fn run(mut self) {
        loop {
            let Err(stop) = self.follow().await;
            let flow = match stop {
                Stop::ReceiverGone => ControlFlow::Break(()),
                Stop::Resync => {
                    self.position = None;
                    ControlFlow::Continue(())
                }
                Stop::Renewal => {
                    self.is_renewing = true;
                    ControlFlow::Continue(())
                }
                // The store answers, so the watch is opened again, now, and nobody is told.
                Stop::Failed(StoreError::Silent { .. }) => ControlFlow::Continue(()),
                Stop::Failed(error) => self.recover(error).await,
            };
            if flow.is_break() {
                return;
            }
        }
    }

    /// Lists if that is due, then passes on what the watch says until it ends.
    async fn follow(&mut self) -> Result<Infallible, Stop> {
        let position = match self.position.clone() {
            Some(position) => position,
            None => self.list().await?,
        };
        let store = Arc::clone(&self.store);
        let mut watch = self.unless_stopped(store.follow(&self.prefix, &position)).await??;
        let healthy_since = Instant::now();
        if self.outage.is_some() || self.is_renewing {
            self.has_answered();
            self.send(FeedEvent::Up).await?;
        }
        let error = loop {
            match self.next(&mut watch).await? {
                Ok(event) => {
                    self.backoff.reset();
                    self.pass_on(event, Instant::now()).await?;
                }
                Err(error) => break error,
            }
        };
        // Less does not count, or a watch that always opens and always fails would be opened again without pause.
        if healthy_since.elapsed() >= LONGEST_PAUSE {
            self.backoff.reset();
        }
        Err(error.into())
    }

    async fn list(&mut self) -> Result<Position, Stop> {
        let store = Arc::clone(&self.store);
        // Whatever was asked for until now is this list; what is asked for while it runs is another one.
        self.resync.notified().now_or_never();
        self.renewal.notified().now_or_never();
        let list = match &self.preview {
            None => store.list(&self.prefix),
            Some(preview) => store.list_with_preview(&self.prefix, &**preview),
        };
        let listed = tokio::select! {
            () = self.events.closed() => return Err(Stop::ReceiverGone),
            listed = list => listed,
        };
        let snapshot = listed?;
        debug!(revision = snapshot.revision, entries = snapshot.entries.len(), "listed the store");
        let position = Position::of(&snapshot);
        self.has_answered();
        self.problems.clone_from(&snapshot.problems);
        self.send(FeedEvent::Snapshot(snapshot)).await?;
        self.position = Some(position.clone());
        Ok(position)
    }

    fn has_answered(&mut self) {
        (self.outage, self.is_renewing) = (None, false);
    }

    async fn next(&self, watch: &mut WatchStream) -> Result<Result<WatchEvent, StoreError>, Stop> {
        let event = self.unless_stopped(watch.next()).await?;
        Ok(event.unwrap_or_else(|| {
            Err(StoreError::Unavailable {
                endpoint: self.prefix.clone(),
                reason: "the watch ended without saying why".to_owned(),
            })
        }))
    }

    async fn pass_on(&mut self, event: WatchEvent, received: Instant) -> Result<(), Stop> {
        match event {
            WatchEvent::Problems(problems) => self.replace_problems(problems).await,
            WatchEvent::Changed(batch) => {
                let problems = self.without_changed(&batch);
                // Whoever stops here has gone, or lists anew.
                if let Some(position) = &mut self.position {
                    position.advance(&batch);
                }
                if !batch.changes.is_empty() {
                    self.deliver(FeedEvent::Changed(batch), received).await?;
                }
                match problems {
                    Some(problems) => self.replace_problems(problems).await,
                    None => Ok(()),
                }
            }
        }
    }

    async fn replace_problems(&mut self, problems: Vec<Problem>) -> Result<(), Stop> {
        self.problems.clone_from(&problems);
        self.send(FeedEvent::Problems(problems)).await
    }

    /// The problems without those of keys that have changed since, if there are any of those: a list says what is wrong
    /// with the value of a key, and the next change of the key is another value.
    fn without_changed(&self, batch: &Batch) -> Option<Vec<Problem>> {
        let is_changed =
            |problem: &&Problem| batch.changes.iter().any(|change| change.key() == problem.source);
        let left: Vec<Problem> =
            self.problems.iter().filter(|problem| !is_changed(problem)).cloned().collect();
        (left.len() < self.problems.len()).then_some(left)
    }

    /// Says what of it is new to the receiver, and waits before the next attempt.
    async fn recover(&mut self, error: StoreError) -> ControlFlow<()> {
        if matches!(error, StoreError::Rewound { .. } | StoreError::Replaced { .. }) {
            error!(%error, "the store has other data than it had; listing it");
            self.position = None;
            if self.send(FeedEvent::Replaced { reason: error.to_string() }).await.is_err() {
                return ControlFlow::Break(());
            }
        } else if matches!(error, StoreError::Compacted { .. } | StoreError::TooLarge { .. }) {
            warn!(%error, "changes were missed; listing again");
            self.position = None;
        } else if self.report_outage(&error).await.is_err() {
            return ControlFlow::Break(());
        }
        let pause = tokio::time::sleep(self.backoff.next(rand::random()));
        match self.unless_stopped(pause).await {
            Err(Stop::ReceiverGone) => return ControlFlow::Break(()),
            Err(Stop::Renewal) => self.is_renewing = true,
            Err(_) => self.position = None,
            Ok(()) => {}
        }
        ControlFlow::Continue(())
    }

    async fn report_outage(&mut self, error: &StoreError) -> Result<(), Stop> {
        let now = Instant::now();
        let is_first = self.outage.is_none();
        let reason = error.to_string();
        let report = self.outage.get_or_insert_with(|| Outage::begin(now)).add(&reason, now);
        match report {
            Report::Cause if is_first => warn!(%error, "lost the store"),
            Report::Cause => warn!(%error, "the store is still lost, and for another reason"),
            Report::Lasts(duration) => {
                let seconds = duration.as_secs();
                warn!(%error, seconds, "the store has not been followed for a while; what it said last is in force");
            }
            Report::Nothing => debug!(%error, "the store is still lost"),
        }
        match report {
            Report::Cause => self.send(FeedEvent::Down { reason }).await,
            Report::Lasts(_) | Report::Nothing => Ok(()),
        }
    }

    async fn send(&mut self, event: FeedEvent) -> Result<(), Stop> {
        self.deliver(event, Instant::now()).await
    }

    async fn deliver(&mut self, event: FeedEvent, received: Instant) -> Result<(), Stop> {
        let size = if let FeedEvent::Changed(batch) = &event { batch.size() } else { 0 };
        self.make_room(size).await?;
        self.sizes.push_back(size);
        self.events.send(Delivery { event, received }).await.map_err(|_| Stop::ReceiverGone)
    }

    /// Waits until what waits for the receiver is not too much together with one of this size.
    async fn make_room(&mut self, size: usize) -> Result<(), Stop> {
        let waiting = self.events.max_capacity() - self.events.capacity();
        self.sizes.drain(..self.sizes.len().saturating_sub(waiting));
        let mut sum = size;
        let fits = |size: &&usize| {
            sum += **size;
            sum <= CAPACITY_BYTES
        };
        let stay = self.sizes.iter().rev().take_while(fits).count();
        if stay < self.sizes.len() {
            let free = self.events.max_capacity() - stay;
            self.events.reserve_many(free).await.map_err(|_| Stop::ReceiverGone)?;
        }
        Ok(())
    }

    /// Awaits `work`, unless the receiver goes or something is asked for.
    async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Result<T, Stop> {
        tokio::select! {
            biased;
            () = self.events.closed() => Err(Stop::ReceiverGone),
            () = self.resync.notified() => Err(Stop::Resync),
            () = self.renewal.notified() => Err(Stop::Renewal),
            result = work => Ok(result),
        }
    }
}

#[cfg(test)]
mod tests;
