//! Whether every key of the first list was reconciled once.

use std::{collections::BTreeSet, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::resource::Key;

/// The gate before anything may be reaped: it opens when every object that was there at the start was reconciled once,
/// with success.
///
/// A controller that deletes what it does not know must wait for it. Before that it has not yet seen all that should be
/// there, and would delete what is still wanted (consul-k8s issues 319 and 4714). An object that cannot be reconciled,
/// or not even read, keeps the gate shut until it can or is gone. Cheap to clone.
#[derive(Debug, Clone)]
pub struct FirstPass {
    /// None until the first list.
    remaining: Arc<Mutex<Option<BTreeSet<Key>>>>,
    is_done: watch::Sender<bool>,
}

impl FirstPass {
    pub(super) fn new() -> Self {
        Self { remaining: Arc::default(), is_done: watch::Sender::new(false) }
    }

    /// These are the keys of the first list.
    pub(super) fn begin(&self, keys: BTreeSet<Key>) {
        let is_done = keys.is_empty();
        *self.remaining.lock() = Some(keys);
        self.is_done.send_replace(is_done);
    }

    /// A key was reconciled.
    pub(super) fn passed(&self, key: &Key) {
        if self.is_done() {
            return;
        }
        let mut remaining = self.remaining.lock();
        let Some(keys) = remaining.as_mut() else { return };
        keys.remove(key);
        if keys.is_empty() {
            drop(remaining);
            self.is_done.send_replace(true);
        }
    }

    /// Whether it is over.
    pub fn is_done(&self) -> bool {
        *self.is_done.borrow()
    }

    /// Returns when it is over.
    pub async fn wait(&self) {
        // The sender lives as long as this.
        let _ = self.is_done.subscribe().wait_for(|is_done| *is_done).await;
    }

    /// How many keys it still waits for; none before the first list.
    pub fn remaining(&self) -> Option<usize> {
        self.remaining.lock().as_ref().map(BTreeSet::len)
    }
}
