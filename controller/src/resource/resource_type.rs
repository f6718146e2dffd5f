//! Types of stored objects.

use std::{collections::BTreeSet, fmt, sync::Arc};

use contiv_store::Entry;

use super::{
    index::Index,
    object::{Key, Object},
};
use crate::BoxError;

type Decode<T> = dyn Fn(&Entry) -> Result<T, BoxError> + Send + Sync;

/// A type of objects: its name, the prefix of its keys, and the decoder of its values.
///
/// ```
/// use contiv_controller::ResourceType;
///
/// struct Weight(u32);
/// let weights = ResourceType::new("weight", "/weights/", |entry| {
///     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(Weight(std::str::from_utf8(&entry.value)?.parse()?))
/// });
/// assert_eq!(weights.key("web").as_ref(), "/weights/web");
/// assert_eq!(weights.name_of("/weights/web"), Some("web"));
/// ```
pub struct ResourceType<T> {
    name: Arc<str>,
    prefix: Arc<str>,
    decode: Arc<Decode<T>>,
    indexes: Vec<Index<T>>,
}

impl<T> ResourceType<T> {
    /// Creates a type. Every key that begins with `prefix` belongs to it, so end the prefix with a separator.
    pub fn new<E: Into<BoxError>>(
        name: &str,
        prefix: &str,
        decode: impl Fn(&Entry) -> Result<T, E> + Send + Sync + 'static,
    ) -> Self {
        let decode = Arc::new(move |entry: &Entry| decode(entry).map_err(Into::into));
        Self {
            name: name.into(),
            prefix: prefix.into(),
            decode,
            indexes: Vec::new(),
        }
    }

    /// Adds an index over the objects, to those of their caches.
    #[must_use]
    pub fn with_index(mut self, index: Index<T>) -> Self {
        self.indexes.push(index);
        self
    }

    pub(crate) fn indexes(&self) -> &[Index<T>] {
        &self.indexes
    }

    /// The name of two indexes.
    pub(crate) fn duplicate_index(&self) -> Option<&str> {
        let mut names = BTreeSet::new();
        let mut all = self.indexes.iter().map(Index::name);
        all.find(|name| !names.insert(*name))
    }

    /// The name of the type.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The prefix of the keys of its objects.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The key of the object with this name.
    pub fn key(&self, name: &str) -> Key {
        [&self.prefix, name].concat().into()
    }

    /// The part of a key after the prefix; none if the key is not of this type.
    pub fn name_of<'a>(&self, key: &'a str) -> Option<&'a str> {
        key.strip_prefix(self.prefix.as_ref())
    }

    pub(crate) fn decode(&self, entry: Entry) -> Result<Object<T>, BoxError> {
        let value = (self.decode)(&entry)?;
        let Entry {
            key,
            create_revision,
            mod_revision,
            ..
        } = entry;
        Ok(Object {
            key: key.into(),
            value,
            create_revision,
            mod_revision,
        })
    }
}

impl<T> Clone for ResourceType<T> {
    fn clone(&self) -> Self {
        Self {
            name: Arc::clone(&self.name),
            prefix: Arc::clone(&self.prefix),
            decode: Arc::clone(&self.decode),
            indexes: self.indexes.clone(),
        }
    }
}

impl<T> fmt::Debug for ResourceType<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResourceType")
            .field("name", &self.name)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}
