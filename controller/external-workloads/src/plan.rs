//! Plans the fewest writes that make the slices of a service right.
//!
//! Pure and deterministic: the order of the input does not matter. As in linkerd's reconciler, which follows Kubernetes:
//! endpoints stay where they are, slices that are written anyway are filled first, and endpoints never move between slices for
//! balance.

mod desired;
mod input;
mod names;
mod packing;
mod ports;

#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use contiv_proto::message::endpointslice::EndpointSlice;

use crate::{
    family::Family,
    slice::{OWNER_ANNOTATION, is_owned, labels},
};
use desired::desired;
pub use input::Input;
pub(crate) use names::NAME_PREFIX;
use names::unused_name;
use packing::{SlicePacking, pack};
use ports::Ports;

/// One slice to write.
#[derive(Debug, Clone, PartialEq)]
pub enum SliceWrite {
    /// Creates a slice.
    Create(EndpointSlice),
    /// Replaces a slice.
    Update(EndpointSlice),
    /// Deletes the slice with this name.
    Delete(String),
}

/// The writes that make the slices of a service right: creations, then updates, then deletions. No slice is written twice.
/// Empty if nothing has to change.
pub fn plan(input: &Input<'_>) -> Vec<SliceWrite> {
    if !input.service.is_ours() {
        return Vec::new();
    }
    let mut deletes = Vec::new();
    let mut groups: BTreeMap<(Family, Ports), Vec<&EndpointSlice>> = BTreeMap::new();
    let mut sorted = input.slices.to_vec();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    for slice in sorted {
        let family = Family::from_word(&slice.address_type);
        match family.filter(|family| input.service.families.contains(family)) {
            Some(family) if is_owned(slice, input.service) => {
                groups
                    .entry((family, Ports::of(slice)))
                    .or_default()
                    .push(slice);
            }
            _ => deletes.push(slice.name.clone()),
        }
    }

    let mut desired = desired(input, &groups);
    let slice_labels = labels(input.service);
    let (mut creates, mut updates) = (Vec::new(), Vec::new());
    let mut surplus = Vec::new();
    for ((family, ports), slices) in &groups {
        let endpoints = desired
            .remove(&(*family, ports.clone()))
            .unwrap_or_default();
        let packed = pack(endpoints, slices, &slice_labels, &input.service.name);
        let SlicePacking {
            new,
            changed,
            unused,
        } = packed;
        creates.extend(
            new.into_iter()
                .map(|endpoints| (*family, ports.clone(), endpoints)),
        );
        updates.extend(
            changed
                .into_iter()
                .map(|(name, endpoints)| (*family, ports.clone(), name, endpoints)),
        );
        surplus.extend(unused.into_iter().map(|name| (*family, name)));
    }
    for ((family, ports), endpoints) in desired {
        let new = pack(endpoints, &[], &slice_labels, &input.service.name).new;
        creates.extend(
            new.into_iter()
                .map(|endpoints| (family, ports.clone(), endpoints)),
        );
    }
    // A slice to delete can become one to create, in the same family.
    let mut unpaired = Vec::new();
    for (family, ports, endpoints) in creates {
        match surplus.iter().position(|(of, _)| *of == family) {
            Some(position) => updates.push((family, ports, surplus.remove(position).1, endpoints)),
            None => unpaired.push((family, ports, endpoints)),
        }
    }
    deletes.splice(0..0, surplus.into_iter().map(|(_, name)| name));

    let slice = |family: Family, ports: Ports, name: String, endpoints| EndpointSlice {
        name,
        namespace: input.service.namespace.clone(),
        service_name: input.service.name.clone(),
        address_type: family.as_str().to_owned(),
        endpoints,
        ports: ports.into_messages(),
        labels: slice_labels.clone(),
        annotations: BTreeMap::from([(OWNER_ANNOTATION.to_owned(), input.service.uid.to_string())]),
    };
    let mut given = BTreeSet::new();
    let mut writes = Vec::new();
    for (family, ports, endpoints) in unpaired {
        let is_taken = |name: &str| given.contains(name) || (input.is_taken)(name);
        let name = unused_name(input.service, family, &ports, is_taken);
        given.insert(name.clone());
        writes.push(SliceWrite::Create(slice(family, ports, name, endpoints)));
    }
    updates.sort_by(|(_, _, a, _), (_, _, b, _)| a.cmp(b));
    writes.extend(updates.into_iter().map(|(family, ports, name, endpoints)| {
        SliceWrite::Update(slice(family, ports, name, endpoints))
    }));
    writes.extend(deletes.into_iter().map(SliceWrite::Delete));
    writes
}
