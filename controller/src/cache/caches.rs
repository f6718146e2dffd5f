//! The caches of one controller, of any types.

use std::{any::Any, collections::BTreeMap, fmt, sync::Arc};

use super::{Cache, CacheError};
use crate::resource::ResourceType;

/// The caches of the types that a controller manages or watches. Cheap to clone.
#[derive(Clone, Default)]
pub struct Caches {
    by_type: BTreeMap<String, Arc<dyn Any + Send + Sync>>,
}

impl fmt::Debug for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_type.keys()).finish()
    }
}

impl Caches {
    pub(crate) fn insert<T: Send + Sync + 'static>(
        &mut self,
        resource_type: &ResourceType<T>,
        cache: Cache<T>,
    ) {
        self.by_type
            .insert(resource_type.name().to_owned(), Arc::new(cache));
    }

    /// The cache of a type.
    ///
    /// # Errors
    /// [`CacheError::NotWatched`].
    pub fn of<T: Send + Sync + 'static>(
        &self,
        resource_type: &ResourceType<T>,
    ) -> Result<&Cache<T>, CacheError> {
        let cache = self
            .by_type
            .get(resource_type.name())
            .and_then(|cache| cache.downcast_ref());
        cache.ok_or_else(|| CacheError::NotWatched {
            resource_type: resource_type.name().to_owned(),
        })
    }
}
