//! The changes that a watch has delivered lately, to be compared with etcd's history. Pure.
//!
//! What no later message contradicts (a lost last change, a lost deletion, a flipped bit of a value) is found so.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use etcd_client::proto::{PbEvent, PbKeyValue, PbWatchResponse};
use tokio::time::Instant;

use super::failure::inconsistent;
use crate::{Inconsistency, StoreError};

/// How many changes are remembered, in about 4 MB. Of more, none are compared: the watch cannot be slowed down.
const MAX_CHANGES: usize = 100_000;
/// How long a replay waits for changes after those that were delivered.
pub(super) const LINGER_TIME: Duration = Duration::from_secs(2);
/// The limit of a replay.
const REPLAY_LIMIT: Duration = Duration::from_secs(20);

/// The revision of a change, and the hash of its key.
type ChangeId = (i64, u64);

/// The changes since a revision.
#[derive(Debug, Default)]
pub(super) struct Window {
    hasher: RandomState,
    /// What was delivered up to here was compared.
    since: i64,
    /// Everything up to here was delivered.
    reached: i64,
    /// The hash of each change.
    changes: BTreeMap<ChangeId, u64>,
    /// Since when the reader waits for the next message; none while it works on one.
    waiting_since: Option<Instant>,
    /// Replays that could not decide about the last changes.
    undecided: u32,
}

/// A replay of changes from etcd's history.
#[derive(Debug)]
pub(super) struct Replay {
    /// The revision after which it begins.
    pub(super) since: i64,
    /// The revision up to which changes had been delivered when it began.
    until: i64,
    /// The revision of its last change.
    newest: i64,
    seen: BTreeSet<ChangeId>,
    /// Changes that had not been delivered, with their keys and hashes.
    ahead: Vec<(ChangeId, Vec<u8>, u64)>,
}

/// What follows in a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplayStep {
    /// The next message.
    Read,
    /// Its end.
    Compare,
    /// Nothing: the changes are compacted, or too large.
    Skip,
}

impl Replay {
    /// Whether it has brought everything that was delivered.
    const fn is_complete(&self) -> bool {
        self.newest >= self.until
    }

    /// Whether some changes had not been delivered.
    pub(super) const fn is_ahead(&self) -> bool {
        !self.ahead.is_empty()
    }
}

impl Window {
    /// Without changes, from this revision on.
    pub(super) fn after(revision: i64) -> Self {
        Self {
            since: revision,
            reached: revision,
            ..Self::default()
        }
    }

    /// Adds a change that is delivered.
    pub(super) fn add(&mut self, event: &PbEvent) {
        // Others were compared, or are left out: those of the revision at which there were too many.
        let Some((id, hash)) = self
            .hashes(event)
            .filter(|((revision, _), _)| *revision > self.since)
        else {
            return;
        };
        self.changes.insert(id, hash);
        if self.changes.len() > MAX_CHANGES {
            self.advance(id.0);
            self.restart();
        }
    }

    /// Everything up to this revision was delivered.
    pub(super) fn advance(&mut self, revision: i64) {
        self.reached = self.reached.max(revision);
    }

    /// The reader waits for changes.
    pub(super) fn start_waiting(&mut self, now: Instant) {
        self.waiting_since.get_or_insert(now);
    }

    /// The reader has work.
    pub(super) const fn stop_waiting(&mut self) {
        self.waiting_since = None;
    }

    /// Compares nothing of what was delivered until now.
    pub(super) fn restart(&mut self) {
        self.changes.clear();
        (self.since, self.undecided) = (self.reached, 0);
    }

    /// Begins to compare.
    pub(super) const fn begin_replay(&self) -> Replay {
        let (since, until) = (self.since, self.reached);
        Replay {
            since,
            until,
            newest: since,
            seen: BTreeSet::new(),
            ahead: Vec::new(),
        }
    }

