//! The identity of an object: its type and id.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::{EndpointSliceId, NodeName, PodId, ServiceId};

/// Identity of a stored object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKey {
    /// A service.
    Service(ServiceId),
    /// Endpoints carry the namespace and name of their service.
    Endpoints(ServiceId),
    /// An endpoint slice.
    EndpointSlice(EndpointSliceId),
    /// A pod.
    Pod(PodId),
    /// A node.
    Node(NodeName),
    /// The record of an allocated node id.
    VppNode(u32),
    /// The custom interfaces of this pod.
    IpAllocation(PodId),
}

impl ObjectKey {
    /// The type of the object.
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

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind())?;
        match self {
            Self::Service(id) | Self::Endpoints(id) => write!(f, "{id}"),
            Self::EndpointSlice(id) => write!(f, "{id}"),
            Self::Pod(id) | Self::IpAllocation(id) => write!(f, "{id}"),
            Self::Node(name) => write!(f, "{name}"),
            Self::VppNode(id) => write!(f, "{id}"),
        }
    }
}

impl Serialize for ObjectKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The types of stored objects, by the names of Contiv's resource keywords.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    /// `service`
    Service,
    /// `endpoints`
    Endpoints,
    /// `endpointslice`
    EndpointSlice,
    /// `pod`
    Pod,
    /// `node`
    Node,
    /// `vppnode`
    VppNode,
    /// `custom-ipam`
    IpAllocation,
}

impl ObjectKind {
    /// Every type.
    pub const ALL: [Self; 7] = [
        Self::Service,
        Self::Endpoints,
        Self::EndpointSlice,
        Self::Pod,
        Self::Node,
        Self::VppNode,
        Self::IpAllocation,
    ];

    /// Contiv's keyword for the type.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Endpoints => "endpoints",
            Self::EndpointSlice => "endpointslice",
            Self::Pod => "pod",
            Self::Node => "node",
            Self::VppNode => "vppnode",
            Self::IpAllocation => "custom-ipam",
        }
    }
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
