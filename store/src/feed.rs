//! List and watch with reconnects: the counterpart of client-go's `Reflector.ListAndWatch`, and the only user of
//! [`Store::watch`].

mod outage;

use std::{
    collections::{BTreeSet, VecDeque},
    convert::Infallible,
    ops::ControlFlow,
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, StreamExt};
use tokio::{
    sync::{Notify, mpsc, watch},
    time::{Instant, timeout, timeout_at},
};
use tracing::{debug, error, info, warn};

use crate::{
    Backoff, Batch, Entry, Inconsistency, Position, Problem, ResumePoint, SavedStart, Snapshot,
    Store, StoreError, StoreIdentity, WatchEvent, WatchStream,
    page::{Page, PageSender},
    position::ListPosition,
};
use outage::{Outage, Report};

/// A watch that lasts so long counts as a success: the next failure is followed by the first pause.
const HEALTHY_DURATION: Duration = Duration::from_secs(5);

/// The longest pause before a list, where no watch lasts as long after those before.
pub(crate) const MAX_RELIST_PAUSE: Duration = Duration::from_secs(60);
/// The longest random pause before a list that follows a watch or a saved state: what ends one often ends those of many nodes.
const LIST_SPREAD: Duration = Duration::from_secs(2);
/// How long a feed waits for its saved start. Two million entries would need about 15 s, ten times as long as 200,000.
const SAVED_START_TIMEOUT: Duration = Duration::from_secs(30);
/// So many lists without such a watch are an outage, also if each of them succeeds.
const OUTAGE_LISTS: u32 = 5;

/// The events of a feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FeedEvent {
    /// All entries below the prefix. The first event with content, sent again whenever changes may have been missed; keys that
    /// are not in it are deleted. A feed with pages sends the parts of a list instead.
    Snapshot(Snapshot),
    /// A part of a list, of a feed with pages.
    List(ListPart),
    /// The store at this revision is what was saved, except for the keys of the next event if it has changes of the same revision.
    /// The first event with content of a feed that goes on from a [`SavedStart::Usable`].
    Resumed {
        /// The saved revision.
        revision: i64,
    },
    /// Nothing has changed up to this revision, from where a later start can go on.
    Progress {
        /// The revision.
        revision: i64,
    },
    /// The changes since the previous event. Never empty.
    Changed(Batch),
    /// The complete list of what the store itself cannot read; replaces the previous one.
    Problems(Vec<Problem>),
    /// The store cannot be watched at the moment. Sent once for each cause of an outage; earlier events remain valid.
    Down {
        /// The cause.
        reason: String,
    },
    /// The store has other data than before: it was restored from a backup, wiped, or replaced. Earlier events remain valid
    /// until the following snapshot.
    Replaced {
        /// How it was noticed.
        reason: String,
    },
    /// The store has said something that cannot be: changes may have been missed. Earlier events remain valid until the following
    /// snapshot.
    Inconsistent {
        /// What shows it.
        inconsistency: Inconsistency,
        /// The key, and what was wrong.
        reason: String,
    },
    /// The store is watched again and no change was missed: the end of an outage without a snapshot. Also the answer to
    /// [`FeedHandle::request_renewal`].
    Up,
}

/// A part of a list in pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListPart {
    /// A list begins. Pages of an earlier, incomplete list are discarded.
    Started,
    /// Entries. Pages come in any order; each key is in one of them.
    Page(Vec<Entry>),
    /// The list has about so many entries.
    Expected(usize),
    /// The list is complete: its pages have all entries.
    Complete {
        /// The revision at which all of it was read.
        revision: i64,
        /// Problems that the store itself found; the complete list.
        problems: Vec<Problem>,
    },
}

/// An event, and when it arrived: the time that it waits for its receiver is measured from then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The delivered event.
    pub event: FeedEvent,
    /// When the store's message arrived; for events of the feed itself, when they were made.
    pub received: Instant,
}

/// How the content of a store is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeliveryMode {
    /// Each list is one snapshot.
    Snapshots,
    /// Lists come in pages.
    Pages,
    /// Likewise, to a receiver that saves them: the first list may be what it has saved, and progress is delivered.
    SavedPages,
}

