//! The context of a reconciler and of a background task.

use std::{fmt, sync::Arc};

use tokio_util::sync::CancellationToken;

use super::deleted_objects::DeletedObjects;
use crate::{
    cache::{Cache, CacheError, Caches},
    resource::{Key, Object, ResourceType},
    runnable::Setup,
    writer::Writer,
};

/// The context of a reconciler. Cheap to clone.
pub struct Context<T> {
    inner: Arc<Inner<T>>,
}

struct Inner<T> {
    setup: Setup,
    cache: Cache<T>,
    caches: Caches,
    deleted_objects: DeletedObjects<T>,
}

impl<T> Clone for Context<T> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<T> fmt::Debug for Context<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("caches", &self.inner.caches)
            .finish_non_exhaustive()
    }
}

impl<T> Context<T> {
    pub(super) fn new(setup: Setup, cache: Cache<T>, caches: Caches) -> Self {
        let inner = Inner {
            setup,
            cache,
            caches,
            deleted_objects: DeletedObjects::new(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The objects of the managed type.
    pub fn cache(&self) -> &Cache<T> {
        &self.inner.cache
    }

    /// The caches of all types.
    pub fn caches(&self) -> &Caches {
        &self.inner.caches
    }

    /// The cache of one type.
    ///
    /// # Errors
    /// [`CacheError::NotWatched`].
    pub fn cache_of<U: Send + Sync + 'static>(
        &self,
        resource_type: &ResourceType<U>,
    ) -> Result<&Cache<U>, CacheError> {
        self.inner.caches.of(resource_type)
    }

    /// The last known state of a deleted object, until a run for its key has succeeded. None if this controller has not seen
    /// the object in this run.
    pub fn last_known(&self, key: &Key) -> Option<Arc<Object<T>>> {
        self.inner.deleted_objects.get(key)
    }

    /// Writes to the store while the lease is held.
    pub fn writer(&self) -> &Writer {
        &self.inner.setup.writer
    }

    /// Cancelled when the controller stops.
    pub fn stop(&self) -> &CancellationToken {
        &self.inner.setup.stop
    }

    pub(crate) fn deleted_objects(&self) -> &DeletedObjects<T> {
        &self.inner.deleted_objects
    }
}
