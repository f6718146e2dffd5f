//! The last known state of deleted objects, kept until their deletion is reconciled.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use crate::resource::{Key, Object};

pub(crate) struct DeletedObjects<T> {
    objects: Mutex<BTreeMap<Key, Arc<Object<T>>>>,
}

impl<T> DeletedObjects<T> {
    pub(super) fn new() -> Self {
        Self {
            objects: Mutex::new(BTreeMap::new()),
        }
    }

    pub(crate) fn insert(&self, object: &Arc<Object<T>>) {
        self.objects
            .lock()
            .insert(Arc::clone(&object.key), Arc::clone(object));
    }

    pub(super) fn get(&self, key: &Key) -> Option<Arc<Object<T>>> {
        self.objects.lock().get(key).map(Arc::clone)
    }

    /// Forgets an object whose deletion was reconciled, unless the key was deleted again since.
    pub(super) fn forget(&self, known: &Arc<Object<T>>) {
        let mut objects = self.objects.lock();
        if objects
            .get(&known.key)
            .is_some_and(|object| Arc::ptr_eq(object, known))
        {
            objects.remove(&known.key);
        }
    }
}
