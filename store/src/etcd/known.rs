//! What a reader knows of the keys below a prefix, and whether etcd's messages continue it. Pure.
//!
//! A change says more than a value: `mod_revision` is the revision of the write, `create_revision` that of the key's creation, and
//! `version` counts the writes since. So a lost, repeated or swapped change shows in a later one, and an old page in a list.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use etcd_client::proto::{PbEvent, PbKeyValue};
use parking_lot::Mutex;

use super::{failure::inconsistent, key_text::key_text, window::Window};
use crate::{Inconsistency, StoreError, StoreIdentity};

/// `DELETE` of etcd's `mvccpb.Event.EventType`.
pub(super) const DELETE: i32 = 1;
/// How many keys are known at most, in about 2 MB. Beyond, the keys are known that changed last.
const MAX_KEYS: usize = 50_000;
/// Readers of more prefixes begin without knowledge.
const MAX_PREFIXES: usize = 16;

/// The last known write of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KeyState {
    revision: i64,
    /// 0 if it was deleted.
    version: i64,
}

/// A key that has never existed.
const ABSENT: KeyState = KeyState {
    revision: 0,
    version: 0,
};

/// The keys below a prefix at a revision.
#[derive(Debug, Default)]
pub(super) struct KnownKeys {
    hasher: RandomState,
    revision: i64,
    /// By the hash of the key.
    states: BTreeMap<u64, KeyState>,
    /// Whether other keys do not exist.
    is_complete: bool,
    /// The revision of the last event that has arrived.
    newest: i64,
    /// Whether a message was inconsistent with it, so that it may be wrong itself.
    is_suspect: bool,
    /// The last changes.
    pub(super) window: Arc<Mutex<Window>>,
}

impl KnownKeys {
    /// At this revision, without any key.
    fn unknown(hasher: RandomState, revision: i64) -> Self {
        let window = Arc::new(Mutex::new(Window::after(revision)));
        Self {
            hasher,
            revision,
            newest: revision,
            window,
            ..Self::default()
        }
    }

    /// Follows the stream to this revision, up to which everything was delivered.
    pub(super) fn advance(&mut self, revision: i64) {
        self.revision = self.revision.max(revision);
        self.window.lock().advance(revision);
    }

    /// Checks the order of events as they arrive, in a message of this revision. The first ones may be of the revision at which the
    /// watch began.
    pub(super) fn check_order(
        &mut self,
        events: &[PbEvent],
        newest: Option<i64>,
    ) -> Result<(), StoreError> {
        for pair in events.iter().filter_map(|event| event.kv.as_ref()) {
            // Else a list of the store as it is would seem to be older than what is known.
            if let Some(newest) = newest.filter(|newest| pair.mod_revision > *newest) {
                let reason = format!(
                    "its change of revision {} came in a message of revision {newest}",
                    pair.mod_revision
                );
                return Err(self.reject(Inconsistency::Order, &pair.key, reason));
            }
            let oldest = self.newest.max(self.revision);
            if pair.mod_revision < oldest {
                let reason = format!(
                    "its change of revision {} came after revision {oldest}",
                    pair.mod_revision
                );
                return Err(self.reject(Inconsistency::Order, &pair.key, reason));
            }
            self.newest = pair.mod_revision;
        }
        Ok(())
    }

    /// Checks a change against the one before it, and remembers it.
    pub(super) fn follow(&mut self, event: &PbEvent) -> Result<(), StoreError> {
        let Some(pair) = &event.kv else { return Ok(()) };
        let hash = self.hasher.hash_one(&pair.key);
        let known = self
            .states
            .get(&hash)
            .copied()
            .or_else(|| self.is_complete.then_some(ABSENT));
        let is_deleted = event.r#type == DELETE;
        let problem = match known {
            _ if !is_deleted && !is_possible(pair) => {
                Some((Inconsistency::Version, impossible(pair)))
            }
            Some(known) if pair.mod_revision <= known.revision => {
                let reason = format!("its change of revision {} came twice", pair.mod_revision);
                Some((Inconsistency::Order, reason))
            }
            Some(known) if !continues(known, pair, is_deleted) => {
                let now = if is_deleted {
                    "a deletion".to_owned()
                } else {
                    format!("version {}", pair.version)
                };
                let before = match known.version {
                    0 => "it did not exist".to_owned(),
                    version => format!(
                        "version {version}, of revision {}, was the last",
                        known.revision
                    ),
                };
                let reason = format!(
                    "{now} came at revision {}, but {before}: changes were lost",
                    pair.mod_revision
                );
                Some((Inconsistency::Version, reason))
            }
            _ => None,
        };
        if let Some((inconsistency, reason)) = problem {
            return Err(self.reject(inconsistency, &pair.key, reason));
        }
        self.window.lock().add(event);
        let version = if is_deleted { 0 } else { pair.version };
        self.make_room(hash);
        self.states.insert(
            hash,
            KeyState {
                revision: pair.mod_revision,
                version,
            },
        );
        Ok(())
    }

