//! Slices without the controller, for what no controller writes into: a folder of manifests, an API server that is only read,
//! files on a command line. Pure.
//!
//! [`slices`] makes those of some services and workloads. [`DerivedSlices`] keeps those of a watched store up to date, with the
//! same plan as the controller: endpoints stay in their slices.

use std::collections::{BTreeMap, BTreeSet};

use contiv_proto::{Key, Kind, message::endpointslice::EndpointSlice, value};
use contiv_store::{Batch, Change, Entry, PackedEntries};
use tracing::warn;

use crate::{
    plan::{Input, NAME_PREFIX, SliceWrite, plan},
    service::{self, Service},
    slice::{MANAGED_BY, MANAGED_BY_LABEL, service_of},
    workload::{self, Workload},
};

/// Namespace and name.
type Id = (String, String);
/// Slices by name.
type Slices = BTreeMap<String, EndpointSlice>;

/// The slices of a service with these workloads, of which those in its namespace that it selects are its backends.
pub fn slices<'a>(
    service: &Service,
    workloads: impl IntoIterator<Item = &'a Workload>,
) -> Vec<EndpointSlice> {
    let workloads: Vec<&Workload> = workloads
        .into_iter()
        .filter(|workload| workload.is_behind(service))
        .collect();
    plan_slices(service, &workloads, &BTreeSet::new(), Slices::new())
        .into_values()
        .collect()
}

/// The entries of a complete list that [`DerivedSlices::list`] needs; none without workloads.
pub fn inputs(entries: &PackedEntries) -> Vec<Entry> {
    let [workloads, services] = [Kind::ExternalWorkload, Kind::Service].map(Key::prefix);
    if !entries.keys().any(|key| key.starts_with(&workloads)) {
        return Vec::new();
    }
    let prefixes = [workloads, services, own_slices()];
    entries.matching(|key| prefixes.iter().any(|prefix| key.starts_with(prefix)))
}

/// Whether a slice with this key may be one that this module or the controller makes.
pub(crate) fn is_own_slice_key(key: &str) -> bool {
    key.starts_with(&own_slices())
}

/// The prefix of the keys of slices that this module or the controller makes.
fn own_slices() -> String {
    [&Key::prefix(Kind::EndpointSlice), NAME_PREFIX].concat()
}

fn plan_slices(
    service: &Service,
    workloads: &[&Workload],
    unreadable: &BTreeSet<String>,
    mut slices: Slices,
) -> Slices {
    let present: Vec<&EndpointSlice> = slices.values().collect();
    let is_taken = |name: &str| slices.contains_key(name);
    let writes = plan(&Input {
        service,
        workloads,
        slices: &present,
        unreadable,
        is_taken: &is_taken,
    });
    for write in writes {
        match write {
            SliceWrite::Create(slice) | SliceWrite::Update(slice) => {
                drop(slices.insert(slice.name.clone(), slice));
            }
            SliceWrite::Delete(name) => drop(slices.remove(&name)),
        }
    }
    slices
}

/// The slices of a store that is watched.
///
/// Without workloads it keeps nothing. The first workload that comes after a list needs another list
/// ([`DerivedSlices::needs_list`]), because the services of the earlier one were not kept.
#[derive(Debug, Default)]
pub struct DerivedSlices {
    state: Option<State>,
    needs_list: bool,
}

#[derive(Debug, Default)]
struct State {
    services: BTreeMap<Id, Service>,
    /// Services that could not be read yet, whose slices stay.
    unreadable: BTreeSet<Id>,
    /// Workloads; none for one that cannot be read, whose endpoints stay.
    workloads: BTreeMap<Id, Option<Workload>>,
    /// The slices of each service.
    slices: BTreeMap<Id, Slices>,
}

/// The changes that a list requires.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DerivedList {
    /// The listed keys that are not as they should be: slices that this module, or the controller, made earlier.
    pub replaced: BTreeSet<String>,
    /// The slices, in the order of their keys.
    pub entries: Vec<Entry>,
}