impl DeliveryMode {
    fn is_paged(self) -> bool {
        self != Self::Snapshots
    }
}

/// How many events may wait for a slow receiver before the feed stops reading from the store.
const EVENT_CAPACITY: usize = 64;
/// How many bytes of changes may wait, unless it is a single batch.
const CAPACITY_BYTES: usize = 16 << 20;

/// How many requests to read keys again may wait.
const REREAD_CAPACITY: usize = 16;

/// How many pages of a list may wait for the feed.
const PAGE_CAPACITY: usize = 2;

/// Lists and watches one prefix of a store, in its own task, until its receiver is dropped.
pub struct Feed {
    store: Arc<dyn Store>,
    prefix: String,
    delivery_mode: DeliveryMode,
    events: mpsc::Sender<Delivery>,
    /// The sizes of the last events, which include those that wait.
    sizes: VecDeque<usize>,
    resync: Arc<Notify>,
    renewal: Arc<Notify>,
    /// Brings what was saved; none if the feed begins with a list.
    start: Option<mpsc::Receiver<SavedStart>>,
    /// Where the watch goes on, until it does.
    saved: Option<ResumePoint>,
    /// The keys that are to be read again.
    rereads: mpsc::Receiver<BTreeSet<String>>,
    identity: watch::Sender<Option<StoreIdentity>>,
    backoff: Backoff,
    /// The pauses before lists that follow each other.
    relists: Backoff,
    /// The position that was delivered; none when a list is due.
    position: Option<Position>,
    /// None while the store is watched.
    outage: Option<Outage>,
    /// Whether the receiver takes the store for lost.
    is_reported_down: bool,
    /// The receiver waits for a confirmation that the store answers.
    is_renewing: bool,
    /// The problems that were delivered.
    problems: Vec<Problem>,
}

/// Requests a new list of a running feed, or a check that the store answers.
#[derive(Debug, Clone)]
pub struct FeedHandle {
    resync: Arc<Notify>,
    renewal: Arc<Notify>,
    start: mpsc::Sender<SavedStart>,
    rereads: mpsc::Sender<BTreeSet<String>>,
    identity: watch::Receiver<Option<StoreIdentity>>,
}

impl FeedHandle {
    /// Lets a feed begin that waits for what was saved.
    pub fn begin(&self, start: SavedStart) {
        // It has begun already if there is no room.
        let _ = self.start.try_send(start);
    }

    /// Reads these keys again at the watched revision, if the store can do that. They come as changes.
    pub fn request_reread(&self, keys: BTreeSet<String>) {
        // With many requests the values stay as they are.
        let _ = self.rereads.try_send(keys);
    }

    /// What the store says of itself, always as it was said last.
    pub fn identity(&self) -> watch::Receiver<Option<StoreIdentity>> {
        self.identity.clone()
    }

    /// Lists again now, and delivers a [`FeedEvent::Snapshot`]. Requests before the list begins are merged.
    pub fn request_resync(&self) {
        self.resync.notify_one();
    }

    /// Opens the watch again at its position, without a list. Answered by [`FeedEvent::Up`] when the store has answered, or by
    /// [`FeedEvent::Snapshot`] if revisions are gone. Detects a dead connection.
    pub fn request_renewal(&self) {
        self.renewal.notify_one();
    }
}

/// Why a watch ended.
enum Stop {
    /// The receiver is gone.
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
    /// Starts to list and watch everything below `prefix`, with each list as one snapshot. Must be called within a tokio runtime.
    pub fn start(
        store: Arc<dyn Store>,
        prefix: impl Into<String>,
    ) -> (mpsc::Receiver<Delivery>, FeedHandle) {
        Self::start_with(store, prefix.into(), DeliveryMode::Snapshots)
    }

    /// As [`Feed::start`], with lists in pages: a receiver works on one page while the next is fetched.
    pub fn start_paged(
        store: Arc<dyn Store>,
        prefix: impl Into<String>,
    ) -> (mpsc::Receiver<Delivery>, FeedHandle) {
        Self::start_with(store, prefix.into(), DeliveryMode::Pages)
    }

