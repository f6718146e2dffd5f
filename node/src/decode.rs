//! Decodes the values of a store into events for the processor. A bad value is never treated as a deletion. No I/O.

mod list;
mod value;

use std::collections::BTreeSet;

use contiv_external_workloads::{DerivedSlices, UnservedWorkloads};
use contiv_model::Event;
use contiv_proto::Key;
use contiv_store::{Batch, Change, Entry, FeedEvent, Inconsistency, ListPart, Problem, Snapshot};
use jiff::Timestamp;

use value::{DecodedValue, decode, decode_deletion};

pub use list::{DecodedList, ListDecoder};
pub use value::BadValue;

/// A decoded event of a store.
#[derive(Debug)]
pub enum StoreEvent {
    /// A list is being read: a part of it has arrived.
    ListProgress,
    /// A complete list. Missing objects are deleted.
    Listed(Box<DecodedList>),
    /// The changes since the previous event.
    Changed(Batch, DecodedChanges),
    /// Nothing has changed up to this revision.
    Progress {
        /// The revision.
        revision: i64,
    },
    /// The complete list of objects that the store itself cannot read.
    Problems(Vec<Problem>),
    /// The store cannot be watched at the moment.
    Down {
        /// The reason.
        reason: String,
    },
    /// The store has other data than before; a list follows.
    Replaced {
        /// How it was detected.
        reason: String,
    },
    /// The store has said something that cannot be; a list follows.
    Inconsistent {
        /// What shows it.
        inconsistency: Inconsistency,
        /// The key, and what was wrong.
        reason: String,
    },
    /// The watch of the store goes on, and nothing was missed.
    Up,
}

/// Decodes the deliveries of a store's feed, and collects the pages of a list.
#[derive(Debug)]
pub struct Decoder {
    /// When the agent started.
    started: Timestamp,
    list: ListDecoder,
    /// What an earlier run had saved, until the store is found to be as it was then, or is listed.
    saved: Option<ListDecoder>,
    /// The store is as it was saved, and that is not here any more.
    lacks_saved: bool,
    slices: WorkloadSlices,
}

/// Where the slices of external workloads come from.
#[derive(Debug)]
enum WorkloadSlices {
    /// The agent makes them.
    Derived(DerivedSlices),
    /// The controller is to write them into the store.
    Written(UnservedWorkloads),
}

/// What a workload lacks without a controller.
const NO_CONTROLLER: &str = "it gets no traffic: no controller has made endpoint slices of it; \
                             `contiv controller --enable external-workloads` does";

impl Decoder {
    /// For an agent that started then.
    pub fn new(started: Timestamp) -> Self {
        Self {
            started,
            list: ListDecoder::default(),
            saved: None,
            lacks_saved: false,
            slices: WorkloadSlices::Written(UnservedWorkloads::default()),
        }
    }

    /// Makes the slices of external workloads itself: no controller writes them into this store.
    #[must_use]
    pub fn deriving_slices(mut self) -> Self {
        self.slices = WorkloadSlices::Derived(DerivedSlices::default());
        self
    }

    /// Whether the store must be listed again, since the first external workload came after the last list. False until the next
    /// time. Without workloads nothing is kept of services, so which of them select it, only a list says. To keep the selectors of
    /// all services, on every node and for stores that never have a workload, would cost more than one list.
    pub fn needs_list(&mut self) -> bool {
        let lacks_workloads = match &mut self.slices {
            WorkloadSlices::Derived(slices) => slices.needs_list(),
            WorkloadSlices::Written(workloads) => workloads.needs_list(),
        };
        std::mem::take(&mut self.lacks_saved) || lacks_workloads
    }

    /// Decodes entries that an earlier run had saved, for [`FeedEvent::Resumed`]. The event, as of a part of a list.
    pub fn add_saved(&mut self, entries: Vec<Entry>) -> StoreEvent {
        self.saved.get_or_insert_default().add(entries);
        StoreEvent::ListProgress
    }

    fn complete(
        &mut self,
        mut list: ListDecoder,
        revision: i64,
        problems: Vec<Problem>,
    ) -> DecodedList {
        match &mut self.slices {
            WorkloadSlices::Derived(slices) => list.derive(slices, revision),
            WorkloadSlices::Written(workloads) => {
                workloads.list(list.entries(), revision);
                list.set_unserved(unserved(workloads));
            }
        }
        list.finish(revision, problems)
    }

