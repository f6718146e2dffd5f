//! The status of a controller, for other tasks.

use std::fmt;

use tokio::sync::watch;

use crate::cache::Cache;

/// A view of a controller from outside, whether it runs or not. Cheap to clone.
pub struct Status<T> {
    /// None while the controller is not running.
    cache: watch::Receiver<Option<Cache<T>>>,
}

impl<T> Clone for Status<T> {
    fn clone(&self) -> Self {
        Self {
            cache: self.cache.clone(),
        }
    }
}

impl<T> fmt::Debug for Status<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Status")
            .field("last_sync_revision", &self.last_sync_revision())
            .finish_non_exhaustive()
    }
}

impl<T> Status<T> {
    pub(super) fn of(cache: &watch::Sender<Option<Cache<T>>>) -> Self {
        Self {
            cache: cache.subscribe(),
        }
    }

    /// The objects of the managed type; none while the controller is not running.
    pub fn cache(&self) -> Option<Cache<T>> {
        self.cache.borrow().clone()
    }

    /// Whether the controller is running and has listed the managed type.
    pub fn has_synced(&self) -> bool {
        self.last_sync_revision().is_some()
    }

    /// The newest revision of the store that is in its caches; none before the first list.
    pub fn last_sync_revision(&self) -> Option<i64> {
        self.cache()?.last_sync_revision()
    }
}