    /// Makes room for a key. Deleted ones matter least: they are known by their absence too.
    fn make_room(&mut self, hash: u64) {
        if self.states.len() < MAX_KEYS || self.states.contains_key(&hash) {
            return;
        }
        self.states.retain(|_, state| state.version > 0);
        // So that not every change looks for deleted keys.
        if self.states.len() > MAX_KEYS / 8 * 7 {
            self.states.clear();
            self.is_complete = false;
        }
    }

    /// Does not keep it: the store was found to be inconsistent.
    pub(super) const fn set_suspect(&mut self) {
        self.is_suspect = true;
    }

    fn reject(&mut self, inconsistency: Inconsistency, key: &[u8], reason: String) -> StoreError {
        self.set_suspect();
        inconsistent(inconsistency, key, reason)
    }
}

/// Whether these numbers can be those of a key.
const fn is_possible(pair: &PbKeyValue) -> bool {
    pair.version >= 1
        && pair.create_revision <= pair.mod_revision
        && (pair.version == 1) == (pair.create_revision == pair.mod_revision)
}

fn impossible(pair: &PbKeyValue) -> String {
    let PbKeyValue {
        version,
        create_revision,
        mod_revision,
        ..
    } = pair;
    format!(
        "version {version} cannot be created at revision {create_revision} and written at {mod_revision}"
    )
}

/// Whether this write comes next after the known one.
const fn continues(known: KeyState, pair: &PbKeyValue, is_deleted: bool) -> bool {
    if is_deleted {
        known.version > 0
    } else {
        known.version + 1 == pair.version
            && (pair.version == 1 || pair.create_revision <= known.revision)
    }
}

/// Checks the pages of a list, in any order of pages.
#[derive(Debug)]
pub(super) struct ListCheck {
    /// What was known before.
    before: KnownKeys,
    /// What the list says.
    keys: KnownKeys,
    /// How many keys it announced, of the ranges that have begun.
    announced: i64,
    arrived: i64,
}

/// What a page of a list says of itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListPage<'a> {
    /// The first key that was requested.
    pub(super) from: &'a [u8],
    /// The requested number of keys.
    pub(super) limit: i64,
    /// How many keys there are from `from` on.
    pub(super) count: i64,
    /// The revision of the list.
    pub(super) revision: i64,
    pub(super) has_more: bool,
    /// Whether its count is that of all keys of a range.
    pub(super) begins_range: bool,
}

impl ListCheck {
    /// Begins again.
    pub(super) fn restart(&mut self) {
        (self.announced, self.arrived) = (0, 0);
        self.keys.states.clear();
        self.keys.is_complete = true;
    }

    /// How many keys the list has, of the ranges that have begun.
    pub(super) const fn announced(&self) -> i64 {
        self.announced
    }

    /// Checks a page, and remembers its keys.
    pub(super) fn read_page<'a>(
        &mut self,
        page: ListPage<'_>,
        pairs: impl ExactSizeIterator<Item = &'a PbKeyValue>,
    ) -> Result<(), StoreError> {
        self.begin_page(page, pairs.len())?;
        let mut previous: &[u8] = &[];
        for pair in pairs {
            self.add(previous, pair)?;
            previous = &pair.key;
        }
        Ok(())
    }

    /// Checks what a page says of itself.
    fn begin_page(&mut self, page: ListPage<'_>, keys: usize) -> Result<(), StoreError> {
        let ListPage {
            from,
            limit,
            count,
            revision,
            has_more,
            begins_range,
        } = page;
        let keys = i64::try_from(keys).unwrap_or(i64::MAX);
        if begins_range {
            self.announced += count;
        }
        self.arrived += keys;
        self.keys.revision = revision;
        if keys != count.min(limit) || has_more != (count > limit) {
            let reason = format!(
                "a page of {} keys from here on has {keys}",
                count.min(limit)
            );
            return Err(inconsistent(Inconsistency::Count, from, reason));
        }
        Ok(())
    }

    /// Checks a key, which follows `previous` on its page, and remembers it.
    fn add(&mut self, previous: &[u8], pair: &PbKeyValue) -> Result<(), StoreError> {
        let hash = self.keys.hasher.hash_one(&pair.key);
        if pair.key.as_slice() <= previous && !previous.is_empty() {
            let reason = format!("it is listed after {}", key_text(previous.to_vec()));
            return Err(inconsistent(Inconsistency::Order, &pair.key, reason));
        }
        if !is_possible(pair) {
            return Err(inconsistent(
                Inconsistency::Version,
                &pair.key,
                impossible(pair),
            ));
        }
        if pair.mod_revision > self.keys.revision {
            let (written, listed) = (pair.mod_revision, self.keys.revision);
            let reason =
                format!("it is listed as of revision {listed}, and was written at {written}");
            return Err(inconsistent(Inconsistency::Version, &pair.key, reason));
        }
        if let Some(known) = self
            .before
            .states
            .get(&hash)
            .filter(|known| pair.mod_revision < known.revision)
        {
            let (listed, known) = (pair.mod_revision, known.revision);
            let reason =
                format!("it is listed as of revision {listed}, and has changed at {known}");
            return Err(inconsistent(Inconsistency::OldList, &pair.key, reason));
        }
        if self.keys.states.len() < MAX_KEYS {
            let state = KeyState {
                revision: pair.mod_revision,
                version: pair.version,
            };
            self.keys.states.insert(hash, state);
        } else {
            self.keys.is_complete = false;
        }
        Ok(())
    }
}

