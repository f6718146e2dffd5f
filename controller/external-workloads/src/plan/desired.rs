//! The desired endpoints, by family and ports.

use std::collections::BTreeMap;

use contiv_proto::message::{
    endpoints::ObjectReference,
    endpointslice::{
        EndpointSlice,
        endpoint_slice::{Conditions, Endpoint},
    },
};

use super::{Input, Ports};
use crate::{family::Family, service::Service, workload::Workload};

/// The identity of an endpoint: its addresses in order, its host name, and namespace and name of its workload.
pub(super) type Identity = (Vec<String>, String, String, String);

/// Endpoints by identity.
pub(super) type Endpoints = BTreeMap<Identity, Endpoint>;

const KIND: &str = "ExternalWorkload";

pub(super) fn identity(endpoint: &Endpoint) -> Identity {
    let mut addresses = endpoint.addresses.clone();
    addresses.sort_unstable();
    let target = endpoint.target_ref.as_ref();
    let (namespace, name) = target
        .map(|target| (target.namespace.clone(), target.name.clone()))
        .unwrap_or_default();
    (addresses, endpoint.host_name.clone(), namespace, name)
}

/// The desired endpoints, in groups by family and ports. A group is there even if none of its workloads has an address of the
/// family; then it is empty.
pub(super) fn desired(
    input: &Input<'_>,
    existing: &BTreeMap<(Family, Ports), Vec<&EndpointSlice>>,
) -> BTreeMap<(Family, Ports), Endpoints> {
    let mut desired: BTreeMap<(Family, Ports), Endpoints> = BTreeMap::new();
    for workload in input
        .workloads
        .iter()
        .filter(|workload| !workload.ips.is_empty())
    {
        let ports = Ports::resolve(input.service, workload);
        for family in &input.service.families {
            let group = desired.entry((*family, ports.clone())).or_default();
            if let Some(endpoint) = endpoint(input.service, workload, *family) {
                group.insert(identity(&endpoint), endpoint);
            }
        }
    }
    for ((family, ports), slices) in existing {
        let endpoints = slices.iter().flat_map(|slice| &slice.endpoints);
        for endpoint in endpoints.filter(|endpoint| has_unreadable_workload(input, endpoint)) {
            let group = desired.entry((*family, ports.clone())).or_default();
            group.insert(identity(endpoint), endpoint.clone());
        }
    }
    desired
}

/// True for an endpoint whose workload cannot be read: it must stay.
fn has_unreadable_workload(input: &Input<'_>, endpoint: &Endpoint) -> bool {
    let target = endpoint.target_ref.as_ref();
    target.is_some_and(|target| target.kind == KIND && input.unreadable.contains(&target.name))
}

/// None if the workload has no address of that family.
fn endpoint(service: &Service, workload: &Workload, family: Family) -> Option<Endpoint> {
    let addresses: Vec<String> = workload
        .ips
        .iter()
        .filter(|ip| Family::of(**ip) == family)
        .map(ToString::to_string)
        .collect();
    let is_ready = Some(workload.is_ready);
    (!addresses.is_empty()).then(|| Endpoint {
        addresses,
        conditions: Some(Conditions {
            ready: is_ready,
            serving: is_ready,
            terminating: Some(false),
        }),
        host_name: if service.is_headless {
            workload.name.clone()
        } else {
            String::new()
        },
        node_name: String::new(),
        zone: workload.zone().to_owned(),
        target_ref: Some(ObjectReference {
            kind: KIND.to_owned(),
            namespace: workload.namespace.clone(),
            name: workload.name.clone(),
            uid: workload.uid.to_string(),
            ..ObjectReference::default()
        }),
        hints: None,
    })
}