impl DerivedSlices {
    /// The slices of a complete list, which is sorted by key. Entries other than its [`inputs`] are not needed.
    pub fn list(&mut self, entries: &[Entry], revision: i64) -> DerivedList {
        self.needs_list = false;
        let before = self.state.take().unwrap_or_default();
        let prefix = Key::prefix(Kind::ExternalWorkload);
        if !entries.iter().any(|entry| entry.key.starts_with(&prefix)) {
            return DerivedList::default();
        }
        // A listed service that can no longer be decoded keeps its previous state.
        let is_listed = |id: &Id| {
            let key =
                Key::new(Kind::Service, id.0.as_str(), id.1.as_str()).map(|key| key.to_path());
            key.is_ok_and(|key| {
                entries
                    .binary_search_by(|entry| entry.key.cmp(&key))
                    .is_ok()
            })
        };
        let services = before
            .services
            .into_iter()
            .filter(|(id, _)| is_listed(id))
            .collect();
        let mut state = State {
            services,
            ..State::default()
        };
        let mut derived = DerivedList::default();
        for entry in entries {
            let Ok(Some(key)) = Key::parse(&entry.key) else {
                continue;
            };
            match key.kind() {
                Kind::Service => drop(state.put_service(&key, entry)),
                Kind::ExternalWorkload => drop(state.put_workload(&key, entry)),
                Kind::EndpointSlice if key.name().starts_with(NAME_PREFIX) => {
                    if let Some(slice) = own_slice(entry) {
                        derived.replaced.insert(entry.key.clone());
                        state.insert_slice(slice);
                    }
                }
                _ => {}
            }
        }
        // Slices made by this process are newer than those of an earlier one.
        state.slices.extend(before.slices);
        let known: BTreeSet<Id> = state
            .services
            .keys()
            .chain(state.slices.keys())
            .cloned()
            .collect();
        for id in known {
            state.derive(&id);
        }
        let all = state.slices.values().flat_map(BTreeMap::values);
        derived.entries = all.filter_map(|slice| entry_of(slice, revision)).collect();
        derived
            .entries
            .sort_by(|one, other| one.key.cmp(&other.key));
        self.state = Some(state);
        derived
    }

    /// The changes of slices that follow from a batch.
    pub fn change(&mut self, batch: &Batch) -> Vec<Change> {
        let Some(state) = &mut self.state else {
            let prefix = Key::prefix(Kind::ExternalWorkload);
            self.needs_list |= batch
                .changes
                .iter()
                .any(|change| change.key().starts_with(&prefix));
            return Vec::new();
        };
        let mut affected = BTreeSet::new();
        for change in &batch.changes {
            let Ok(Some(key)) = Key::parse(change.key()) else {
                continue;
            };
            match (key.kind(), change) {
                (Kind::Service, Change::Put(entry)) => {
                    affected.extend(state.put_service(&key, entry));
                }
                (Kind::Service, Change::Delete { .. }) => {
                    state.services.remove(&id(&key));
                    state.unreadable.remove(&id(&key));
                    affected.insert(id(&key));
                }
                (Kind::ExternalWorkload, Change::Put(entry)) => {
                    affected.extend(state.put_workload(&key, entry));
                }
                (Kind::ExternalWorkload, Change::Delete { .. }) => {
                    let before = state.workloads.remove(&id(&key)).flatten();
                    affected.extend(state.selecting(before.as_ref()));
                    // Of one that could not be read the labels are unknown.
                    affected.extend(state.with_endpoint_of(&key));
                }
                _ => {}
            }
        }
        let mut changes = Vec::new();
        for id in affected {
            let before = state.slices.get(&id).cloned().unwrap_or_default();
            state.derive(&id);
            let now = state.slices.get(&id);
            let gone = before
                .values()
                .filter(|slice| now.is_none_or(|now| !now.contains_key(&slice.name)));
            changes.extend(gone.filter_map(key_of).map(|key| Change::Delete { key }));
            let new = now.into_iter().flat_map(BTreeMap::values);
            let new = new.filter(|slice| before.get(&slice.name) != Some(slice));
            changes.extend(
                new.filter_map(|slice| entry_of(slice, batch.revision))
                    .map(Change::Put),
            );
        }
        changes
    }

    /// Whether a change of the store concerns a slice that is derived: a list replaces it, so the change does not count either.
    pub fn replaces(&self, change: &Change) -> bool {
        let Some(state) = self
            .state
            .as_ref()
            .filter(|_| is_own_slice_key(change.key()))
        else {
            return false;
        };
        let is_written = matches!(change, Change::Put(entry) if own_slice(entry).is_some());
        let is_derived = |key: &Key| {
            let mut of_namespace = state
                .slices
                .iter()
                .filter(|((namespace, _), _)| namespace == key.namespace());
            of_namespace.any(|(_, slices)| slices.contains_key(key.name()))
        };
        is_written
            || Key::parse(change.key())
                .ok()
                .flatten()
                .is_some_and(|key| is_derived(&key))
    }

    /// Whether there are no workloads.
    pub(crate) const fn is_empty(&self) -> bool {
        self.state.is_none()
    }

    /// All slices, with the namespace and name of their service.
    pub(crate) fn slices(&self) -> impl Iterator<Item = (&(String, String), &EndpointSlice)> {
        let services = self.state.iter().flat_map(|state| &state.slices);
        services.flat_map(|(service, slices)| slices.values().map(move |slice| (service, slice)))
    }

