//! Tracks whether every key of the first list was reconciled.

use std::{collections::BTreeSet, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::resource::Key;

/// A gate before deletions: it opens when every object of the first list was reconciled successfully once.
///
/// A controller that deletes unknown objects must wait for it. Before that it has not yet seen every desired object and would
/// delete some of them (consul-k8s issues 319 and 4714). An object that cannot be reconciled or read keeps the gate shut until
/// it can or is deleted. Cheap to clone.
#[derive(Debug, Clone)]
pub struct FirstPass {
    /// None until the first list.
    remaining: Arc<Mutex<Option<BTreeSet<Key>>>>,
    is_done: watch::Sender<bool>,
}

impl FirstPass {
    pub(super) fn new() -> Self {
        Self {
            remaining: Arc::default(),
            is_done: watch::Sender::new(false),
        }
    }

    /// Sets the keys of the first list.
    pub(super) fn begin(&self, keys: BTreeSet<Key>) {
        let is_done = keys.is_empty();
        *self.remaining.lock() = Some(keys);
        self.is_done.send_replace(is_done);
    }

    /// Marks a key as reconciled.
    pub(super) fn passed(&self, key: &Key) {
        if self.is_done() {
            return;
        }
        let mut remaining = self.remaining.lock();
        let Some(keys) = remaining.as_mut() else {
            return;
        };
        keys.remove(key);
        if keys.is_empty() {
            drop(remaining);
            self.is_done.send_replace(true);
        }
    }

    /// Whether the first pass is complete.
    pub fn is_done(&self) -> bool {
        *self.is_done.borrow()
    }

    /// Waits until the first pass is complete.
    pub async fn wait(&self) {
        // The error case cannot occur: `self` holds the sender.
        let _ = self.is_done.subscribe().wait_for(|is_done| *is_done).await;
    }

    /// How many keys are still to be reconciled; none before the first list.
    #[cfg(test)]
    pub(crate) fn remaining(&self) -> Option<usize> {
        self.remaining.lock().as_ref().map(BTreeSet::len)
    }
}
