//! A model of the store and of the feed that watches it: revisions, a log that is compacted, lists in pages that come late,
//! outages, wipes and restores. Its events keep the contract of `contiv_store::Feed`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use contiv_store::{Batch, Change, Entry, FeedEvent, ListPart};
use rand::{RngExt as _, rngs::SmallRng};

use crate::cluster::Write;

/// The maximum number of entries in a page.
const MAX_PAGE_SIZE: usize = 8;

/// The entries of a store, and the log of changes.
#[derive(Debug, Clone)]
pub struct ModelStore {
    revision: i64,
    entries: BTreeMap<String, Entry>,
    log: VecDeque<Batch>,
    /// Revisions before this one are compacted.
    compacted: i64,
    /// Counts how often its history was replaced.
    epoch: u64,
}

/// A backup: everything at one revision.
#[derive(Debug, Clone)]
pub struct Backup {
    revision: i64,
    entries: BTreeMap<String, Entry>,
}

impl Default for ModelStore {
    /// An empty store.
    fn default() -> Self {
        Self {
            revision: 1,
            entries: BTreeMap::new(),
            log: VecDeque::new(),
            compacted: 1,
            epoch: 0,
        }
    }
}

impl ModelStore {
    /// The newest revision.
    pub const fn revision(&self) -> i64 {
        self.revision
    }

    /// The stored entries.
    pub const fn entries(&self) -> &BTreeMap<String, Entry> {
        &self.entries
    }

    /// Commits all writes at one revision.
    pub fn commit(&mut self, writes: Vec<Write>) {
        let revision = self.revision + 1;
        let mut changes = Vec::new();
        for write in writes {
            match write {
                Write::Put(key, value) => {
                    let create_revision = self
                        .entries
                        .get(&key)
                        .map_or(revision, |entry| entry.create_revision);
                    let entry = Entry {
                        key: key.clone(),
                        value,
                        create_revision,
                        mod_revision: revision,
                    };
                    self.entries.insert(key, entry.clone());
                    changes.push(Change::Put(entry));
                }
                Write::Delete(key) => {
                    if self.entries.remove(&key).is_some() {
                        changes.push(Change::Delete { key });
                    }
                }
            }
        }
        if !changes.is_empty() {
            self.revision = revision;
            self.log.push_back(Batch { revision, changes });
        }
    }

    /// Compacts the log up to the current revision.
    pub fn compact(&mut self) {
        self.compacted = self.revision;
        self.log.clear();
    }

    /// Whether one of the deviating keys has changed since: its value then is not known here.
    fn has_changed_after(&self, start: &ModelStart) -> bool {
        let later = self
            .log
            .iter()
            .filter(|batch| batch.revision > start.revision);
        later
            .flat_map(|batch| &batch.changes)
            .any(|change| start.deviating.contains(change.key()))
    }

    /// What is stored under these keys.
    fn values_of(&self, keys: &BTreeSet<String>) -> Vec<Change> {
        let value = |key: &String| match self.entries.get(key) {
            Some(entry) => Change::Put(entry.clone()),
            None => Change::Delete { key: key.clone() },
        };
        keys.iter().map(value).collect()
    }

    /// Makes a backup.
    pub fn backup(&self) -> Backup {
        Backup {
            revision: self.revision,
            entries: self.entries.clone(),
        }
    }

    /// Restores a backup: revisions continue from that of the backup.
    pub fn restore(&mut self, backup: Backup) {
        self.revision = backup.revision;
        self.entries = backup.entries;
        self.log.clear();
        self.compacted = self.revision;
        self.epoch += 1;
    }
}

/// Where a feed goes on.
#[derive(Debug, Clone)]
pub struct ModelStart {
    /// The saved revision.
    pub revision: i64,
    /// The history that it is of.
    pub epoch: u64,
    /// The keys whose saved values are not those of the store.
    pub deviating: BTreeSet<String>,
}

/// The state of the feed.
#[derive(Debug, Default)]
enum State {
    /// A list begins next.
    #[default]
    NeedsList,
    /// Pages of a list at one revision are being delivered.
    Listing {
        revision: i64,
        epoch: u64,
        pages: VecDeque<Vec<Entry>>,
    },
    /// The watch goes on from what was saved, if the store still has that.
    Saved(ModelStart),
    /// It does, and these are the values of the keys that deviate.
    Resumed {
        revision: i64,
        epoch: u64,
        changes: Vec<Change>,
    },
    /// Changes after this revision will be delivered.
    Watching { revision: i64, epoch: u64 },
}

/// The model of a feed: watches a store and delivers to the agent.
#[derive(Debug, Default)]
pub struct ModelFeed {
    state: State,
    is_down: bool,
    is_down_reported: bool,
    /// The keys that are to be read again.
    rereads: BTreeSet<String>,
}

impl ModelFeed {
    /// Begins or ends an outage.
    pub const fn set_down(&mut self, is_down: bool) {
        self.is_down = is_down;
    }

    /// The store cannot be reached.
    pub const fn is_down(&self) -> bool {
        self.is_down
    }

