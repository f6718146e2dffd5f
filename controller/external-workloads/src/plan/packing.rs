//! Assigns endpoints to slices: Kubernetes' algorithm (`endpointslice/reconciler.go`, `reconcileByPortMapping`), for the slices
//! of one family and one set of ports.

use std::{cmp::Reverse, collections::BTreeMap};

use contiv_proto::message::endpointslice::{EndpointSlice, endpoint_slice::Endpoint};

use super::desired::{Endpoints, identity};
use crate::slice::MAX_ENDPOINTS;

/// The resulting slices.
#[derive(Debug, Default)]
pub(super) struct SlicePacking {
    /// The endpoints of each new slice.
    pub(super) new: Vec<Vec<Endpoint>>,
    /// The endpoints of each changed slice, by its name.
    pub(super) changed: BTreeMap<String, Vec<Endpoint>>,
    /// The names of slices that become empty.
    pub(super) unused: Vec<String>,
}

/// Packs endpoints into slices, which are sorted by name.
pub(super) fn pack(
    mut desired: Endpoints,
    slices: &[&EndpointSlice],
    labels: &BTreeMap<String, String>,
    service_name: &str,
) -> SlicePacking {
    let mut packed = SlicePacking::default();
    let mut unchanged = BTreeMap::new();
    // 1. Existing desired endpoints stay in place.
    for slice in slices {
        let kept = keep(slice, &mut desired);
        let is_same = kept == slice.endpoints
            && slice.labels == *labels
            && slice.service_name == service_name;
        if kept.is_empty() {
            packed.unused.push(slice.name.clone());
        } else if is_same {
            unchanged.insert(slice.name.clone(), kept);
        } else {
            packed.changed.insert(slice.name.clone(), kept);
        }
    }
    let mut left = desired.into_values();
    // 2. Slices that are written anyway are filled, the fullest first.
    let mut by_size: Vec<&mut Vec<Endpoint>> = packed.changed.values_mut().collect();
    by_size.sort_by_key(|endpoints| Reverse(endpoints.len()));
    for endpoints in by_size {
        fill(endpoints, &mut left);
    }
    // 3. The rest goes into new slices; but if it fits into an existing one, into the one that becomes the fullest.
    while left.len() > 0 {
        let fitting = unchanged
            .iter()
            .filter(|(_, endpoints)| {
                left.len() < MAX_ENDPOINTS && endpoints.len() + left.len() <= MAX_ENDPOINTS
            })
            // The first of equally full ones.
            .max_by_key(|(name, endpoints)| (endpoints.len(), Reverse(*name)))
            .map(|(name, _)| name.clone());
        if let Some((name, mut endpoints)) = fitting.and_then(|name| unchanged.remove_entry(&name))
        {
            endpoints.extend(left.by_ref());
            packed.changed.insert(name, endpoints);
        } else {
            let mut endpoints = Vec::new();
            fill(&mut endpoints, &mut left);
            packed.new.push(endpoints);
        }
    }
    packed
}

/// The desired endpoints of a slice, in its order, with their desired content; they are removed from `desired`.
fn keep(slice: &EndpointSlice, desired: &mut Endpoints) -> Vec<Endpoint> {
    let endpoints = slice
        .endpoints
        .iter()
        .filter_map(|endpoint| desired.remove(&identity(endpoint)));
    // Endpoints beyond the limit of a slice that another writer has overfilled.
    endpoints.take(MAX_ENDPOINTS).collect()
}

fn fill(endpoints: &mut Vec<Endpoint>, left: &mut impl Iterator<Item = Endpoint>) {
    let room = MAX_ENDPOINTS.saturating_sub(endpoints.len());
    endpoints.extend(left.take(room));
}
