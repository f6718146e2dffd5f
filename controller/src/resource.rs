//! Types of stored objects, the objects, and what happens to them.

use std::{fmt, ops::Deref, sync::Arc};

use contiv_store::Entry;

use crate::BoxError;

/// The full key of an object in the store. It is what work queues hold.
pub type Key = Arc<str>;

type Decode<T> = dyn Fn(&Entry) -> Result<T, BoxError> + Send + Sync;

/// A type of objects: what it is called, below which prefix its keys are, and how a value is read.
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
    /// A type called `name`. Every key that begins with `prefix` is of it, so end the prefix with a separator.
    pub fn new<E: Into<BoxError>>(
        name: &str,
        prefix: &str,
        decode: impl Fn(&Entry) -> Result<T, E> + Send + Sync + 'static,
    ) -> Self {
        let decode = Arc::new(move |entry: &Entry| decode(entry).map_err(Into::into));
        Self { name: name.into(), prefix: prefix.into(), decode }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the keys of its objects begin with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The key of the object called `name`.
    pub fn key(&self, name: &str) -> Key {
        [&self.prefix, name].concat().into()
    }

    /// The part of a key after the prefix; none if the key is not of this type.
    pub fn name_of<'a>(&self, key: &'a str) -> Option<&'a str> {
        key.strip_prefix(self.prefix.as_ref())
    }

    pub(crate) fn decode(&self, entry: Entry) -> Result<Object<T>, BoxError> {
        let value = (self.decode)(&entry)?;
        let Entry { key, create_revision, mod_revision, .. } = entry;
        Ok(Object { key: key.into(), value, create_revision, mod_revision })
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

/// An object as it was at one revision. It derefs to its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object<T> {
    /// Its full key.
    pub key: Key,
    /// The decoded value.
    pub value: T,
    /// The revision at which it came to be. Another object of the same key has another one (Kubernetes' UID).
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

/// What happened to one object. Always with what it was before and what it is now.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<T> {
    /// It came to be.
    Added(Arc<Object<T>>),
    /// It was written.
    Modified {
        /// As it was last seen; what was written in between may have been missed.
        old: Arc<Object<T>>,
        /// As it is now.
        new: Arc<Object<T>>,
    },
    /// It is gone; this is how it was last seen.
    Deleted(Arc<Object<T>>),
}

impl<T> Event<T> {
    /// The object before, if there was one.
    pub fn before(&self) -> Option<&Arc<Object<T>>> {
        match self {
            Self::Added(_) => None,
            Self::Modified { old, .. } | Self::Deleted(old) => Some(old),
        }
    }

    /// The object now, if there is one.
    pub fn after(&self) -> Option<&Arc<Object<T>>> {
        match self {
            Self::Added(new) | Self::Modified { new, .. } => Some(new),
            Self::Deleted(_) => None,
        }
    }

    /// The key of the object.
    pub fn key(&self) -> &Key {
        match self {
            Self::Added(object) | Self::Modified { new: object, .. } | Self::Deleted(object) => &object.key,
        }
    }

    /// The objects before and now.
    pub fn states(&self) -> impl Iterator<Item = &Arc<Object<T>>> {
        self.before().into_iter().chain(self.after())
    }
}

impl<T> Clone for Event<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Added(new) => Self::Added(Arc::clone(new)),
            Self::Modified { old, new } => Self::Modified { old: Arc::clone(old), new: Arc::clone(new) },
            Self::Deleted(old) => Self::Deleted(Arc::clone(old)),
        }
    }
}
