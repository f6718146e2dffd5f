//! The input of the processor.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, SocketAddr},
};

use ipnetwork::IpNetwork;

use crate::{InterfaceName, Object, ObjectKey, PodId, ServiceId, change::list};

/// The complete content of the store at one revision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resync {
    /// Every object that could be read.
    pub objects: Vec<Object>,
    /// Objects that exist but could not be read: their last known state is kept.
    pub undecodable: BTreeSet<ObjectKey>,
}

impl fmt::Display for Resync {
    /// Lists its objects by name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "objects: [")?;
        list(f, self.objects.iter().map(Object::key))?;
        write!(f, "], unreadable: [")?;
        list(f, &self.undecodable)?;
        write!(f, "]")
    }
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An object is new or different.
    Put(Object),
    /// An object was deleted. An object that could not be read causes no event at all.
    Delete(ObjectKey),
    /// A pod was attached to this node's dataplane by this interface.
    AddPod {
        /// The pod.
        pod: PodId,
        /// Its main interface.
        interface: InterfaceName,
    },
    /// A pod was detached.
    DeletePod(PodId),
    /// A pod could not be attached after all.
    RevertAddPod(PodId),
    /// The addresses of this node's interfaces changed to these.
    LocalAddresses(BTreeSet<IpAddr>),
    /// The interfaces of this node changed to these.
    LocalInterfaces(LocalInterfaces),
    /// The TCP backends of a service that do not answer this node's clients are these. They are failing as long as the store
    /// says that they are ready, and failover is on for the service.
    FailingBackends(ServiceId, BTreeSet<SocketAddr>),
}

/// The interfaces of this node, by name.
pub type LocalInterfaces = BTreeMap<InterfaceName, LocalInterface>;

/// An interface of this node, other than loopback.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LocalInterface {
    /// Its addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// Its addresses of global scope, each with the network that it is in: those that the kernel masquerades with.
    pub networks: BTreeSet<IpNetwork>,
    /// The source addresses that routes by this interface name, except routes of the kernel itself.
    pub route_sources: BTreeSet<IpAddr>,
    /// Routes of IPv4 lead to it.
    pub has_ipv4_routes: bool,
    /// Routes of IPv6 lead to it, other than to link-local and multicast addresses.
    pub has_ipv6_routes: bool,
    /// It is a device, and not made by software as bridges, tunnels and the ends of pods are.
    pub is_physical: bool,
}

impl LocalInterface {
    /// True if routes of a family lead to it.
    pub const fn has_routes(&self, ipv4: bool) -> bool {
        if ipv4 {
            self.has_ipv4_routes
        } else {
            self.has_ipv6_routes
        }
    }
}
