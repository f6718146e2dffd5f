//! Objects of the store, and their events.

use std::{ops::Deref, sync::Arc};

/// The full key of an object in the store. It is what work queues hold.
pub type Key = Arc<str>;

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
