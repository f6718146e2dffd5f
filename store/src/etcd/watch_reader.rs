//! Reads the messages of a watch: checks them, and puts together what belongs to one revision. Pure.

use std::sync::Arc;

use bytes::Bytes;
use etcd_client::proto::{PbEvent, PbWatchResponse};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    key_range::KeyRanges,
    key_text::key_text,
    known::{DELETE, KnownKeys},
    window::Window,
};
use crate::{Batch, Change, Entry, StoreError};

/// The `watch_id` of an answer to a request for progress.
pub(super) const ALL_WATCHES: i64 = -1;
/// To a lagging watch etcd sends up to a thousand revisions in one response, in fragments. Complete revisions are delivered
/// once they have this many bytes.
const MAX_BATCH_BYTES: usize = 4 << 20;

/// What a watch has delivered.
#[derive(Debug)]
pub(super) struct WatchReader {
    /// What is known of all keys.
    keys: KnownKeys,
    /// What is read of the watched keys.
    ranges: Arc<KeyRanges>,
    /// The revision of the reader when the watch began; changes up to here are not delivered.
    start: i64,
    /// The newest revision that was delivered.
    revision: i64,
    /// The first events of an incomplete revision.
    begun: Vec<PbEvent>,
}

impl WatchReader {
    /// A reader who knows everything up to this revision, and these keys.
    pub(super) const fn new(keys: KnownKeys, ranges: Arc<KeyRanges>, revision: i64) -> Self {
        Self {
            keys,
            ranges,
            start: revision,
            revision,
            begun: Vec::new(),
        }
    }

    /// The newest revision that was delivered.
    pub(super) const fn revision(&self) -> i64 {
        self.revision
    }

    /// The last changes, to be compared with the history.
    pub(super) fn window(&self) -> Arc<Mutex<Window>> {
        Arc::clone(&self.keys.window)
    }

    /// The reader waits for a message.
    pub(super) fn start_waiting(&self, now: Instant) {
        self.keys.window.lock().start_waiting(now);
    }

    /// Reads a message. Returns the changes that it completes, or the progress that it reports.
    pub(super) fn read(&mut self, response: PbWatchResponse) -> Result<Option<Batch>, StoreError> {
        if !response.events.is_empty() {
            self.keys.window.lock().stop_waiting();
        }
        if response.watch_id == ALL_WATCHES {
            // It is alive. The revision is ignored: etcd before 3.4.25 and 3.5.8 sends it ahead of the changes up to it
            // (etcd-io/etcd#15220), and a watch that begins after it would miss them.
            return Ok(None);
        }
        let newest = response.header.map(|header| header.revision);
        if response.events.is_empty() && self.begun.is_empty() {
            // A progress notification: everything up to this revision has been sent.
            self.revision = newest.unwrap_or_default().max(self.revision);
            self.keys.advance(self.revision);
            return Ok(Some(Batch {
                revision: self.revision,
                changes: Vec::new(),
            }));
        }
        self.keys.check_order(&response.events, newest)?;
        let mut events = std::mem::take(&mut self.begun);
        let known = self.start;
        events.extend(
            response
                .events
                .into_iter()
                .filter(|event| revision_of(event) > known),
        );
        if response.fragment {
            self.begun = unfinished(&mut events);
        }
        let Some(newest) = events.last() else {
            return Ok(None);
        };
        self.revision = revision_of(newest).max(self.revision);
        for event in &events {
            if self.ranges.contain(event) {
                self.keys.follow(event)?;
            } else {
                // Only its delivery is compared with the history: nothing is known of its key.
                self.keys.window.lock().add(event);
            }
        }
        self.keys.advance(self.revision);
        let read = events
            .into_iter()
            .filter(|event| self.ranges.contain(event));
        let changes = read.filter_map(change).collect();
        Ok(Some(Batch {
            revision: self.revision,
            changes,
        }))
    }

    /// Does not keep what it knows: the store was found to be inconsistent.
    pub(super) const fn set_suspect(&mut self) {
        self.keys.set_suspect();
    }

    /// What it knows, when the watch has ended.
    pub(super) fn take_keys(&mut self) -> KnownKeys {
        std::mem::take(&mut self.keys)
    }
}

/// Takes out the events that must wait for the next fragment: all, or if there are many, those of the newest revision.
fn unfinished(events: &mut Vec<PbEvent>) -> Vec<PbEvent> {
    let size = |event: &PbEvent| {
        event
            .kv
            .as_ref()
            .map_or(0, |pair| pair.key.len() + pair.value.len())
    };
    if events.iter().map(size).sum::<usize>() < MAX_BATCH_BYTES {
        return std::mem::take(events);
    }
    let newest = events.last().map_or(0, revision_of);
    events.split_off(events.partition_point(|event| revision_of(event) < newest))
}

fn revision_of(event: &PbEvent) -> i64 {
    event.kv.as_ref().map_or(0, |pair| pair.mod_revision)
}

fn change(event: PbEvent) -> Option<Change> {
    let pair = event.kv?;
    let key = key_text(pair.key);
    Some(if event.r#type == DELETE {
        Change::Delete { key }
    } else {
        let (create_revision, mod_revision) = (pair.create_revision, pair.mod_revision);
        Change::Put(Entry {
            key,
            value: Bytes::from(pair.value),
            create_revision,
            mod_revision,
        })
    })
}

#[cfg(test)]
mod tests;