    /// An agent starts without any state.
    pub fn restart(&mut self) {
        *self = Self {
            state: State::NeedsList,
            is_down: self.is_down,
            is_down_reported: false,
            rereads: BTreeSet::new(),
        };
    }

    /// Lets it go on from what was saved.
    pub fn resume(&mut self, start: ModelStart) {
        self.state = State::Saved(start);
    }

    /// The history of what it has delivered last; none if nothing was.
    pub const fn epoch(&self) -> Option<u64> {
        match &self.state {
            State::NeedsList | State::Saved(_) => None,
            State::Resumed { epoch, .. }
            | State::Listing { epoch, .. }
            | State::Watching { epoch, .. } => Some(*epoch),
        }
    }

    /// Reads these keys again, when it watches.
    pub fn reread(&mut self, keys: BTreeSet<String>) {
        self.rereads.extend(keys);
    }

    /// Requests a list.
    pub fn relist(&mut self) {
        self.state = State::NeedsList;
    }

    /// Everything that is stored has been delivered.
    pub fn is_idle(&self, store: &ModelStore) -> bool {
        let is_current = matches!(&self.state, State::Watching { revision, epoch }
            if *revision == store.revision && *epoch == store.epoch);
        is_current && !self.is_down && !self.is_down_reported && self.rereads.is_empty()
    }

    /// The next event, if there is one now.
    pub fn next(&mut self, store: &ModelStore, rng: &mut SmallRng) -> Option<FeedEvent> {
        if self.is_down {
            if matches!(self.state, State::Listing { .. }) {
                self.state = State::NeedsList;
            }
            return (!std::mem::replace(&mut self.is_down_reported, true)).then(|| {
                FeedEvent::Down {
                    reason: "simulated".to_owned(),
                }
            });
        }
        match &mut self.state {
            State::NeedsList => {
                let all: Vec<Entry> = store.entries.values().cloned().collect();
                let mut pages: VecDeque<Vec<Entry>> = all
                    .chunks(rng.random_range(1..=MAX_PAGE_SIZE))
                    .map(<[Entry]>::to_vec)
                    .collect();
                if rng.random() {
                    pages.make_contiguous().reverse();
                }
                self.state = State::Listing {
                    revision: store.revision,
                    epoch: store.epoch,
                    pages,
                };
                Some(FeedEvent::List(ListPart::Started))
            }
            State::Listing {
                revision,
                epoch,
                pages,
            } => {
                if let Some(page) = pages.pop_front() {
                    return Some(FeedEvent::List(ListPart::Page(page)));
                }
                let (revision, epoch) = (*revision, *epoch);
                self.state = State::Watching { revision, epoch };
                self.is_down_reported = false;
                Some(FeedEvent::List(ListPart::Complete {
                    revision,
                    problems: Vec::new(),
                }))
            }
            State::Saved(start) => {
                let is_same = start.epoch == store.epoch && start.revision >= store.compacted;
                if !is_same || store.has_changed_after(start) {
                    self.state = State::NeedsList;
                    return self.next(store, rng);
                }
                let (revision, epoch) = (start.revision, start.epoch);
                let changes = store.values_of(&start.deviating);
                self.state = State::Resumed {
                    revision,
                    epoch,
                    changes,
                };
                self.is_down_reported = false;
                Some(FeedEvent::Resumed { revision })
            }
            State::Resumed {
                revision,
                epoch,
                changes,
            } => {
                let (revision, epoch, changes) = (*revision, *epoch, std::mem::take(changes));
                self.state = State::Watching { revision, epoch };
                if changes.is_empty() {
                    return self.next(store, rng);
                }
                Some(FeedEvent::Changed(Batch { revision, changes }))
            }
            State::Watching { revision, epoch } => {
                if *epoch != store.epoch {
                    self.state = State::NeedsList;
                    return Some(FeedEvent::Replaced {
                        reason: "simulated".to_owned(),
                    });
                }
                if *revision < store.compacted {
                    self.state = State::NeedsList;
                    return self.next(store, rng);
                }
                if std::mem::take(&mut self.is_down_reported) {
                    return Some(FeedEvent::Up);
                }
                if !self.rereads.is_empty() {
                    let start = ModelStart {
                        revision: *revision,
                        epoch: *epoch,
                        deviating: std::mem::take(&mut self.rereads),
                    };
                    // The values of then are known only of keys that have not changed since.
                    if !store.has_changed_after(&start) {
                        return Some(FeedEvent::Changed(Batch {
                            revision: start.revision,
                            changes: store.values_of(&start.deviating),
                        }));
                    }
                }
                let next: Vec<&Batch> = store
                    .log
                    .iter()
                    .filter(|batch| batch.revision > *revision)
                    .take(rng.random_range(1..=4))
                    .collect();
                let last = next.last()?.revision;
                let changes = next
                    .iter()
                    .flat_map(|batch| batch.changes.iter().cloned())
                    .collect();
                *revision = last;
                Some(FeedEvent::Changed(Batch {
                    revision: last,
                    changes,
                }))
            }
        }
    }
}
