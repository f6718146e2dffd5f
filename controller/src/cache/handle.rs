//! The objects of one type.

use std::{fmt, sync::Arc};

use tokio::sync::watch;

use super::{CacheError, Contents, View};
use crate::resource::{Object, ResourceType};

/// All objects of one type, kept up to date by a [`Reflector`](crate::reflector::Reflector). Cheap to clone.
///
/// Each call sees the newest state. For several calls on one state use [`Cache::view`].
pub struct Cache<T> {
    contents: watch::Receiver<Contents<T>>,
}

impl<T> Clone for Cache<T> {
    fn clone(&self) -> Self {
        Self {
            contents: self.contents.clone(),
        }
    }
}

impl<T> fmt::Debug for Cache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cache")
            .field(&self.contents.borrow().resource_type)
            .finish()
    }
}

impl<T> Cache<T> {
    pub(crate) fn new(resource_type: ResourceType<T>) -> (watch::Sender<Contents<T>>, Self) {
        let (sender, contents) = watch::channel(Contents::new(resource_type));
        (sender, Self { contents })
    }

    /// The current state, for several queries. It blocks the reflector while it lives, and so cannot be kept over an `.await`.
    pub fn view(&self) -> View<'_, T> {
        View::of(self.contents.borrow())
    }

    /// The object with this key. It is shared, so it is immutable:
    ///
    /// ```compile_fail,E0596
    /// fn change(cache: &contiv_controller::Cache<String>) {
    ///     cache.get("/names/1").unwrap().value.push('!');
    /// }
    /// ```
    pub fn get(&self, key: &str) -> Option<Arc<Object<T>>> {
        self.view().get(key)
    }

    /// All objects, by key.
    pub fn list(&self) -> Vec<Arc<Object<T>>> {
        self.view().list()
    }

    /// The objects with this value in an index, by key.
    ///
    /// # Errors
    /// [`CacheError::NoSuchIndex`].
    pub fn by_index(&self, index: &str, value: &str) -> Result<Vec<Arc<Object<T>>>, CacheError> {
        self.view().by_index(index, value)
    }

    /// True after the first list.
    pub fn has_synced(&self) -> bool {
        self.last_sync_revision().is_some()
    }

    /// The newest revision that was applied; none before the first list.
    pub fn last_sync_revision(&self) -> Option<i64> {
        self.contents.borrow().revision
    }

    /// Returns when the cache shows a write of this revision; with 0, after the first list. Only for writes of this type: others
    /// may cause no event.
    ///
    /// # Errors
    /// [`CacheError::Ended`].
    pub async fn wait_for_revision(&self, revision: i64) -> Result<(), CacheError> {
        let mut contents = self.contents.clone();
        let is_reached = |of: Option<i64>| of.is_some_and(|of| of >= revision);
        let reached = contents
            .wait_for(|contents| is_reached(contents.revision))
            .await
            .map(drop);
        reached.map_err(|_| CacheError::Ended {
            resource_type: self.resource_type(),
        })
    }

    /// The name of the type.
    pub(crate) fn resource_type(&self) -> String {
        self.contents.borrow().resource_type.name().to_owned()
    }
}
