//! This node's interfaces, their addresses and routes, listed and watched.

use std::{collections::BTreeSet, io, net::IpAddr, time::Duration};

use contiv_model::{InterfaceName, LocalInterface, LocalInterfaces};
use futures::{StreamExt, TryStreamExt, channel::mpsc::UnboundedReceiver};
use ipnetwork::IpNetwork;
use nix::net::if_::InterfaceFlags;
use rtnetlink::{
    Handle, MulticastGroup, new_multicast_connection,
    packet_core::NetlinkMessage,
    packet_route::{
        RouteNetlinkMessage,
        address::{AddressAttribute, AddressMessage, AddressScope},
        link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
    },
    sys::SocketAddr,
};
use thiserror::Error;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep_until},
};

use crate::interface_routes;

/// Why the addresses are unknown.
#[derive(Debug, Error)]
pub enum LocalAddressesError {
    /// No socket to the kernel.
    #[error("failed to open a netlink socket: {0}")]
    Open(#[from] io::Error),
    /// The kernel did not list them.
    #[error("the kernel does not list the addresses of the interfaces: {0}")]
    List(#[from] rtnetlink::Error),
    /// The socket was closed.
    #[error("the kernel has ended the netlink connection")]
    Ended,
}

/// The longest pause between two lists.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// The list is made again after so many times as long as it took the last time: routes may be many, and change all the time.
const PAUSE_FACTOR: u32 = 20;

/// Watches the addresses of this node's interfaces.
///
/// A notification only triggers a new list. So the set is right even if notifications are lost or reordered.
#[derive(Debug)]
pub struct LocalAddresses {
    current: BTreeSet<IpAddr>,
    interfaces: LocalInterfaces,
    handle: Handle,
    notifications: UnboundedReceiver<(NetlinkMessage<RouteNetlinkMessage>, SocketAddr)>,
    connection: JoinHandle<()>,
    /// The next list is not made before.
    pause_end: Instant,
}

impl LocalAddresses {
    /// Starts to watch them. Needs a Tokio runtime.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub async fn open() -> Result<Self, LocalAddressesError> {
        let groups = [
            MulticastGroup::Ipv4Ifaddr,
            MulticastGroup::Ipv6Ifaddr,
            MulticastGroup::Link,
            MulticastGroup::Ipv4Route,
            MulticastGroup::Ipv6Route,
        ];
        // Subscribed before the list, so that no change after it is missed.
        let (connection, handle, notifications) = new_multicast_connection(&groups)?;
        let connection = tokio::spawn(connection);
        let (current, interfaces) = (BTreeSet::new(), LocalInterfaces::new());
        let pause_end = Instant::now();
        let mut addresses = Self { current, interfaces, handle, notifications, connection, pause_end };
        (addresses.current, addresses.interfaces) = addresses.list().await?;
        Ok(addresses)
    }

    /// The addresses as last listed, of all interfaces and both families, including loopback and link-local ones.
    pub const fn current(&self) -> &BTreeSet<IpAddr> {
        &self.current
    }

    /// The interfaces as last listed, without loopback.
    pub const fn interfaces(&self) -> &LocalInterfaces {
        &self.interfaces
    }

    /// Waits until the addresses or the interfaces differ.
    ///
    /// # Errors
    /// When the kernel no longer answers; open another watch then.
    pub async fn changed(&mut self) -> Result<(), LocalAddressesError> {
        loop {
            self.notifications.next().await.ok_or(LocalAddressesError::Ended)?;
            sleep_until(self.pause_end).await;
            // Further notifications add nothing to the first.
            while self.notifications.try_recv().is_ok() {}
            let (current, interfaces) = self.list().await?;
            if current != self.current || interfaces != self.interfaces {
                (self.current, self.interfaces) = (current, interfaces);
                return Ok(());
            }
        }
    }

    async fn list(&mut self) -> Result<(BTreeSet<IpAddr>, LocalInterfaces), LocalAddressesError> {
        let begin = Instant::now();
        let addresses: Vec<AddressMessage> = self.handle.address().get().execute().try_collect().await?;
        let links: Vec<LinkMessage> = self.handle.link().get().execute().try_collect().await?;
        let mut routes = interface_routes::list(&self.handle).await?;
        let mut of_link = |link: &LinkMessage| {
            let of_it = addresses.iter().filter(|address| address.header.index == link.header.index);
            let routes = routes.remove(&link.header.index).unwrap_or_default();
            let interface = LocalInterface {
                addresses: of_it.clone().filter_map(own_address).collect(),
                networks: of_it.filter_map(global_network).collect(),
                route_sources: routes.sources,
                has_ipv4_routes: routes.has_ipv4,
                has_ipv6_routes: routes.has_ipv6,
                is_physical: is_physical(link),
            };
            Some((name(link)?, interface))
        };
        let is_loopback = |link: &&LinkMessage| link.header.flags.contains(LinkFlags::Loopback);
        let interfaces = links.iter().filter(|link| !is_loopback(link)).filter_map(&mut of_link).collect();
        self.pause_end = Instant::now() + PAUSE_FACTOR * begin.elapsed().min(MAX_PAUSE / PAUSE_FACTOR);
        Ok((addresses.iter().filter_map(own_address).collect(), interfaces))
    }
}

/// What this node has by the name of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InterfaceKind {
    /// No interface.
    Missing,
    /// The loopback interface, by which only this node reaches itself.
    Loopback,
    /// Any other interface.
    Other,
}

impl InterfaceKind {
    /// What this node has by this name now.
    pub fn of(name: &str) -> Self {
        // Each interface is listed, also without an address.
        let Ok(mut interfaces) = nix::ifaddrs::getifaddrs() else { return Self::Missing };
        match interfaces.find(|interface| interface.interface_name == name) {
            None => Self::Missing,
            Some(interface) if interface.flags.contains(InterfaceFlags::IFF_LOOPBACK) => Self::Loopback,
            Some(_) => Self::Other,
        }
    }
}

fn name(link: &LinkMessage) -> Option<InterfaceName> {
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(InterfaceName::new(name.as_str())),
        _ => None,
    })
}

/// Only what software makes has a kind, as bridges, bonds, tunnels and veths do.
fn is_physical(link: &LinkMessage) -> bool {
    let has_kind = |attribute: &LinkAttribute| match attribute {
        LinkAttribute::LinkInfo(infos) => infos.iter().any(|info| matches!(info, LinkInfo::Kind(_))),
        _ => false,
    };
    !link.attributes.iter().any(has_kind)
}

impl Drop for LocalAddresses {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// The address, if it is of global scope, with its network.
fn global_network(message: &AddressMessage) -> Option<IpNetwork> {
    let address = own_address(message).filter(|_| message.header.scope == AddressScope::Universe)?;
    IpNetwork::new(address, message.header.prefix_len).ok()
}

/// On a point-to-point link `IFA_ADDRESS` is the peer's, and `IFA_LOCAL` ours; on other links IPv6 has only the first.
pub(crate) fn own_address(message: &AddressMessage) -> Option<IpAddr> {
    let mut of_link = None;
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(address) => return Some(*address),
            AddressAttribute::Address(address) => of_link = Some(*address),
            _ => {}
        }
    }
    of_link
}
