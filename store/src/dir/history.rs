//! Published events, for watches from an older revision, and for current ones.

use std::{collections::VecDeque, future};

use futures::{StreamExt, stream};
use tokio::sync::broadcast;
use tokio_stream::wrappers::{BroadcastStream, errors::BroadcastStreamRecvError};

use crate::{Batch, StoreError, WatchEvent, WatchStream};

/// How many events are kept, and how many may be queued for a slow watch.
const EVENT_CAPACITY: usize = 1024;

#[derive(Debug)]
pub(super) struct History {
    /// The newest events, in the order of their revisions.
    events: VecDeque<(i64, WatchEvent)>,
    /// The revision before the oldest of them.
    forgotten: i64,
    watches: broadcast::Sender<WatchEvent>,
}

impl History {
    /// A history that begins after `revision`.
    pub(super) fn after(revision: i64) -> Self {
        Self {
            events: VecDeque::new(),
            forgotten: revision,
            watches: broadcast::Sender::new(EVENT_CAPACITY),
        }
    }

    pub(super) fn push(&mut self, revision: i64, event: WatchEvent) {
        if self.events.len() == EVENT_CAPACITY
            && let Some((oldest, _)) = self.events.pop_front()
        {
            self.forgotten = oldest;
        }
        // It is no error if there are no watches.
        let _ = self.watches.send(event.clone());
        self.events.push_back((revision, event));
    }

    /// The events below `prefix` after `revision`. `newest` is the store's revision.
    ///
    /// # Errors
    /// When the history does not reach back so far, or the revision never existed.
    pub(super) fn watch(
        &self,
        prefix: String,
        revision: i64,
        newest: i64,
    ) -> Result<WatchStream, StoreError> {
        if revision < self.forgotten {
            return Err(StoreError::Compacted {
                requested: revision + 1,
                oldest: self.forgotten + 1,
            });
        }
        if revision > newest {
            return Err(StoreError::Rewound {
                requested: revision,
                newest,
            });
        }
        let missed: Vec<_> = self
            .events
            .iter()
            .filter(|(of, _)| *of > revision)
            .map(|(_, event)| Ok(event.clone()))
            .collect();
        let coming = BroadcastStream::new(self.watches.subscribe()).map(move |event| {
            event.map_err(
                |BroadcastStreamRecvError::Lagged(_)| StoreError::Compacted {
                    requested: revision + 1,
                    oldest: newest + 1,
                },
            )
        });
        let mut has_failed = false;
        let until_failed = move |event: &Result<WatchEvent, StoreError>| {
            let goes_on = !has_failed;
            has_failed = event.is_err();
            future::ready(goes_on)
        };
        let below_prefix = move |event: Result<WatchEvent, StoreError>| {
            future::ready(event.map(|e| below(&prefix, e)).transpose())
        };
        Ok(stream::iter(missed)
            .chain(coming)
            .take_while(until_failed)
            .filter_map(below_prefix)
            .boxed())
    }
}

/// The part of an event below `prefix`, if any.
fn below(prefix: &str, event: WatchEvent) -> Option<WatchEvent> {
    let WatchEvent::Changed(Batch {
        revision,
        mut changes,
    }) = event
    else {
        return Some(event);
    };
    changes.retain(|change| change.key().starts_with(prefix));
    (!changes.is_empty()).then_some(WatchEvent::Changed(Batch { revision, changes }))
}

#[cfg(test)]
mod tests;
