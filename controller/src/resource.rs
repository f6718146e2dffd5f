//! Types of stored objects, the objects, and their events.

use std::{fmt, ops::Deref, sync::Arc};

use contiv_store::Entry;

use crate::BoxError;

/// The full key of an object in the store. It is what work queues hold.
pub type Key = Arc<str>;

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
        }
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

/// An object at one revision. It dereferences to its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object<T> {
    /// Its full key.
    pub key: Key,
    /// The decoded value.
    pub value: T,
    /// The revision at which it was created. An object created again under the same key has another one (Kubernetes' UID).
    pub create_revision: i64,
    /// The revision at which it was last written (Kubernetes' resource version).
    pub mod_revision: i64,
}

impl<T> Deref for Object<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// A change of one object, with its state before and after.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<T> {
    /// The object was created.
    Added(Arc<Object<T>>),
    /// The object was written.
    Modified {
        /// The last state that was seen; writes in between may have been missed.
        old: Arc<Object<T>>,
        /// The current state.
        new: Arc<Object<T>>,
    },
    /// The object was deleted; this is its last state that was seen.
    Deleted(Arc<Object<T>>),
}

impl<T> Event<T> {
    /// The state before, if there was one.
    pub fn before(&self) -> Option<&Arc<Object<T>>> {
        match self {
            Self::Added(_) => None,
            Self::Modified { old, .. } | Self::Deleted(old) => Some(old),
        }
    }

    /// The state after, if there is one.
    pub fn after(&self) -> Option<&Arc<Object<T>>> {
        match self {
            Self::Added(new) | Self::Modified { new, .. } => Some(new),
            Self::Deleted(_) => None,
        }
    }

    /// The key of the object.
    pub fn key(&self) -> &Key {
        match self {
            Self::Added(object) | Self::Modified { new: object, .. } | Self::Deleted(object) => {
                &object.key
            }
        }
    }

    /// The states before and after.
    pub fn states(&self) -> impl Iterator<Item = &Arc<Object<T>>> {
        self.before().into_iter().chain(self.after())
    }
}

impl<T> Clone for Event<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Added(new) => Self::Added(Arc::clone(new)),
            Self::Modified { old, new } => Self::Modified {
                old: Arc::clone(old),
                new: Arc::clone(new),
            },
            Self::Deleted(old) => Self::Deleted(Arc::clone(old)),
        }
    }
}