    /// As [`Feed::start_paged`], for a receiver that saves what it gets: waits for [`FeedHandle::begin`], for 30 s at most, and goes on
    /// from what was saved if the store still has that.
    pub fn start_saving(
        store: Arc<dyn Store>,
        prefix: impl Into<String>,
    ) -> (mpsc::Receiver<Delivery>, FeedHandle) {
        Self::start_with(store, prefix.into(), DeliveryMode::SavedPages)
    }

    fn start_with(
        store: Arc<dyn Store>,
        prefix: String,
        delivery_mode: DeliveryMode,
    ) -> (mpsc::Receiver<Delivery>, FeedHandle) {
        let (start, saved_start) = mpsc::channel(1);
        let (identity, identities) = watch::channel(None);
        let (rereads, reread) = mpsc::channel(REREAD_CAPACITY);
        let (events, receiver) = mpsc::channel(EVENT_CAPACITY);
        let (resync, renewal) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let handle = FeedHandle {
            resync: Arc::clone(&resync),
            renewal: Arc::clone(&renewal),
            start,
            rereads,
            identity: identities,
        };
        let backoff = store.backoff();
        let relists = backoff.clone().up_to(MAX_RELIST_PAUSE);
        let feed = Self {
            store,
            prefix,
            delivery_mode,
            events,
            sizes: VecDeque::new(),
            resync,
            renewal,
            start: (delivery_mode == DeliveryMode::SavedPages).then_some(saved_start),
            saved: None,
            rereads: reread,
            identity,
            backoff,
            relists,
            position: None,
            outage: None,
            is_reported_down: false,
            is_renewing: false,
            problems: Vec::new(),
        };
        tokio::spawn(feed.run());
        (receiver, handle)
    }

    async fn run(mut self) {
        if let Some(start) = self.start.take()
            && self.await_start(start).await.is_break()
        {
            return;
        }
        loop {
            let Err(stop) = self.list_and_watch().await;
            let flow = match stop {
                Stop::ReceiverGone => ControlFlow::Break(()),
                Stop::Resync => {
                    (self.position, self.saved) = (None, None);
                    ControlFlow::Continue(())
                }
                Stop::Renewal => {
                    self.is_renewing = true;
                    ControlFlow::Continue(())
                }
                // The store answers, so the watch is opened again at once, without a report.
                Stop::Failed(StoreError::Silent { .. }) => ControlFlow::Continue(()),
                Stop::Failed(error) => self.recover(error).await,
            };
            if flow.is_break() {
                return;
            }
        }
    }

