//! The messages of the mirror's threads.

use std::{collections::BTreeSet, io};

use contiv_store::{Batch, MirrorSummary, PackedEntries, Saved, mirror::log::List};

/// The saved content.
#[derive(Debug)]
pub enum Saving {
    /// All entries of a list, except for those of the keys in `keep`: their earlier saved values stay.
    List {
        /// The revision of the list.
        revision: i64,
        /// All of them. They are logged in the order of their keys.
        entries: PackedEntries,
        /// The exceptions: the store has unusable values for them, or nothing.
        keep: BTreeSet<String>,
    },
    /// Changes, all of them usable.
    Apply(Batch),
}

/// A message to the first thread.
#[derive(Debug)]
pub(super) enum Job {
    Save(Saving),
    Load,
}

/// A report of the threads.
#[derive(Debug)]
pub enum MirrorReport {
    /// How much was saved when the agent started. Sent once.
    Summary(MirrorSummary),
    /// The saved content, in answer to `Load`; none if nothing is saved, or it cannot be read.
    Loaded(Option<Saved>),
    /// Everything up to this revision is saved.
    Written {
        /// The revision.
        revision: i64,
        /// Later changes were dropped because the disk was too slow: everything must be saved again.
        is_behind: bool,
    },
    /// Nothing can be saved at the moment.
    Failed(String),
    /// After a failed write the mirror can be written again: everything must be saved again.
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
    /// A list could not be written to the log.
    Lost(io::Error),
    Apply {
        number: u64,
        batch: Batch,
    },
    Load,
}

/// The complete content to save.
#[derive(Debug)]
pub(super) struct Replacement {
    /// Its number in the log.
    pub(super) number: u64,
    pub(super) revision: i64,
    pub(super) entries: List,
    pub(super) keep: BTreeSet<String>,
}

/// The bytes that changes count for while they are queued. A batch without changes counts too.
pub(super) fn size(batch: &Batch) -> usize {
    size_of::<Batch>() + batch.size()
}
