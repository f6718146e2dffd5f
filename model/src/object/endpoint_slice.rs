//! Endpoint slices: parts of a service's endpoints.

use std::{collections::BTreeSet, sync::Arc};

use serde::Serialize;

use crate::{
    EndpointSliceId, NodeName, ServiceId,
    object::{EndpointAddress, EndpointPort},
};

/// A part of a service's endpoints. A service can have many slices; an update can move a slice to another service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EndpointSlice {
    /// Namespace and name.
    pub id: EndpointSliceId,
    /// The service it belongs to. None for a slice that is not for proxies: one without the label
    /// `kubernetes.io/service-name`, or with the label `service.kubernetes.io/headless`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceId>,
    /// The type of its addresses.
    pub address_type: AddressType,
    /// Whether the slice is used in addition to the `Endpoints` object of the service, as slices of external workloads are. Other
    /// slices are used instead of it, since both list the same pods.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_supplement: bool,
    /// Empty where the address type is FQDN.
    pub endpoints: Box<[SliceEndpoint]>,
    /// Ports of each endpoint. Ports that a proxy ignores (without name or number) are left out.
    pub ports: Box<[EndpointPort]>,
}

/// The type of a slice's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum AddressType {
    /// IPv4 addresses.
    #[serde(rename = "IPv4")]
    Ipv4,
    /// IPv6 addresses.
    #[serde(rename = "IPv6")]
    Ipv6,
    /// Host names, which no proxy can use: such a slice is ignored.
    #[serde(rename = "FQDN")]
    Fqdn,
}

/// One endpoint of a slice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SliceEndpoint {
    /// The first of the object's addresses, as in kube-proxy.
    #[serde(flatten)]
    pub address: EndpointAddress,
    /// Whether it is ready, serving and terminating.
    pub conditions: Conditions,
    /// The nodes and zones it is for; none if unspecified. Boxed, since most endpoints of most clusters have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hints: Option<Box<Hints>>,
}

/// The nodes and zones whose traffic an endpoint is meant for (KEP-2433, KEP-3015). Hints are used only if all endpoints have
/// some.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Hints {
    /// For traffic of these nodes.
    pub nodes: BTreeSet<NodeName>,
    /// For traffic of the nodes in these zones.
    pub zones: BTreeSet<Arc<str>>,
}

impl Hints {
    /// True if there is no hint.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.zones.is_empty()
    }
}

/// The conditions of an endpoint (KEP-1672).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Conditions {
    /// Accepts new connections.
    pub ready: bool,
    /// Answers, whether or not it is terminating.
    pub serving: bool,
    /// Terminating.
    pub terminating: bool,
}

impl Conditions {
    /// The conditions of an endpoint that states none: absent conditions mean ready, serving and not terminating.
    pub const READY: Self = Self {
        ready: true,
        serving: true,
        terminating: false,
    };
}
