//! Endpoint slices, and the labels that mark those of this controller.

use std::collections::BTreeMap;

use contiv_controller::{BoxError, ResourceType};
use contiv_proto::{Key, Kind, label, message::endpointslice as wire};
use contiv_store::Entry;

use crate::service::{Service, read};

/// The label that names the service of a slice.
pub const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
/// The label that names the controller that writes a slice.
pub const MANAGED_BY_LABEL: &str = label::ENDPOINT_SLICE_MANAGED_BY;
/// The label of slices of a headless service, with an empty value.
pub const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";
/// The value of [`MANAGED_BY_LABEL`] on slices of this controller; on linkerd's it is `linkerd-external-workloads-controller`.
pub const MANAGED_BY: &str = label::EXTERNAL_WORKLOADS_CONTROLLER;
/// The annotation with the [`Service::uid`] of the service a slice was made for, as in Kubernetes' owner references.
pub const OWNER_ANNOTATION: &str = "contiv.io/owner-uid";
/// The annotation with the revision at which the writer of a slice won its election. It identifies the writer; a slice that
/// differs only in it is not written.
pub const TERM_ANNOTATION: &str = "contiv.io/term";
/// The maximum number of endpoints of a slice.
pub const MAX_ENDPOINTS: usize = 100;

/// A stored slice.
#[derive(Debug, Clone, PartialEq)]
pub enum StoredSlice {
    /// One that this controller manages.
    Ours(Box<wire::EndpointSlice>),
    /// One of another controller, which is not changed.
    Foreign,
}

/// Slices as they are stored.
pub fn slices() -> ResourceType<StoredSlice> {
    ResourceType::new("endpointslice", &Key::prefix(Kind::EndpointSlice), decode)
}

fn decode(entry: &Entry) -> Result<StoredSlice, BoxError> {
    let slice: wire::EndpointSlice = read(entry)?;
    let is_ours = slice
        .labels
        .get(MANAGED_BY_LABEL)
        .is_some_and(|by| by == MANAGED_BY);
    Ok(if is_ours {
        StoredSlice::Ours(Box::new(slice))
    } else {
        StoredSlice::Foreign
    })
}

impl StoredSlice {
    /// The slice, if it is one of ours.
    pub fn ours(&self) -> Option<&wire::EndpointSlice> {
        match self {
            Self::Ours(slice) => Some(slice),
            Self::Foreign => None,
        }
    }
}

/// The name of the service a slice belongs to; empty if it names none.
pub(crate) fn service_of(slice: &wire::EndpointSlice) -> &str {
    slice
        .labels
        .get(SERVICE_NAME_LABEL)
        .unwrap_or(&slice.service_name)
}

/// The labels of the slices of a service: its own, except those with a meaning on slices.
pub(crate) fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.labels.clone();
    labels.remove(HEADLESS_LABEL);
    if service.is_headless {
        labels.insert(HEADLESS_LABEL.to_owned(), String::new());
    }
    labels.insert(SERVICE_NAME_LABEL.to_owned(), service.name.clone());
    labels.insert(MANAGED_BY_LABEL.to_owned(), MANAGED_BY.to_owned());
    labels
}

/// Whether a slice was made for this service (same uid), and not for an earlier one of the same name.
pub(crate) fn is_owned(slice: &wire::EndpointSlice, service: &Service) -> bool {
    slice
        .annotations
        .get(OWNER_ANNOTATION)
        .is_some_and(|uid| *uid == service.uid.to_string())
}
