//! Endpoints: the older form of a service's endpoints.

use std::{net::IpAddr, sync::Arc};

use serde::Serialize;

use crate::{NodeName, PodId, Protocol, ServiceId};

/// All endpoints of the service with the same namespace and name. Addresses that are not ready are left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Endpoints {
    /// Namespace and name, those of the service.
    pub id: ServiceId,
    /// Every address of a subset has every port of it.
    pub subsets: Vec<EndpointSubset>,
}

/// Ready addresses that have the same ports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EndpointSubset {
    /// Ready addresses.
    pub addresses: Vec<EndpointAddress>,
    /// Ports of each of them.
    pub ports: Vec<EndpointPort>,
}

/// An address of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EndpointAddress {
    /// The address.
    pub ip: IpAddr,
    /// The node it is on, if specified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<NodeName>,
    /// The pod that has it, if specified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodId>,
}

/// A port of endpoints. It belongs to the service port of the same name and protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EndpointPort {
    /// Name of the service port.
    pub name: Arc<str>,
    /// Protocol of the service port.
    pub protocol: Protocol,
    /// The port to send to.
    pub port: u16,
}
