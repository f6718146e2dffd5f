//! Stored objects after validation: what the processor works on. One file per type.
//!
//! Only what the processor uses is kept. Every value here is valid: only [`crate::wire`] creates objects from stored data.

pub mod endpoint_slice;
pub mod endpoints;
pub mod ip_allocation;
pub mod key;
pub mod node;
pub mod pod;
pub mod service;
pub mod service_options;
pub mod vpp_node;

use serde::Serialize;

pub use endpoint_slice::{AddressType, Conditions, EndpointSlice, Hints, SliceEndpoint};
pub use endpoints::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints};
pub use ip_allocation::{CustomInterface, IpAllocation};
pub use key::{ObjectKey, ObjectKind};
pub use node::Node;
pub use pod::Pod;
pub use service::{Seniority, Service, ServicePortSpec, ServiceType};
pub use service_options::ServiceOptions;
pub use vpp_node::VppNode;

/// A stored object of a type that the processor uses. Its JSON form is the object itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Object {
    /// A service. It is much larger than the others, and a list of all objects is moved several times.
    Service(Box<Service>),
    /// The older form of a service's endpoints.
    Endpoints(Endpoints),
    /// A part of a service's endpoints.
    EndpointSlice(EndpointSlice),
    /// A pod.
    Pod(Pod),
    /// A node.
    Node(Node),
    /// The dataplane addresses of a node.
    VppNode(VppNode),
    /// Additional interfaces of a pod.
    IpAllocation(IpAllocation),
}

impl Object {
    /// Identity of the object: its type and id.
    pub fn key(&self) -> ObjectKey {
        match self {
            Self::Service(service) => ObjectKey::Service(service.id.clone()),
            Self::Endpoints(endpoints) => ObjectKey::Endpoints(endpoints.id.clone()),
            Self::EndpointSlice(slice) => ObjectKey::EndpointSlice(slice.id.clone()),
            Self::Pod(pod) => ObjectKey::Pod(pod.id.clone()),
            Self::Node(node) => ObjectKey::Node(node.name.clone()),
            Self::VppNode(vpp_node) => ObjectKey::VppNode(vpp_node.id),
            Self::IpAllocation(allocation) => ObjectKey::IpAllocation(allocation.pod.clone()),
        }
    }

    /// The type of the object, without cloning its id.
    pub const fn kind(&self) -> ObjectKind {
        match self {
            Self::Service(_) => ObjectKind::Service,
            Self::Endpoints(_) => ObjectKind::Endpoints,
            Self::EndpointSlice(_) => ObjectKind::EndpointSlice,
            Self::Pod(_) => ObjectKind::Pod,
            Self::Node(_) => ObjectKind::Node,
            Self::VppNode(_) => ObjectKind::VppNode,
            Self::IpAllocation(_) => ObjectKind::IpAllocation,
        }
    }
}