    /// Whether the store must be listed again, since a workload came whose services are not known. False until the next such
    /// workload.
    pub fn needs_list(&mut self) -> bool {
        std::mem::take(&mut self.needs_list)
    }
}

impl State {
    /// The services whose slices may change: this one. An unreadable value changes nothing.
    fn put_service(&mut self, key: &Key, entry: &Entry) -> Option<Id> {
        let id = id(key);
        let Ok(service) = service::decode(entry) else {
            if !self.services.contains_key(&id) {
                self.unreadable.insert(id);
            }
            return None;
        };
        let was_unreadable = self.unreadable.remove(&id);
        // Other services need not be kept: they have no slices.
        if service.is_ours() {
            self.services.insert(id.clone(), service);
        } else if self.services.remove(&id).is_none() && !was_unreadable {
            return None;
        }
        Some(id)
    }

    /// The services whose slices may change: those that select it, before or now.
    fn put_workload(&mut self, key: &Key, entry: &Entry) -> BTreeSet<Id> {
        let workload = workload::decode(entry)
            .inspect_err(
                |error| warn!(%key, %error, "an object cannot be read; its endpoints stay unchanged"),
            )
            .ok();
        let before = self.workloads.insert(id(key), workload.clone()).flatten();
        if workload.is_none() || before == workload {
            return BTreeSet::new();
        }
        let mut affected = self.selecting(before.as_ref());
        affected.extend(self.selecting(workload.as_ref()));
        affected.extend(self.with_endpoint_of(key));
        affected
    }

    /// The services that select a workload.
    fn selecting(&self, workload: Option<&Workload>) -> BTreeSet<Id> {
        let Some(workload) = workload else {
            return BTreeSet::new();
        };
        let of_namespace = self
            .services
            .iter()
            .filter(|(_, service)| workload.is_behind(service));
        of_namespace.map(|(id, _)| id.clone()).collect()
    }

    /// The services that have an endpoint of this workload.
    fn with_endpoint_of(&self, workload: &Key) -> BTreeSet<Id> {
        let has_it = |slices: &Slices| {
            let endpoints = slices.values().flat_map(|slice| &slice.endpoints);
            endpoints
                .filter_map(|endpoint| endpoint.target_ref.as_ref())
                .any(|it| it.name == workload.name())
        };
        let found = self
            .slices
            .iter()
            .filter(|((namespace, _), slices)| namespace == workload.namespace() && has_it(slices));
        found.map(|(id, _)| id.clone()).collect()
    }

    fn insert_slice(&mut self, slice: EndpointSlice) {
        let id = (slice.namespace.clone(), service_of(&slice).to_owned());
        self.slices
            .entry(id)
            .or_default()
            .insert(slice.name.clone(), slice);
    }

    /// Makes the slices of a service right.
    fn derive(&mut self, id: &Id) {
        if self.unreadable.contains(id) {
            return;
        }
        let slices = self.slices.remove(id).unwrap_or_default();
        let Some(service) = self.services.get(id) else {
            return;
        };
        let of_namespace = self
            .workloads
            .iter()
            .filter(|((namespace, _), _)| *namespace == id.0);
        let (mut selected, mut unreadable) = (Vec::new(), BTreeSet::new());
        for ((_, name), workload) in of_namespace {
            match workload {
                Some(workload) if workload.is_behind(service) => selected.push(workload),
                Some(_) => {}
                None => {
                    unreadable.insert(name.clone());
                }
            }
        }
        let slices = plan_slices(service, &selected, &unreadable, slices);
        if !slices.is_empty() {
            self.slices.insert(id.clone(), slices);
        }
    }
}

fn id(key: &Key) -> Id {
    (key.namespace().to_owned(), key.name().to_owned())
}

/// A slice that was derived, or that the controller wrote.
pub(crate) fn own_slice(entry: &Entry) -> Option<EndpointSlice> {
    let slice: EndpointSlice = service::read(entry).ok()?;
    (slice.labels.get(MANAGED_BY_LABEL).map(String::as_str) == Some(MANAGED_BY)).then_some(slice)
}

fn key_of(slice: &EndpointSlice) -> Option<String> {
    Some(
        Key::new(
            Kind::EndpointSlice,
            slice.namespace.as_str(),
            slice.name.as_str(),
        )
        .ok()?
        .to_path(),
    )
}

fn entry_of(slice: &EndpointSlice, revision: i64) -> Option<Entry> {
    let value = value::encode(slice).ok()?.into();
    Some(Entry {
        key: key_of(slice)?,
        value,
        create_revision: 0,
        mod_revision: revision,
    })
}

#[cfg(test)]
mod tests;
