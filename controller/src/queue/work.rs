//! A key held by a worker.

use std::{fmt, ops::Deref};

use super::WorkQueue;

/// A key that is being processed. Dropping it marks the work as done, also when the worker panics.
#[must_use = "the work on the key is done when this is dropped"]
pub struct Work<K: Ord + Clone + Send + 'static> {
    key: K,
    queue: WorkQueue<K>,
}

impl<K: Ord + Clone + Send + 'static> Work<K> {
    pub(super) fn new(key: K, queue: WorkQueue<K>) -> Self {
        Self { key, queue }
    }
}

impl<K: Ord + Clone + Send + 'static> Deref for Work<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.key
    }
}

impl<K: Ord + Clone + Send + fmt::Debug + 'static> fmt::Debug for Work<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Work").field(&self.key).finish()
    }
}

impl<K: Ord + Clone + Send + 'static> Drop for Work<K> {
    fn drop(&mut self) {
        self.queue.finish(&self.key);
    }
}
