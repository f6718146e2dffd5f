//! Watches the objects of one type in Kubernetes and in the store.

use std::{collections::BTreeSet, sync::Arc};

use contiv_controller::BoxError;
use contiv_proto::{Key, Kind};
use contiv_store::{Delivery, Feed, FeedEvent, FeedHandle, Problem, Store};
use tokio::sync::mpsc::Receiver;
use tracing::warn;

use crate::{first_ten::FirstTen, state::State, stats::Stats};

/// The objects of one type in Kubernetes (the source) and in the store, with a feed of each. The first call of
/// [`SourceAndStored::next`] opens the feeds.
pub(crate) struct SourceAndStored {
    pub(crate) kind: Kind,
    source: Arc<dyn Store>,
    store: Arc<dyn Store>,
    pub(crate) stats: Stats,
    pub(crate) state: State,
    /// Objects of Kubernetes that cannot be read.
    problems: BTreeSet<Problem>,
    source_feed: Option<FeedReceiver>,
    stored_feed: Option<FeedReceiver>,
    /// Whether Kubernetes has answered since [`SourceAndStored::mark_stale`].
    is_fresh: bool,
}

struct FeedReceiver {
    events: Receiver<Delivery>,
    handle: FeedHandle,
}

impl FeedReceiver {
    fn open(store: &Arc<dyn Store>, kind: Kind) -> Self {
        let (events, handle) = Feed::start(Arc::clone(store), Key::prefix(kind));
        Self { events, handle }
    }
}

/// An event of source or store.
enum SourceEvent {
    Source(Option<Delivery>),
    Stored(Option<Delivery>),
}

impl SourceAndStored {
    pub(crate) fn new(
        kind: Kind,
        source: Arc<dyn Store>,
        store: Arc<dyn Store>,
        stats: Stats,
    ) -> Self {
        Self {
            kind,
            source,
            store,
            stats,
            state: State::default(),
            problems: BTreeSet::new(),
            source_feed: None,
            stored_feed: None,
            is_fresh: false,
        }
    }

    /// Handles events of source and store until one of them fails. Returns its error.
    pub(crate) async fn run_until_error(&mut self) -> BoxError {
        loop {
            if let Err(error) = self.next().await {
                return error;
            }
        }
    }

    /// Handles the next event. Cancel safe: no event is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Result<(), BoxError> {
        let source = self
            .source_feed
            .get_or_insert_with(|| FeedReceiver::open(&self.source, self.kind));
        // The store is listed after the source: while a list is handled it is in memory twice.
        let event = if self.state.has_source() {
            let stored = self
                .stored_feed
                .get_or_insert_with(|| FeedReceiver::open(&self.store, self.kind));
            tokio::select! {
                event = source.events.recv() => SourceEvent::Source(event),
                event = stored.events.recv() => SourceEvent::Stored(event),
            }
        } else {
            SourceEvent::Source(source.events.recv().await)
        };
        match event {
            SourceEvent::Source(event) => {
                self.on_source_event(event.ok_or("Kubernetes can no longer be watched")?.event);
            }
            SourceEvent::Stored(event) => {
                self.on_stored_event(event.ok_or("the store can no longer be watched")?.event);
            }
        }
        Ok(())
    }

    /// Handles all pending events.
    pub(crate) fn handle_pending_events(&mut self) {
        while let Some(delivery) = self
            .source_feed
            .as_mut()
            .and_then(|feed| feed.events.try_recv().ok())
        {
            self.on_source_event(delivery.event);
        }
        while let Some(delivery) = self
            .stored_feed
            .as_mut()
            .and_then(|feed| feed.events.try_recv().ok())
        {
            self.on_stored_event(delivery.event);
        }
    }

    /// Lists the store again.
    pub(crate) fn resync_stored(&self) {
        if let Some(feed) = &self.stored_feed {
            feed.handle.request_resync();
        }
    }

    /// Marks the known state of Kubernetes as possibly old, until Kubernetes has answered again.
    pub(crate) fn mark_stale(&mut self) {
        self.is_fresh = false;
        if let Some(feed) = &self.source_feed {
            feed.handle.request_renewal();
        }
    }

    /// Whether Kubernetes has answered since [`SourceAndStored::mark_stale`].
    pub(crate) const fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    fn on_source_event(&mut self, event: FeedEvent) {
        let kind = self.kind;
        match event {
            FeedEvent::Snapshot(snapshot) => {
                let unreadable = self.state.list_source(snapshot);
                self.stats.count_unreadable(kind, unreadable);
                self.stats.count_resync(kind);
                self.is_fresh = true;
            }
            FeedEvent::Changed(batch) => {
                let unreadable = self.state.change_source(batch);
                self.stats.count_unreadable(kind, unreadable);
            }
            FeedEvent::Problems(problems) => {
                let problems = BTreeSet::from_iter(problems);
                let new: Vec<&Problem> = problems.difference(&self.problems).collect();
                if !new.is_empty() {
                    warn!(problems = %FirstTen(&new), "objects of Kubernetes cannot be read; their stored state stays");
                }
                self.problems = problems;
            }
            FeedEvent::Down { .. } => {
                self.stats.count_outage(kind);
                // The permission to list external workloads is optional. If the server itself is away, no type is read, and the
                // reflector has not synced anyway.
                if kind == Kind::ExternalWorkload && !self.state.has_source() {
                    self.stats.mark_unavailable(kind);
                }
            }
            FeedEvent::Up => self.is_fresh = true,
            // A snapshot with the whole list follows.
            FeedEvent::Replaced { .. }
            | FeedEvent::Inconsistent { .. }
            | FeedEvent::Resumed { .. }
            | FeedEvent::Progress { .. }
            | FeedEvent::List(_) => {}
        }
    }

    fn on_stored_event(&mut self, event: FeedEvent) {
        match event {
            FeedEvent::Snapshot(snapshot) => {
                self.state.list_stored(snapshot);
                self.stats.count_resync(self.kind);
            }
            FeedEvent::Changed(batch) => self.state.change_stored(batch),
            FeedEvent::Down { .. } => self.stats.count_outage(self.kind),
            FeedEvent::Up
            | FeedEvent::Replaced { .. }
            | FeedEvent::Inconsistent { .. }
            | FeedEvent::Problems(_)
            | FeedEvent::Resumed { .. }
            | FeedEvent::Progress { .. }
            | FeedEvent::List(_) => {}
        }
    }
}