    /// Compares a message of the history with what was delivered. Without one, [`LINGER_TIME`] has passed since the last;
    /// `elapsed` is the time since the replay began.
    pub(super) fn read_replayed(
        &mut self,
        replay: &mut Replay,
        response: Option<&PbWatchResponse>,
        elapsed: Duration,
    ) -> Result<ReplayStep, StoreError> {
        let is_over = match response {
            None => replay.is_complete() || elapsed > REPLAY_LIMIT,
            Some(response) if response.canceled => {
                self.restart();
                return Ok(ReplayStep::Skip);
            }
            Some(response) => {
                response
                    .events
                    .iter()
                    .try_for_each(|event| self.compare(replay, event))?;
                replay.is_complete() && elapsed > LINGER_TIME && !response.fragment
            }
        };
        Ok(if is_over {
            ReplayStep::Compare
        } else {
            ReplayStep::Read
        })
    }

    /// Compares a change of the history with what was delivered.
    fn compare(&self, replay: &mut Replay, event: &PbEvent) -> Result<(), StoreError> {
        let Some((id, hash)) = self.hashes(event) else {
            return Ok(());
        };
        let (revision, _) = id;
        // Else it was delivered before the window was restarted.
        if revision <= self.since {
            return Ok(());
        }
        replay.newest = revision;
        let key = event
            .kv
            .as_ref()
            .map(|pair| pair.key.as_slice())
            .unwrap_or_default();
        match self.changes.get(&id) {
            Some(delivered) => {
                replay.seen.insert(id);
                check_hash(*delivered, hash, revision, key)
            }
            None if revision <= self.reached => Err(missed(revision, key)),
            None => {
                replay.ahead.push((id, key.to_vec(), hash));
                Ok(())
            }
        }
    }

    /// Ends a replay. What it brought before `ahead_since`, and what was not delivered since, was lost.
    pub(super) fn end_replay(
        &mut self,
        replay: Replay,
        ahead_since: Instant,
    ) -> Result<(), StoreError> {
        let Replay {
            until,
            newest,
            seen,
            ahead,
            ..
        } = replay;
        let is_waiting = self.waiting_since.is_some_and(|since| since <= ahead_since);
        for (id, key, hash) in &ahead {
            match self.changes.get(id) {
                Some(delivered) => check_hash(*delivered, *hash, id.0, key)?,
                None if id.0 <= self.since => {}
                None if id.0 <= self.reached || is_waiting => return Err(missed(id.0, key)),
                // The reader is slow; the next replay brings it again.
                None => {}
            }
        }
        let is_decided = newest >= until || self.undecided > 0;
        let end = if is_decided { until } else { newest };
        let delivered = self.changes.range(..=(end, u64::MAX)).map(|(id, _)| id);
        if let Some((revision, _)) = delivered.copied().find(|id| !seen.contains(id)) {
            let reason = format!(
                "a change of revision {revision} was delivered, which is not in its history"
            );
            return Err(inconsistent(
                Inconsistency::NotInHistory,
                b"the store",
                reason,
            ));
        }
        self.undecided = if is_decided { 0 } else { self.undecided + 1 };
        self.since = end.max(self.since);
        self.changes = self.changes.split_off(&(self.since + 1, 0));
        Ok(())
    }

    fn hashes(&self, event: &PbEvent) -> Option<(ChangeId, u64)> {
        let pair = event.kv.as_ref()?;
        let PbKeyValue {
            key,
            value,
            version,
            create_revision,
            mod_revision,
            ..
        } = pair;
        let id = (*mod_revision, self.hasher.hash_one(key));
        Some((
            id,
            self.hasher
                .hash_one((event.r#type, version, create_revision, value)),
        ))
    }
}

fn check_hash(delivered: u64, replayed: u64, revision: i64, key: &[u8]) -> Result<(), StoreError> {
    if delivered == replayed {
        return Ok(());
    }
    let reason = format!(
        "its change of revision {revision} was delivered otherwise than it is in the history"
    );
    Err(inconsistent(Inconsistency::Altered, key, reason))
}

fn missed(revision: i64, key: &[u8]) -> StoreError {
    inconsistent(
        Inconsistency::Missed,
        key,
        format!("its change of revision {revision} was not delivered"),
    )
}

#[cfg(test)]
mod tests;
