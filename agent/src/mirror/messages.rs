//! The messages of the mirror's threads.

use std::collections::BTreeSet;

use contiv_store::{Batch, Entry, MirrorSummary, Saved, mirror::log::List};

/// A message to the first thread.
#[derive(Debug)]
pub(super) enum Job {
    Replace { revision: i64, entries: Vec<Entry>, keep: BTreeSet<String> },
    Apply(Batch),
    Load,
}

/// A report of the threads.
#[derive(Debug)]
pub(crate) enum MirrorReport {
    /// How much was saved when the agent started, told once.
    Summary(MirrorSummary),
    /// What was saved, as was asked for; none if nothing was, or it cannot be read.
    Loaded(Option<Saved>),
    /// Everything up to this revision is saved.
    Written(i64),
    /// Nothing can be saved at the moment.
    Failed(String),
    /// After a failed write the mirror can be written again: its content must be replaced.
    CaughtUp,
}

/// A message of the first thread to the second.
#[derive(Debug)]
pub(super) enum Work {
    /// The first record of this process's log. This message comes before all others.
    Begin {
        first: u64,
    },
    Replace(Replacement),
    Apply {
        number: u64,
        batch: Batch,
    },
    Load,
}

/// The complete content, as it is to be saved.
#[derive(Debug)]
pub(super) struct Replacement {
    /// Its number in the log.
    pub(super) number: u64,
    pub(super) revision: i64,
    pub(super) entries: PendingList,
    pub(super) keep: BTreeSet<String>,
}

/// A list that waits to be saved.
#[derive(Debug)]
pub(super) enum PendingList {
    InLog(List),
    /// Writing it to disk failed.
    InMemory(Vec<Entry>),
}

/// The bytes that changes count for while they are queued. A batch without changes counts too.
pub(super) fn size(batch: &Batch) -> usize {
    size_of::<Batch>() + batch.size()
}
