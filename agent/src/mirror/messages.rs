//! The messages of the mirror's threads.

use std::{collections::BTreeSet, io};

use contiv_node::message::Saving;
use contiv_store::{Batch, mirror::log::List};

/// A message to the first thread.
#[derive(Debug)]
pub(super) enum Job {
    Save(Saving),
    Load,
    Start,
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
        deviating: BTreeSet<String>,
    },
    Load,
    Start,
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
