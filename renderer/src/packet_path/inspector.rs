//! What the kernel of this node knows about the way of a connection.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use contiv_model::{InterfaceName, Protocol};

use super::{
    KernelNetwork, PathError,
    flows::{self, BackendFlows, KnownFlows, TupleFilter, UnansweredFlow},
    kernel_socket::KernelSocket,
    links::Link,
    listeners::{self, Listening},
    neighbours::{self, InterfaceAddress, Neighbour},
    settings::KernelSettings,
    traffic_filters::{self, TrafficFilters},
};
use crate::kernel::NetlinkProtocol;

/// How many connections a masquerading address can have to one address and port: the ports from 1024 on.
pub const MASQUERADE_PORTS: usize = 64_512;

/// Reads the state of the network namespace in which it was opened, which must be that of the calling thread. Changes nothing.
#[derive(Debug)]
pub struct NodeInspector {
    network: KernelNetwork,
    /// Opened when it is needed first: it needs CAP_NET_ADMIN.
    conntrack: Option<KernelSocket>,
    sockets: Option<KernelSocket>,
}

impl NodeInspector {
    /// Opens it, and lists the interfaces.
    ///
    /// # Errors
    /// When the kernel cannot be queried.
    pub fn open() -> Result<Self, PathError> {
        Ok(Self {
            network: KernelNetwork::open()?,
            conntrack: None,
            sockets: None,
        })
    }

    /// Its routing.
    pub const fn network(&mut self) -> &mut KernelNetwork {
        &mut self.network
    }

    /// Its settings.
    pub const fn settings(&self) -> &KernelSettings {
        self.network.settings()
    }

    /// An interface, as it was when this was opened; none if there was none with this name.
    pub fn link(&self, interface: &InterfaceName) -> Option<&Link> {
        self.network.link(interface)
    }

    /// All interfaces, as they were when this was opened.
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        self.network.links()
    }

    /// The filters of traffic control on an interface; empty if there is no such interface.
    ///
    /// # Errors
    /// When the kernel cannot be queried.
    pub fn traffic_filters(
        &mut self,
        interface: &InterfaceName,
    ) -> Result<TrafficFilters, PathError> {
        match self.network.link(interface).cloned() {
            Some(link) => {
                // Packets come back from those that limit the rate of what comes in.
                let links = self.network.links();
                let shapers: Vec<u32> = links
                    .filter(|link| link.kind.as_deref() == Some("ifb"))
                    .map(|link| link.index)
                    .collect();
                let comes_back = |index| shapers.contains(&index);
                traffic_filters::list(self.network.socket(), &link, comes_back)
            }
            None => Ok(TrafficFilters::default()),
        }
    }

    /// What the kernel knows about a neighbour on the link of an interface; none if it does not know it, as before the first packet.
    ///
    /// # Errors
    /// When the kernel cannot be queried.
    pub fn neighbour(
        &mut self,
        interface: &InterfaceName,
        address: IpAddr,
    ) -> Result<Option<Neighbour>, PathError> {
        match self.network.link(interface).cloned() {
            Some(link) => neighbours::neighbour(self.network.socket(), &link, address),
            None => Ok(None),
        }
    }

    /// The interfaces of this node that have an address.
    ///
    /// # Errors
    /// When the kernel cannot be queried.
    pub fn interfaces_with(&mut self, address: IpAddr) -> Result<Vec<InterfaceAddress>, PathError> {
        self.network.interfaces_with(address)
    }

    /// The flows of a client to a destination, translated or not. With a frontend as destination they are its attempts to use the
    /// service; with a backend, those that were not translated.
    ///
    /// # Errors
    /// When the kernel cannot be queried; without CAP_NET_ADMIN.
    pub fn flows(
        &mut self,
        protocol: Protocol,
        client: IpAddr,
        destination: SocketAddr,
    ) -> Result<KnownFlows, PathError> {
        let filter = TupleFilter {
            is_reply: false,
            source: Some(client),
            destination: Some(destination.ip()),
            source_port: None,
            destination_port: Some(destination.port()),
        };
        flows::select(self.conntrack()?, protocol, filter)
    }

    /// The flows that others began to an address: with that of a client also answers that came from another address than expected,
    /// each as a flow of its own.
    ///
    /// # Errors
    /// As [`Self::flows`].
    pub fn flows_to(
        &mut self,
        protocol: Protocol,
        address: IpAddr,
    ) -> Result<KnownFlows, PathError> {
        let filter = TupleFilter {
            is_reply: false,
            source: None,
            destination: Some(address),
            source_port: None,
            destination_port: None,
        };
        flows::select(self.conntrack()?, protocol, filter)
    }

    /// How many translated flows to a destination each backend has. The unspecified address stands for all of its family, as for node
    /// ports.
    ///
    /// # Errors
    /// As [`Self::flows`].
    pub fn flows_by_backend(
        &mut self,
        protocol: Protocol,
        destination: SocketAddr,
    ) -> Result<BTreeMap<SocketAddr, BackendFlows>, PathError> {
        let filter = TupleFilter {
            is_reply: false,
            source: None,
            destination: Some(destination.ip()),
            source_port: None,
            destination_port: Some(destination.port()),
        };
        flows::count_by_backend(self.conntrack()?, protocol, filter)
    }

    /// The translated flows that were not answered so far, in no order: the first [`MAX_UNANSWERED`](super::MAX_UNANSWERED).
    ///
    /// # Errors
    /// As [`Self::flows`].
    pub fn unanswered_flows(&mut self) -> Result<Vec<UnansweredFlow>, PathError> {
        flows::unanswered(self.conntrack()?)
    }

    /// How many flows with this source, as backends see it, there are to each backend. If it is a masquerading address, there is room
    /// for [`MASQUERADE_PORTS`] of each. Counts all in one pass over the table.
    ///
    /// # Errors
    /// As [`Self::flows`].
    pub fn source_ports_used(
        &mut self,
        protocol: Protocol,
        source: IpAddr,
    ) -> Result<BTreeMap<SocketAddr, usize>, PathError> {
        let filter = TupleFilter {
            is_reply: true,
            source: None,
            destination: Some(source),
            source_port: None,
            destination_port: None,
        };
        let mut used = BTreeMap::new();
        flows::pass(self.conntrack()?, protocol, filter, |flow| {
            *used.entry(flow.server).or_default() += 1;
        })?;
        Ok(used)
    }

    /// Whether a process of this network namespace receives what comes to an address and port.
    ///
    /// # Errors
    /// When the kernel cannot be queried: it may lack the module for a protocol.
    pub fn listening(
        &mut self,
        protocol: Protocol,
        destination: SocketAddr,
    ) -> Result<Listening, PathError> {
        let socket = opened(&mut self.sockets, NetlinkProtocol::Sockets)?;
        listeners::listening(socket, protocol, destination)
    }

    fn conntrack(&mut self) -> Result<&mut KernelSocket, PathError> {
        opened(&mut self.conntrack, NetlinkProtocol::Netfilter)
    }
}

/// The socket, opened if it was not.
fn opened(
    socket: &mut Option<KernelSocket>,
    protocol: NetlinkProtocol,
) -> Result<&mut KernelSocket, PathError> {
    match socket {
        Some(socket) => Ok(socket),
        None => Ok(socket.insert(KernelSocket::open(protocol)?)),
    }
}
