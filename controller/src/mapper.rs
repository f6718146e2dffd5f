//! Mappers: from an object of one type to the keys of the objects that depend on it.
//!
//! A mapper sees one state of an object. The runtime calls it with the state before a change and the one after it and merges
//! the keys. So objects that depended on the old state are reconciled as well.

use std::{collections::BTreeSet, fmt, sync::Arc};

use crate::{
    BoxError,
    cache::Caches,
    resource::{Key, Object, ResourceType},
};

type Map<T> = dyn Fn(&Caches, &Object<T>) -> Result<Vec<Key>, BoxError> + Send + Sync;

/// Maps an object of type `T` to the keys of the managed type that must be reconciled. Cheap to clone.
pub struct Mapper<T> {
    map: Arc<Map<T>>,
}

impl<T> Clone for Mapper<T> {
    fn clone(&self) -> Self {
        Self {
            map: Arc::clone(&self.map),
        }
    }
}

impl<T> fmt::Debug for Mapper<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapper").finish_non_exhaustive()
    }
}

impl<T: Send + Sync + 'static> Mapper<T> {
    /// A mapper that may read the controller's caches. Its errors and panics are retried with a back-off.
    pub fn new<E: Into<BoxError>>(
        map: impl Fn(&Caches, &Object<T>) -> Result<Vec<Key>, E> + Send + Sync + 'static,
    ) -> Self {
        Self {
            map: Arc::new(move |caches, object| map(caches, object).map_err(Into::into)),
        }
    }

    /// A mapper that uses only the object.
    pub fn of(map: impl Fn(&Object<T>) -> Vec<Key> + Send + Sync + 'static) -> Self {
        Self {
            map: Arc::new(move |_, object| Ok(map(object))),
        }
    }

    /// Maps to the owner, whose key `owner` returns.
    ///
    /// ```
    /// use contiv_controller::Mapper;
    ///
    /// struct Slice { service: Option<String> }
    /// let to_service = Mapper::map_owner(|slice: &Slice| slice.service.clone().map(Into::into));
    /// # let _ = to_service;
    /// ```
    pub fn map_owner(owner: impl Fn(&T) -> Option<Key> + Send + Sync + 'static) -> Self {
        Self::of(move |object| owner(&object.value).into_iter().collect())
    }

    /// Maps to the owner, if it is of this type.
    pub fn map_owner_filtered<U>(
        owner_type: &ResourceType<U>,
        owner: impl Fn(&T) -> Option<Key> + Send + Sync + 'static,
    ) -> Self {
        let prefix = owner_type.prefix().to_owned();
        Self::of(move |object| {
            owner(&object.value)
                .filter(|owner| owner.starts_with(&prefix))
                .into_iter()
                .collect()
        })
    }

    /// Maps to the object of another type with the same name.
    pub fn replace_type<U>(from: &ResourceType<T>, to: &ResourceType<U>) -> Self {
        let (from, to) = (from.prefix().to_owned(), to.prefix().to_owned());
        Self::of(move |object| {
            object
                .key
                .strip_prefix(&from)
                .map(|name| [&to, name].concat().into())
                .into_iter()
                .collect()
        })
    }

    /// The keys for several states, each once and in order.
    ///
    /// # Errors
    /// The first one of the mapper.
    pub(crate) fn map_all<'a>(
        &self,
        caches: &Caches,
        states: impl IntoIterator<Item = &'a Arc<Object<T>>>,
    ) -> Result<BTreeSet<Key>, BoxError> {
        let mut keys = BTreeSet::new();
        for state in states {
            keys.extend((self.map)(caches, state)?);
        }
        Ok(keys)
    }
}

#[cfg(test)]
mod tests;
