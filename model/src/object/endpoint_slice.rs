//! Endpoint slices, parts of what backs a service.

use std::{collections::BTreeSet, sync::Arc};

use serde::Serialize;

use crate::{
    EndpointSliceId, NodeName, ServiceId,
    object::{EndpointAddress, EndpointPort},
};

/// A part of what backs a service. A service can have many; an update can move a slice to another service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EndpointSlice {
    /// Namespace and name.
    pub id: EndpointSliceId,
    /// The service it belongs to. None for a slice that is not for proxies: one without the label
    /// `kubernetes.io/service-name`, or with the label `service.kubernetes.io/headless`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceId>,
    /// What its endpoints are.
    pub address_type: AddressType,
    /// Whether it adds to the `Endpoints` of the service, as slices of external workloads do. All other slices take their
    /// place: they hold the same pods.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_supplement: bool,
    /// Empty where the address type is FQDN.
    pub endpoints: Vec<SliceEndpoint>,
    /// Ports of each endpoint. Those that a proxy ignores (no name, no number) are left out.
    pub ports: Vec<EndpointPort>,
}

/// What the addresses of a slice are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum AddressType {
    /// IPv4 addresses.
    #[serde(rename = "IPv4")]
    Ipv4,
    /// IPv6 addresses.
    #[serde(rename = "IPv6")]
    Ipv6,
    /// Names, which no proxy can use: such a slice counts for nothing.
    #[serde(rename = "FQDN")]
    Fqdn,
}

/// One endpoint of a slice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SliceEndpoint {
    /// Where it is: the first of the addresses in the object, as kube-proxy reads them.
    #[serde(flatten)]
    pub address: EndpointAddress,
    /// How it is.
    pub conditions: Conditions,
    /// For whom it is; none where that is not said. In a box, since most endpoints of most clusters have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hints: Option<Box<Hints>>,
}

/// For whose traffic an endpoint is meant (KEP-2433, KEP-3015). Hints only count if all endpoints have them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Hints {
    /// For traffic of these nodes.
    pub nodes: BTreeSet<NodeName>,
    /// For traffic of the nodes in these zones.
    pub zones: BTreeSet<Arc<str>>,
}

impl Hints {
    /// It is not said for whom.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.zones.is_empty()
    }
}

/// The condition of an endpoint (KEP-1672).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Conditions {
    /// Takes new connections.
    pub ready: bool,
    /// Answers, whether or not it is on its way out.
    pub serving: bool,
    /// On its way out.
    pub terminating: bool,
}

impl Conditions {
    /// Of an endpoint that nothing is said about: absent means ready, serving, and not terminating.
    pub const READY: Self = Self { ready: true, serving: true, terminating: false };
}
