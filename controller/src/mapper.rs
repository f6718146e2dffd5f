//! Mappers: from an object of one type to the keys of the objects that depend on it.
//!
//! A mapper sees one state of an object. The runtime calls it with the state before a change and the one after it and merges
//! the keys. So objects that depended on the old state are reconciled as well.

use std::{collections::BTreeSet, fmt, sync::Arc};

use crate::{
    BoxError,
    cache::{CacheError, Caches},
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

    /// Maps to the object whose key `key` returns, if it is in the cache of its type.
    pub fn cache_get<U: Send + Sync + 'static>(
        of: &ResourceType<U>,
        key: impl Fn(&Object<T>) -> Option<Key> + Send + Sync + 'static,
    ) -> Self {
        let of = of.clone();
        Self::new(move |caches, object| {
            let cache = caches.of(&of)?;
            Ok::<_, CacheError>(
                key(object)
                    .filter(|key| cache.get(key).is_some())
                    .into_iter()
                    .collect(),
            )
        })
    }

    /// Maps to all objects of a type with a value in one of its indexes.
    pub fn cache_list<U: Send + Sync + 'static>(
        of: &ResourceType<U>,
        index: &str,
        value: impl Fn(&Object<T>) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        Transform::list(of, index, value).then_keys()
    }

    /// Maps to all objects of a type whose value in one of its indexes is a prefix of the path.
    pub fn cache_parents<U: Send + Sync + 'static>(
        of: &ResourceType<U>,
        index: &str,
        path: impl Fn(&Object<T>) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let (of, index) = (of.clone(), index.to_owned());
        Self::new(move |caches, object| {
            let Some(path) = path(object) else {
                return Ok::<_, CacheError>(Vec::new());
            };
            Ok(keys(&caches.of(&of)?.view().parents(&index, &path)?))
        })
    }

    /// Maps to the keys of all these mappers.
    pub fn multi(mappers: Vec<Self>) -> Self {
        let map = move |caches: &Caches, object: &Object<T>| {
            let mut keys = Vec::new();
            for mapper in &mappers {
                keys.extend(mapper.map(caches, object)?);
            }
            Ok(keys)
        };
        Self { map: Arc::new(map) }
    }

    /// The keys for one state of an object.
    ///
    /// # Errors
    /// The errors of the mapper.
    pub fn map(&self, caches: &Caches, object: &Object<T>) -> Result<Vec<Key>, BoxError> {
        (self.map)(caches, object)
    }

    /// The keys for several states, each once and in order.
    ///
    /// # Errors
    /// The first one of the mapper.
    pub fn map_all<'a>(
        &self,
        caches: &Caches,
        states: impl IntoIterator<Item = &'a Arc<Object<T>>>,
    ) -> Result<BTreeSet<Key>, BoxError> {
        let mut keys = BTreeSet::new();
        for state in states {
            keys.extend(self.map(caches, state)?);
        }
        Ok(keys)
    }
}

fn keys<U>(objects: &[Arc<Object<U>>]) -> Vec<Key> {
    objects
        .iter()
        .map(|object| Arc::clone(&object.key))
        .collect()
}

type TransformFn<T, U> =
    dyn Fn(&Caches, &Object<T>) -> Result<Vec<Arc<Object<U>>>, BoxError> + Send + Sync;

/// Maps an object to objects that a mapper can start from: one step of a longer path.
pub struct Transform<T, U> {
    transform: Arc<TransformFn<T, U>>,
}

impl<T, U> fmt::Debug for Transform<T, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transform").finish_non_exhaustive()
    }
}

impl<T: Send + Sync + 'static, U: Send + Sync + 'static> Transform<T, U> {
    /// Any step.
    pub fn new<E: Into<BoxError>>(
        transform: impl Fn(&Caches, &Object<T>) -> Result<Vec<Arc<Object<U>>>, E>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self {
            transform: Arc::new(move |caches, object| {
                transform(caches, object).map_err(Into::into)
            }),
        }
    }

    /// Maps to all objects of a type with one of these values in one of its indexes.
    pub fn list(
        of: &ResourceType<U>,
        index: &str,
        values: impl Fn(&Object<T>) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        let (of, index) = (of.clone(), index.to_owned());
        Self::new(move |caches, object| {
            let view = caches.of(&of)?.view();
            let mut objects = Vec::new();
            for value in values(object) {
                objects.extend(view.by_index(&index, &value)?);
            }
            Ok::<_, CacheError>(objects)
        })
    }

    /// This step, followed by another.
    pub fn then<V: Send + Sync + 'static>(self, next: Transform<U, V>) -> Transform<T, V> {
        Transform::new(move |caches, object| {
            let mut objects = Vec::new();
            for step in (self.transform)(caches, object)? {
                objects.extend((next.transform)(caches, &step)?);
            }
            Ok::<_, BoxError>(objects)
        })
    }

    /// This step, followed by a mapper.
    pub fn then_map(self, mapper: Mapper<U>) -> Mapper<T> {
        Mapper::new(move |caches, object| {
            let steps = (self.transform)(caches, object)?;
            mapper
                .map_all(caches, &steps)
                .map(|keys| keys.into_iter().collect())
        })
    }

    /// Maps to the keys of the objects of this step.
    pub fn then_keys(self) -> Mapper<T> {
        Mapper::new(move |caches, object| {
            (self.transform)(caches, object).map(|objects| keys(&objects))
        })
    }
}

#[cfg(test)]
mod tests;
