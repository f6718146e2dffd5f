//! Maps changes to the affected services, and filters irrelevant ones.

use contiv_controller::{CacheError, Event, Index, Key, Labels, Mapper, Object, ResourceType};
use contiv_proto::{Key as StoredKey, Kind, message::endpointslice::EndpointSlice};

use crate::{
    service::Service,
    slice::{StoredSlice, service_of},
    tracker::CommitTracker,
    workload::Workload,
};

/// The index of services by their selectors.
const SELECTORS: &str = "selector";
/// The index of workloads by their labels.
pub(crate) const LABELS: &str = "labels";
/// The index of our slices by the key of their service.
pub(crate) const SERVICE: &str = "service";

/// Labels in the form of the indexes. Selection is limited to a namespace, and no namespace contains a slash.
pub(crate) fn within(namespace: &str, labels: &Labels) -> Labels {
    labels
        .iter()
        .map(|(name, value)| (format!("{namespace}/{name}"), value.clone()))
        .collect()
}

/// Services with slices of this controller, by their selectors.
pub(crate) fn selectors() -> Index<Service> {
    Index::selectors(SELECTORS, |service: &Object<Service>| {
        service
            .is_ours()
            .then(|| within(&service.namespace, &service.selector))
    })
}

/// Workloads by their labels.
pub(crate) fn workload_labels() -> Index<Workload> {
    Index::labels(LABELS, |workload: &Object<Workload>| {
        within(&workload.namespace, &workload.labels)
    })
}

/// Our slices by their service.
pub(crate) fn slice_service() -> Index<StoredSlice> {
    Index::single(SERVICE, |slice: &Object<StoredSlice>| {
        service_key(slice.ours()?).map(|key| key.to_string())
    })
}

/// The key of a slice's service.
fn service_key(slice: &EndpointSlice) -> Option<Key> {
    let key = StoredKey::new(Kind::Service, slice.namespace.as_str(), service_of(slice));
    Some(key.ok()?.to_path().into())
}

/// Maps a workload to the services that select it, with its state before and after a change.
pub(crate) fn to_services(services: &ResourceType<Service>) -> Mapper<Workload> {
    let services = services.clone();
    Mapper::new(move |caches, workload: &Object<Workload>| {
        let view = caches.of(&services)?.view();
        let found = view.selecting(SELECTORS, &within(&workload.namespace, &workload.labels))?;
        Ok::<_, CacheError>(
            found
                .iter()
                .map(|service| Key::clone(&service.key))
                .collect(),
        )
    })
}

/// True if a change of a workload changes endpoints; a repeated probe result does not.
pub(crate) fn changes_endpoints(event: &Event<Workload>) -> bool {
    match event {
        Event::Modified { old, new } => old.value != new.value,
        Event::Added(_) | Event::Deleted(_) => true,
    }
}

/// Maps one of our slices to its service, before and after a change.
pub(crate) fn to_service() -> Mapper<StoredSlice> {
    Mapper::map_owner(|slice: &StoredSlice| service_key(slice.ours()?))
}

/// True if another writer has changed a slice of this controller.
pub(crate) fn is_news(tracker: &CommitTracker, event: &Event<StoredSlice>) -> bool {
    let newest = event.after().or(event.before());
    let service = newest.and_then(|slice| service_key(slice.ours()?));
    service.is_none_or(|service| !tracker.is_own_write(&service, event))
}