    /// The decoded event; none for a part of a list without entries.
    pub fn decode(&mut self, event: FeedEvent) -> Option<StoreEvent> {
        Some(match event {
            FeedEvent::List(ListPart::Started) => {
                (self.list, self.saved) = (ListDecoder::default(), None);
                return None;
            }
            FeedEvent::List(ListPart::Expected(entries)) => {
                self.list.reserve(entries);
                return None;
            }
            FeedEvent::List(ListPart::Page(entries)) => {
                self.list.add(entries);
                StoreEvent::ListProgress
            }
            FeedEvent::List(ListPart::Complete { revision, problems }) => {
                let list = std::mem::take(&mut self.list);
                StoreEvent::Listed(Box::new(self.complete(list, revision, problems)))
            }
            FeedEvent::Resumed { revision } => {
                let Some(saved) = self.saved.take() else {
                    self.lacks_saved = true;
                    return None;
                };
                let mut list = self.complete(saved, revision, Vec::new());
                list.is_saved = true;
                StoreEvent::Listed(Box::new(list))
            }
            FeedEvent::Progress { revision } => StoreEvent::Progress { revision },
            FeedEvent::Snapshot(Snapshot {
                revision,
                entries,
                problems,
            }) => {
                self.list = ListDecoder::default();
                self.list.add(entries);
                return self.decode(FeedEvent::List(ListPart::Complete { revision, problems }));
            }
            FeedEvent::Changed(mut batch) => {
                let unserved = match &mut self.slices {
                    WorkloadSlices::Derived(slices) => {
                        let derived = slices.change(&batch);
                        // As in a list, a derived slice takes the place of one that has its name.
                        batch.changes.retain(|change| !slices.replaces(change));
                        batch.changes.extend(derived);
                        None
                    }
                    WorkloadSlices::Written(workloads) => {
                        workloads.change(&batch).then(|| unserved(workloads))
                    }
                };
                let decoded = DecodedChanges {
                    unserved,
                    ..changes(&batch.changes, self.started)
                };
                StoreEvent::Changed(batch, decoded)
            }
            FeedEvent::Problems(problems) => StoreEvent::Problems(problems),
            FeedEvent::Down { reason } => {
                // The pages of a list that was not completed.
                self.list = ListDecoder::default();
                StoreEvent::Down { reason }
            }
            FeedEvent::Replaced { reason } => StoreEvent::Replaced { reason },
            FeedEvent::Inconsistent {
                inconsistency,
                reason,
            } => StoreEvent::Inconsistent {
                inconsistency,
                reason,
            },
            FeedEvent::Up => StoreEvent::Up,
        })
    }
}

/// A warning for each workload that no controller serves.
fn unserved(workloads: &UnservedWorkloads) -> Vec<Problem> {
    let warning = |key: Key| Problem {
        source: key.to_path(),
        object: Some(key.to_string()),
        field: None,
        reason: NO_CONTROLLER.to_owned(),
        is_warning: true,
    };
    workloads.workloads().into_iter().map(warning).collect()
}

/// Decoded changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DecodedChanges {
    /// Events for the processor, in order.
    pub events: Vec<Event>,
    /// The status of each value, in order.
    pub statuses: Vec<ValueStatus>,
    /// Warnings of the fields of used values, in any order.
    pub warnings: Vec<Problem>,
    /// The external workloads that no controller serves now; none if they are as before.
    pub unserved: Option<Vec<Problem>>,
    /// The first trigger time, if there is one.
    pub triggered: Option<Timestamp>,
}

/// The status of a value.
#[derive(Debug, PartialEq, Eq)]
pub enum ValueStatus {
    /// The value of this key is good, or deleted.
    Good(String),
    /// Good except for a part.
    Partly(BadValue),
    /// Not at all.
    Bad(BadValue),
    /// Not decoded, because a later value of the same key is good.
    Superseded,
}

/// Decodes changes. For a key with many changes only the last good value and the later bad ones are decoded. Trigger times
/// before `start`, when the agent started, are ignored in measuring latency.
pub fn changes(changes: &[Change], start: Timestamp) -> DecodedChanges {
    let mut decoded_changes = DecodedChanges::default();
    let mut good_keys = BTreeSet::new();
    for change in changes.iter().rev() {
        if good_keys.contains(change.key()) {
            decoded_changes.statuses.push(ValueStatus::Superseded);
            continue;
        }
        let (key, decoded) = match change {
            Change::Put(entry) => (&entry.key, decode(entry)),
            Change::Delete { key } => (key, decode_deletion(key)),
        };
        match decoded {
            DecodedValue::Good {
                event,
                triggered,
                partly,
                warnings,
            } => {
                // Most changes arrive alone and have no earlier value.
                if changes.len() > 1 {
                    good_keys.insert(change.key());
                }
                // Other text in the annotation is ignored.
                let triggered = triggered
                    .and_then(|time| time.parse().ok())
                    .filter(|time| *time >= start);
                decoded_changes.triggered =
                    decoded_changes.triggered.into_iter().chain(triggered).min();
                decoded_changes.events.push(event);
                decoded_changes.warnings.extend(warnings);
                decoded_changes.statuses.push(partly.map_or_else(
                    || ValueStatus::Good(key.clone()),
                    |bad| ValueStatus::Partly(*bad),
                ));
            }
            DecodedValue::Ignored => decoded_changes
                .statuses
                .push(ValueStatus::Good(key.clone())),
            DecodedValue::Bad(bad) => decoded_changes.statuses.push(ValueStatus::Bad(bad)),
        }
    }
    decoded_changes.events.reverse();
    decoded_changes.statuses.reverse();
    decoded_changes
}

#[cfg(test)]
mod tests;
