//! A store that follows etcd's rules, with its history of the last minutes.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use etcd_client::proto::{PbEvent, PbKeyValue, PbResponseHeader, PbWatchResponse};
use rand::{RngExt, rngs::SmallRng};

use super::super::super::{
    key_text::key_text,
    known::{DELETE, KnownPrefixes, ListPage},
};
use crate::{Entry, StoreError};

pub(super) const PREFIX: &str = "/k/";
/// Keys that are written,
const KEYS: u32 = 800;
/// and those of them that get half of the writes.
const BUSY_KEYS: u32 = 100;
const HISTORY_DURATION: Duration = Duration::from_secs(300);
const PAGE_KEYS: usize = 500;

/// The changes of one revision.
pub(super) struct Revision {
    pub(super) at: Duration,
    pub(super) events: Vec<PbEvent>,
}

/// The store.
pub(super) struct SimulatedEtcd {
    pub(super) revision: i64,
    pub(super) pairs: BTreeMap<String, PbKeyValue>,
    history: VecDeque<Revision>,
    /// Keys that nobody writes until then.
    still: BTreeMap<String, Duration>,
}

/// What a reader has by key.
pub(super) type Content = BTreeMap<String, Entry>;

impl SimulatedEtcd {
    pub(super) const fn new() -> Self {
        Self {
            revision: 1,
            pairs: BTreeMap::new(),
            history: VecDeque::new(),
            still: BTreeMap::new(),
        }
    }

    /// Writes some keys in one transaction.
    pub(super) fn write(&mut self, rng: &mut SmallRng, now: Duration) -> &Revision {
        let changes = if rng.random_bool(0.7) {
            1
        } else {
            rng.random_range(2..5)
        };
        let mut keys: Vec<String> = Vec::new();
        while keys.len() < changes {
            let range = if rng.random() { BUSY_KEYS } else { KEYS };
            let key = format!("{PREFIX}{:03}", rng.random_range(0..range));
            if !keys.contains(&key) && self.still.get(&key).is_none_or(|until| *until < now) {
                keys.push(key);
            }
        }
        self.revision += 1;
        let events = keys.into_iter().map(|key| self.change(key, rng)).collect();
        self.history.push_back(Revision { at: now, events });
        while self
            .history
            .front()
            .is_some_and(|oldest| oldest.at + HISTORY_DURATION < now)
        {
            self.history.pop_front();
        }
        &self.history[self.history.len() - 1]
    }

    fn change(&mut self, key: String, rng: &mut SmallRng) -> PbEvent {
        let before = self.pairs.remove(&key);
        let mut pair = PbKeyValue {
            key: key.clone().into_bytes(),
            mod_revision: self.revision,
            ..PbKeyValue::default()
        };
        let is_deleted = before.is_some() && rng.random_bool(0.25);
        if !is_deleted {
            pair.value = rng.random::<u64>().to_le_bytes().to_vec();
            pair.version = before.as_ref().map_or(1, |before| before.version + 1);
            pair.create_revision = before.map_or(self.revision, |before| before.create_revision);
            self.pairs.insert(key, pair.clone());
        }
        PbEvent {
            r#type: DELETE * i32::from(is_deleted),
            kv: Some(pair),
            prev_kv: None,
        }
    }

    /// Nobody writes this key for so long.
    pub(super) fn keep_still(&mut self, key: &str, until: Duration) {
        self.still.insert(key.to_owned(), until);
    }

    /// The changes of this revision and the later ones; none if they are too old or not there yet.
    pub(super) fn since(&self, revision: i64) -> impl Iterator<Item = &Revision> {
        let newer = usize::try_from(self.revision + 1 - revision.max(2)).unwrap();
        assert!(newer <= self.history.len(), "the history is too short");
        self.history.range(self.history.len() - newer..)
    }

    /// A message with these changes.
    pub(super) fn message(&self, events: Vec<PbEvent>) -> PbWatchResponse {
        let header = PbResponseHeader {
            revision: self.revision,
            ..PbResponseHeader::default()
        };
        PbWatchResponse {
            header: Some(header),
            events,
            ..PbWatchResponse::default()
        }
    }

    /// Lists all keys, as a reader does. Returns the number of pages, too.
    pub(super) fn list(&self, known: &KnownPrefixes) -> Result<(Content, u64), StoreError> {
        let mut list = known.begin_list(PREFIX);
        list.restart();
        let pairs: Vec<&PbKeyValue> = self.pairs.values().collect();
        let (mut from, mut pages) = (PREFIX.as_bytes(), 0);
        let mut rest = &pairs[..];
        loop {
            let page = &rest[..rest.len().min(PAGE_KEYS)];
            let said = ListPage {
                from,
                limit: PAGE_KEYS.try_into().unwrap(),
                count: rest.len().try_into().unwrap(),
                revision: self.revision,
                has_more: page.len() < rest.len(),
                begins_range: pages == 0,
            };
            list.read_page(said, page.iter().copied())?;
            pages += 1;
            rest = &rest[page.len()..];
            match rest.first() {
                Some(next) => from = &next.key,
                None => break,
            }
        }
        known.end_list(PREFIX, list)?;
        Ok((self.content(), pages))
    }

    /// What a list has.
    pub(super) fn content(&self) -> Content {
        let pairs = self.pairs.iter();
        pairs
            .map(|(key, pair)| (key.clone(), entry(pair)))
            .collect()
    }
}

fn entry(pair: &PbKeyValue) -> Entry {
    Entry {
        key: key_text(pair.key.clone()),
        value: pair.value.clone().into(),
        create_revision: pair.create_revision,
        mod_revision: pair.mod_revision,
    }
}

/// Whether this is what the store has.
pub(super) fn is_same(entry: Option<&Entry>, pair: Option<&PbKeyValue>) -> bool {
    match (entry, pair) {
        (None, None) => true,
        (Some(entry), Some(pair)) => {
            (entry.mod_revision, entry.create_revision) == (pair.mod_revision, pair.create_revision)
                && entry.value == pair.value
        }
        _ => false,
    }
}
