//! Counts changes of stored objects, as kube-proxy does for its metrics.

use contiv_model::{Event, Object, object::ObjectKind};

/// Numbers of changes of stored objects, whether or not they concern this node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ObjectChanges {
    /// Of services.
    pub services: u64,
    /// Of endpoint slices and endpoints.
    pub endpoints: u64,
}

impl ObjectChanges {
    /// Counts the changes among these events.
    pub(super) fn of_events(events: &[Event]) -> Self {
        Self::of(events.iter().filter_map(|event| match event {
            Event::Put(object) => Some(object.kind()),
            Event::Delete(key) => Some(key.kind()),
            _ => None,
        }))
    }

    /// Counts the objects of a list.
    pub(super) fn of_objects(objects: &[Object]) -> Self {
        Self::of(objects.iter().map(Object::kind))
    }

    fn of(kinds: impl Iterator<Item = ObjectKind>) -> Self {
        let mut changes = Self::default();
        for kind in kinds {
            match kind {
                ObjectKind::Service => changes.services += 1,
                ObjectKind::EndpointSlice | ObjectKind::Endpoints => changes.endpoints += 1,
                _ => {}
            }
        }
        changes
    }

    /// The sum of both.
    pub(super) const fn plus(self, other: Self) -> Self {
        Self {
            services: self.services + other.services,
            endpoints: self.endpoints + other.endpoints,
        }
    }

    /// The changes since `earlier`.
    pub(super) const fn since(self, earlier: Self) -> Self {
        Self {
            services: self.services - earlier.services,
            endpoints: self.endpoints - earlier.endpoints,
        }
    }
}