    /// Waits for what was saved.
    async fn await_start(&mut self, mut start: mpsc::Receiver<SavedStart>) -> ControlFlow<()> {
        let begun = self
            .unless_stopped(timeout(SAVED_START_TIMEOUT, start.recv()))
            .await;
        let pause = match begun {
            Err(Stop::ReceiverGone) => return ControlFlow::Break(()),
            Ok(Ok(Some(SavedStart::Usable(point)))) => {
                self.saved = Some(*point);
                Duration::ZERO
            }
            Ok(Ok(Some(SavedStart::Unusable))) => list_spread(rand::random()),
            Ok(Err(_)) => {
                warn!(
                    "the saved state is not there after {SAVED_START_TIMEOUT:?}; listing the store"
                );
                Duration::ZERO
            }
            // A list is requested, or nothing is saved.
            _ => Duration::ZERO,
        };
        match self.unless_stopped(tokio::time::sleep(pause)).await {
            Err(Stop::ReceiverGone) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }

    /// Opens the watch where the saved state ends.
    async fn resume_saved(&mut self, point: ResumePoint) -> Result<WatchStream, Stop> {
        let store = Arc::clone(&self.store);
        let (watch, changes) = self
            .unless_stopped(store.resume_saved(&self.prefix, &point))
            .await??;
        self.saved = None;
        let revision = point.position.revision();
        debug!(
            revision,
            deviating = changes.len(),
            "going on from the saved state"
        );
        self.position = Some(point.position);
        self.on_listed();
        self.send(FeedEvent::Resumed { revision }).await?;
        if !changes.is_empty() {
            self.send(FeedEvent::Changed(Batch { revision, changes }))
                .await?;
        }
        Ok(watch)
    }

    async fn open_watch(&mut self) -> Result<WatchStream, Stop> {
        if let Some(point) = self.saved.clone() {
            return self.resume_saved(point).await;
        }
        let position = match self.position.clone() {
            Some(position) => position,
            None => self.list().await?,
        };
        let store = Arc::clone(&self.store);
        Ok(self
            .unless_stopped(store.resume_watch(&self.prefix, &position))
            .await??)
    }

    /// Lists if that is due, then delivers the watch's events until it ends.
    async fn list_and_watch(&mut self) -> Result<Infallible, Stop> {
        let mut watch = self.open_watch().await?;
        self.identity.send_replace(self.store.identity());
        let healthy_since = Instant::now();
        // After several lists only a watch that lasts ends the outage.
        let mut is_on_probation = self.is_relisting();
        if !is_on_probation && (self.outage.is_some() || self.is_renewing) {
            self.end_outage();
            self.send(FeedEvent::Up).await?;
        }
        let error = loop {
            let next = self.next(&mut watch);
            let event = if is_on_probation {
                let Ok(event) = timeout_at(healthy_since + HEALTHY_DURATION, next).await else {
                    is_on_probation = false;
                    self.end_outage();
                    self.send(FeedEvent::Up).await?;
                    continue;
                };
                event?
            } else {
                next.await?
            };
            match event {
                Ok(event) => {
                    self.backoff.reset();
                    self.pass_on(event, Instant::now()).await?;
                }
                Err(error) => break error,
            }
        };
        // A shorter time does not count, or a watch that always opens and fails would be opened again without pause.
        if healthy_since.elapsed() >= HEALTHY_DURATION {
            self.backoff.reset();
        }
        if healthy_since.elapsed() >= MAX_RELIST_PAUSE {
            self.relists.reset();
        }
        Err(error.into())
    }

    async fn list(&mut self) -> Result<Position, Stop> {
        let store = Arc::clone(&self.store);
        // This list answers all earlier requests; a request during the list causes another one.
        self.resync.notified().now_or_never();
        self.renewal.notified().now_or_never();
        let position = if self.delivery_mode.is_paged() {
            self.list_pages(&*store).await?
        } else {
            let listed = tokio::select! {
                () = self.events.closed() => return Err(Stop::ReceiverGone),
                listed = store.list(&self.prefix) => listed,
            };
            let snapshot = listed?;
            debug!(
                revision = snapshot.revision,
                entries = snapshot.entries.len(),
                "listed the store"
            );
            let position = Position::of(&snapshot);
            self.on_listed();
            self.problems.clone_from(&snapshot.problems);
            self.send(FeedEvent::Snapshot(snapshot)).await?;
            position
        };
        self.position = Some(position.clone());
        Ok(position)
    }

    async fn list_pages(&mut self, store: &dyn Store) -> Result<Position, Stop> {
        let (sender, mut pages) = mpsc::channel(PAGE_CAPACITY);
        let (prefix, sender) = (self.prefix.clone(), PageSender(sender));
        let mut list = store.list_pages(&prefix, &sender);
        let mut position = ListPosition::default();
        let (revision, problems) = loop {
            tokio::select! {
                biased;
                () = self.events.closed() => return Err(Stop::ReceiverGone),
                Some(page) = pages.recv() => self.pass_page_on(page, &mut position).await?,
                listed = &mut list => break listed?,
            }
        };
        while let Ok(page) = pages.try_recv() {
            self.pass_page_on(page, &mut position).await?;
        }
        debug!(revision, "listed the store");
        self.on_listed();
        self.problems.clone_from(&problems);
        self.send(FeedEvent::List(ListPart::Complete { revision, problems }))
            .await?;
        Ok(position.finish(revision))
    }

    async fn pass_page_on(&mut self, page: Page, position: &mut ListPosition) -> Result<(), Stop> {
        match page {
            Page::Begin => {
                *position = ListPosition::default();
                self.send(FeedEvent::List(ListPart::Started)).await
            }
            Page::Expect(entries) => {
                self.send(FeedEvent::List(ListPart::Expected(entries)))
                    .await
            }
            Page::Entries(entries) => {
                position.add(&entries);
                self.send(FeedEvent::List(ListPart::Page(entries))).await
            }
        }
    }

    /// Whether lists have followed each other for a while.
    const fn is_relisting(&self) -> bool {
        self.relists.failures() >= OUTAGE_LISTS
    }

    fn on_listed(&mut self) {
        // The list is the answer, and the receiver takes it for the end of the outage.
        (self.is_renewing, self.is_reported_down) = (false, false);
        if !self.is_relisting() {
            self.outage = None;
        }
    }

    fn end_outage(&mut self) {
        (self.outage, self.is_renewing, self.is_reported_down) = (None, false, false);
    }

    /// The next event of the watch. Meanwhile keys are read again.
    async fn next(
        &mut self,
        watch: &mut WatchStream,
    ) -> Result<Result<WatchEvent, StoreError>, Stop> {
        let event = loop {
            let step = tokio::select! {
                biased;
                () = self.events.closed() => return Err(Stop::ReceiverGone),
                () = self.resync.notified() => return Err(Stop::Resync),
                () = self.renewal.notified() => return Err(Stop::Renewal),
                Some(keys) = self.rereads.recv() => Err(keys),
                event = watch.next() => Ok(event),
            };
            match step {
                Ok(event) => break event,
                Err(keys) => self.reread(&keys).await?,
            }
        };
        Ok(event.unwrap_or_else(|| {
            Err(StoreError::Unavailable {
                endpoint: self.prefix.clone(),
                reason: "the watch ended without saying why".to_owned(),
            })
        }))
    }

    /// Delivers what these keys have at the revision that was delivered.
    async fn reread(&mut self, keys: &BTreeSet<String>) -> Result<(), Stop> {
        let Some(revision) = self.position.as_ref().map(Position::revision) else {
            return Ok(());
        };
        let store = Arc::clone(&self.store);
        match self.unless_stopped(store.read_at(keys, revision)).await? {
            Ok(changes) => {
                self.send(FeedEvent::Changed(Batch { revision, changes }))
                    .await
            }
            Err(error) => {
                debug!(%error, "values that cannot be used are not read again");
                Ok(())
            }
        }
    }

    async fn pass_on(&mut self, event: WatchEvent, received: Instant) -> Result<(), Stop> {
        match event {
            WatchEvent::Problems(problems) => self.replace_problems(problems).await,
            WatchEvent::Changed(batch) => {
                let problems = self.without_changed(&batch);
                let revision = batch.revision;
                let has_progress = self.delivery_mode == DeliveryMode::SavedPages
                    && batch.changes.is_empty()
                    && self
                        .position
                        .as_ref()
                        .is_some_and(|position| position.revision() < revision);
                // A stop here means that the receiver is gone, or a new list.
                if let Some(position) = &mut self.position {
                    position.advance(&batch);
                }
                if !batch.changes.is_empty() {
                    self.deliver(FeedEvent::Changed(batch), received).await?;
                } else if has_progress {
                    self.send(FeedEvent::Progress { revision }).await?;
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

    /// The problems without those of keys that have changed since: a list reports the problems of a key's value, and a change
    /// replaces the value. None if there are no such problems.
    fn without_changed(&self, batch: &Batch) -> Option<Vec<Problem>> {
        let is_changed = |problem: &&Problem| {
            batch
                .changes
                .iter()
                .any(|change| change.key() == problem.source)
        };
        let left: Vec<Problem> = self
            .problems
            .iter()
            .filter(|problem| !is_changed(problem))
            .cloned()
            .collect();
        (left.len() < self.problems.len()).then_some(left)
    }

    /// Reports the error if it is new, and waits before the next attempt.
    async fn recover(&mut self, error: StoreError) -> ControlFlow<()> {
        let needs_list = error.needs_list();
        let backoff = if needs_list {
            &mut self.relists
        } else {
            &mut self.backoff
        };
        // The store may ask many clients for the same pause at the same moment; the random part comes to it.
        let mut pause = error.requested_pause() + backoff.next(rand::random());
        if needs_list {
            self.position = None;
            pause += list_spread(rand::random());
        }
        let reported = if needs_list && self.saved.take().is_some() {
            info!(%error, "the store is not as it was saved; listing it");
            Ok(())
        } else {
            self.report(error, needs_list && !self.is_relisting()).await
        };
        if reported.is_err() {
            return ControlFlow::Break(());
        }
        match self.unless_stopped(tokio::time::sleep(pause)).await {
            Err(Stop::ReceiverGone) => return ControlFlow::Break(()),
            Err(Stop::Renewal) => self.is_renewing = true,
            Err(_) => (self.position, self.saved) = (None, None),
            Ok(()) => {}
        }
        ControlFlow::Continue(())
    }

    /// Reports why the watch ended, and that it is an outage unless a list follows soon.
    async fn report(&mut self, error: StoreError, is_listed_soon: bool) -> Result<(), Stop> {
        let event = match &error {
            StoreError::Inconsistent { inconsistency, .. } => {
                warn!(%error, "the store contradicts itself; listing it again");
                let (inconsistency, reason) = (*inconsistency, error.to_string());
                Some(FeedEvent::Inconsistent {
                    inconsistency,
                    reason,
                })
            }
            _ if error.is_other_history() => {
                error!(%error, "the store has other data than before; listing it again");
                Some(FeedEvent::Replaced {
                    reason: error.to_string(),
                })
            }
            _ if is_listed_soon => {
                warn!(%error, "changes were missed; listing again");
                None
            }
            _ => None,
        };
        if let Some(event) = event {
            self.send(event).await?;
        }
        if is_listed_soon {
            Ok(())
        } else {
            self.report_outage(&error).await
        }
    }

    async fn report_outage(&mut self, error: &StoreError) -> Result<(), Stop> {
        let now = Instant::now();
        let is_first = self.outage.is_none();
        let reason = error.to_string();
        let report = self
            .outage
            .get_or_insert_with(|| Outage::begin(now))
            .add(&reason, now);
        match report {
            Report::Cause if is_first => warn!(%error, "lost the store"),
            Report::Cause => warn!(%error, "the store is still lost, and for another reason"),
            Report::Reminder(duration) => {
                let seconds = duration.as_secs();
                warn!(%error, seconds, "the store has not been watched for a while; its last known content is in use");
            }
            Report::Nothing => debug!(%error, "the store is still lost"),
        }
        if report != Report::Cause && self.is_reported_down {
            return Ok(());
        }
        self.is_reported_down = true;
        self.send(FeedEvent::Down { reason }).await
    }

    async fn send(&mut self, event: FeedEvent) -> Result<(), Stop> {
        self.deliver(event, Instant::now()).await
    }

    async fn deliver(&mut self, event: FeedEvent, received: Instant) -> Result<(), Stop> {
        let size = match &event {
            FeedEvent::Changed(batch) => batch.size(),
            FeedEvent::List(ListPart::Page(entries)) => entries.iter().map(Entry::size).sum(),
            _ => 0,
        };
        self.make_room(size).await?;
        self.sizes.push_back(size);
        self.events
            .send(Delivery { event, received })
            .await
            .map_err(|_| Stop::ReceiverGone)
    }

    /// Waits until the pending events leave room for one of this size.
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
            self.events
                .reserve_many(free)
                .await
                .map_err(|_| Stop::ReceiverGone)?;
        }
        Ok(())
    }

    /// Waits for `work`, unless the receiver is dropped or something is requested.
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

/// The pause before a list, from a random number between 0 and 1.
pub(crate) fn list_spread(random: f64) -> Duration {
    LIST_SPREAD.mul_f64(random)
}

#[cfg(test)]
mod tests;
