//! Merges the watches of all types into one stream.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures::{
    Stream, StreamExt,
    stream::{self, BoxStream, ReadyChunks, SelectAll, select_all},
};
use tokio::time::{Instant, timeout_at};

use super::{
    object::ReceivedObject,
    progress::{Versions, WatchProgress},
    watch::{ResourceEvent, WatchChange},
};
use crate::{Batch, Change, Problem, StoreError, WatchEvent, WatchStream};

/// How many available events become one batch at most.
const MAX_BATCH_EVENTS: usize = 256;
/// How long to wait for the first events of watches. An expired version is reported as the first event of a successful answer.
const FIRST_EVENTS_TIMEOUT: Duration = Duration::from_millis(200);

/// The events of one type.
pub(super) type ResourceStream = BoxStream<'static, Result<ResourceEvent, StoreError>>;

type EventStream = SelectAll<ResourceStream>;

/// The watches of all types as one stream.
pub(super) struct MergedWatch {
    events: ReadyChunks<EventStream>,
    prefix: String,
    versions: Versions,
    progress: Arc<WatchProgress>,
    /// Output that is ready, before anything is read.
    waiting: VecDeque<Output>,
    has_failed: bool,
}

/// The output of the stream.
enum Output {
    /// Some changes. They get their revision when they are delivered.
    Changes {
        changes: Vec<Change>,
        /// Each changed key, with its problems.
        problems_by_key: Vec<(String, Vec<Problem>)>,
        /// The versions of all types after the changes.
        versions: Versions,
    },
    Problems(Vec<Problem>),
    Failure(StoreError),
}

impl MergedWatch {
    /// The merged watches for keys with `prefix`; they began at `versions`.
    pub(super) fn new(
        watches: Vec<ResourceStream>,
        prefix: &str,
        versions: Versions,
        progress: Arc<WatchProgress>,
    ) -> Self {
        Self {
            events: select_all(watches).ready_chunks(MAX_BATCH_EVENTS),
            prefix: prefix.to_owned(),
            versions,
            progress,
            waiting: VecDeque::new(),
            has_failed: false,
        }
    }

    /// Waits for the immediate events of the watches.
    ///
    /// # Errors
    /// When one of them fails immediately: then the stream has not begun.
    pub(super) async fn after_first_events(mut self) -> Result<Self, StoreError> {
        let deadline = Instant::now() + FIRST_EVENTS_TIMEOUT;
        while let Ok(Some(events)) = timeout_at(deadline, self.events.next()).await {
            self.handle(events);
            if self.has_failed {
                break;
            }
        }
        match self.waiting.pop_back() {
            Some(Output::Failure(error)) => Err(error),
            last => {
                self.waiting.extend(last);
                Ok(self)
            }
        }
    }

    pub(super) fn into_stream(self) -> WatchStream {
        self.events().boxed()
    }

    fn events(self) -> impl Stream<Item = Result<WatchEvent, StoreError>> + Send {
        stream::unfold(self, async |mut watch| {
            while watch.waiting.is_empty() && !watch.has_failed {
                // Without watches the stream stays open.
                let Some(events) = watch.events.next().await else {
                    return std::future::pending().await;
                };
                watch.handle(events);
            }
            let next = match watch.waiting.pop_front()? {
                Output::Changes {
                    changes,
                    problems_by_key,
                    versions,
                } => {
                    let (revision, problems) =
                        watch
                            .progress
                            .advance(&watch.prefix, versions, problems_by_key);
                    if let Some(problems) = problems {
                        watch.waiting.push_front(Output::Problems(problems));
                    }
                    Ok(WatchEvent::Changed(Batch { revision, changes }))
                }
                Output::Problems(problems) => Ok(WatchEvent::Problems(problems)),
                Output::Failure(error) => {
                    // The next list has another history.
                    if error.is_other_history() {
                        watch.progress.forget_reached();
                    }
                    Err(error)
                }
            };
            Some((next, watch))
        })
    }

    fn handle(&mut self, events: Vec<Result<ResourceEvent, StoreError>>) {
        let mut changes = Vec::new();
        let mut problems_by_key = Vec::new();
        let mut failure = None;
        for event in events {
            match event {
                Ok(ResourceEvent {
                    resource,
                    version,
                    change,
                }) => {
                    self.versions.insert(resource.kind, version);
                    let Some((change, problems)) = change.map(into_change) else {
                        continue;
                    };
                    if change.key().starts_with(&self.prefix) {
                        problems_by_key.push((change.key().to_owned(), problems));
                        changes.push(change);
                    }
                }
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        // Without changes it reports progress.
        self.waiting.push_back(Output::Changes {
            changes,
            problems_by_key,
            versions: self.versions.clone(),
        });
        self.has_failed = failure.is_some();
        self.waiting.extend(failure.map(Output::Failure));
    }
}

fn into_change(change: WatchChange) -> (Change, Vec<Problem>) {
    let received: ReceivedObject = match change {
        WatchChange::Put(received) => received,
        WatchChange::Delete { key } => return (Change::Delete { key }, Vec::new()),
    };
    let key = received.key.clone();
    match received.into_entry() {
        (Some(entry), problems) => (Change::Put(entry), problems),
        // It may have been a stored object before.
        (None, _) => (Change::Delete { key }, Vec::new()),
    }
}