/// What the readers of a store know, by prefix.
#[derive(Debug, Default)]
pub(super) struct KnownPrefixes {
    hasher: RandomState,
    prefixes: Mutex<BTreeMap<String, KnownPrefix>>,
    /// What the store has said of itself.
    identity: Mutex<Option<StoreIdentity>>,
}

#[derive(Debug, Default)]
struct KnownPrefix {
    /// None while it is watched.
    keys: Option<KnownKeys>,
    /// The newest revision.
    reached: i64,
    /// Whether the last list was older than that.
    was_older: bool,
}

impl KnownPrefixes {
    /// Begins a list.
    pub(super) fn begin_list(&self, prefix: &str) -> ListCheck {
        let before = self
            .prefixes
            .lock()
            .get_mut(prefix)
            .and_then(|known| known.keys.take());
        let unknown = || KnownKeys::unknown(self.hasher.clone(), 0);
        ListCheck {
            before: before.unwrap_or_else(unknown),
            keys: KnownKeys {
                is_complete: true,
                ..unknown()
            },
            announced: 0,
            arrived: 0,
        }
    }

    /// Ends a list that has failed.
    pub(super) fn abandon_list(&self, prefix: &str, list: ListCheck) {
        if list.before.revision > 0 {
            self.put_back(prefix, list.before);
        }
    }

    /// Ends a list: it has all its keys, and is not older than what was known. A store that says so twice was restored.
    pub(super) fn end_list(&self, prefix: &str, list: ListCheck) -> Result<(), StoreError> {
        let ListCheck {
            mut keys,
            announced,
            arrived,
            ..
        } = list;
        if announced != arrived {
            let reason = format!("a list of {announced} keys has {arrived}");
            return Err(inconsistent(
                Inconsistency::Count,
                prefix.as_bytes(),
                reason,
            ));
        }
        let mut prefixes = self.prefixes.lock();
        if prefixes.len() >= MAX_PREFIXES && !prefixes.contains_key(prefix) {
            return Ok(());
        }
        let known = prefixes.entry(prefix.to_owned()).or_default();
        let (requested, newest) = (known.reached, keys.revision);
        if newest < requested {
            if std::mem::replace(&mut known.was_older, true) {
                *known = KnownPrefix::default();
                return Err(StoreError::Rewound { requested, newest });
            }
            let reason =
                format!("it is listed as of revision {newest}, and was known up to {requested}");
            return Err(inconsistent(
                Inconsistency::OldList,
                prefix.as_bytes(),
                reason,
            ));
        }
        keys.newest = keys.revision;
        keys.window = Arc::new(Mutex::new(Window::after(keys.revision)));
        *known = KnownPrefix {
            reached: keys.revision,
            keys: Some(keys),
            was_older: false,
        };
        Ok(())
    }

    /// What is known at this revision, for a watch that begins there.
    pub(super) fn take(&self, prefix: &str, revision: i64) -> KnownKeys {
        let mut prefixes = self.prefixes.lock();
        let keys = prefixes.get_mut(prefix).and_then(|known| known.keys.take());
        let mut keys = keys
            .filter(|keys| keys.revision == revision)
            .unwrap_or_else(|| KnownKeys::unknown(self.hasher.clone(), revision));
        keys.newest = revision;
        keys
    }

    /// Keeps what a watch has learned until it ended.
    pub(super) fn put_back(&self, prefix: &str, keys: KnownKeys) {
        if let Some(known) = self.prefixes.lock().get_mut(prefix) {
            known.reached = known.reached.max(keys.revision);
            // Another reader may have listed since.
            let is_newer = known
                .keys
                .as_ref()
                .is_none_or(|other| other.revision < keys.revision);
            if is_newer && !keys.is_suspect {
                known.keys = Some(keys);
            }
        }
    }

    /// Begins with what was saved at this revision. Nothing else is known of its keys.
    pub(super) fn begin_saved(&self, prefix: &str, revision: i64) {
        let known = KnownPrefix {
            reached: revision,
            ..KnownPrefix::default()
        };
        self.prefixes.lock().insert(prefix.to_owned(), known);
    }

    /// What the store has said of itself.
    pub(super) fn identity(&self) -> Option<StoreIdentity> {
        *self.identity.lock()
    }

    /// Remembers what the store says of itself.
    pub(super) fn set_identity(&self, identity: Option<StoreIdentity>) {
        *self.identity.lock() = identity;
    }

    /// Forgets a prefix: the store has another history.
    pub(super) fn forget(&self, prefix: &str) {
        self.prefixes.lock().remove(prefix);
    }
}

#[cfg(test)]
mod tests;
