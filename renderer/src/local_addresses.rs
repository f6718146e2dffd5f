//! This node's interfaces, their addresses and routes, listed and watched.

use std::{collections::BTreeSet, io, net::IpAddr, pin::pin, time::Duration};

use contiv_model::{InterfaceName, LocalInterface, LocalInterfaces};
use futures::{StreamExt, TryStreamExt, channel::mpsc::UnboundedReceiver};
use ipnetwork::IpNetwork;
use nix::net::if_::InterfaceFlags;
use rtnetlink::{
    Handle, MulticastGroup, new_multicast_connection,
    packet_core::{NetlinkMessage, NetlinkPayload},
    packet_route::{
        RouteNetlinkMessage,
        address::{AddressAttribute, AddressMessage, AddressScope},
        link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
    },
    sys::SocketAddr,
};
use thiserror::Error;
use tokio::{
    select,
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
    /// The next list is not made before, if only routes changed.
    pause_end: Instant,
    /// What has changed since the last list began.
    missed: Option<Urgency>,
}

/// How soon a change needs a new list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    /// After the pause: routes may be many, and change all the time.
    AfterPause,
    /// At once: an address or an interface.
    Immediate,
}

impl Urgency {
    const fn of(payload: &NetlinkPayload<RouteNetlinkMessage>) -> Self {
        match payload {
            NetlinkPayload::InnerMessage(
                RouteNetlinkMessage::NewAddress(_)
                | RouteNetlinkMessage::DelAddress(_)
                | RouteNetlinkMessage::NewLink(_)
                | RouteNetlinkMessage::DelLink(_),
            ) => Self::Immediate,
            _ => Self::AfterPause,
        }
    }
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
        let mut addresses = Self {
            current,
            interfaces,
            handle,
            notifications,
            connection,
            pause_end,
            missed: None,
        };
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
            self.wait_until_due().await?;
            let (current, interfaces) = self.list().await?;
            if current != self.current || interfaces != self.interfaces {
                (self.current, self.interfaces) = (current, interfaces);
                return Ok(());
            }
        }
    }

    /// Waits until a list is needed. Notifications are read all the time, so that they never pile up.
    async fn wait_until_due(&mut self) -> Result<(), LocalAddressesError> {
        while self.missed != Some(Urgency::Immediate) {
            let is_needed = self.missed.is_some();
            select! {
                notification = self.notifications.next() => {
                    let (message, _) = notification.ok_or(LocalAddressesError::Ended)?;
                    self.missed = self.missed.max(Some(Urgency::of(&message.payload)));
                }
                () = sleep_until(self.pause_end), if is_needed => break,
            }
        }
        // Further notifications add nothing to the first.
        while self.notifications.try_recv().is_ok() {}
        Ok(())
    }

    async fn list(&mut self) -> Result<(BTreeSet<IpAddr>, LocalInterfaces), LocalAddressesError> {
        let begin = Instant::now();
        let handle = self.handle.clone();
        let mut listing = pin!(list(&handle));
        let mut missed = None;
        let listed = loop {
            select! {
                listed = &mut listing => break listed?,
                notification = self.notifications.next() => {
                    let (message, _) = notification.ok_or(LocalAddressesError::Ended)?;
                    missed = missed.max(Some(Urgency::of(&message.payload)));
                }
            }
        };
        self.missed = missed;
        self.pause_end =
            Instant::now() + PAUSE_FACTOR * begin.elapsed().min(MAX_PAUSE / PAUSE_FACTOR);
        Ok(listed)
    }
}

/// The addresses and the interfaces as they are now.
async fn list(handle: &Handle) -> Result<(BTreeSet<IpAddr>, LocalInterfaces), rtnetlink::Error> {
    let addresses: Vec<AddressMessage> = handle.address().get().execute().try_collect().await?;
    let links: Vec<LinkMessage> = handle.link().get().execute().try_collect().await?;
    let mut routes = interface_routes::list(handle).await?;
    let mut of_link = |link: &LinkMessage| {
        let of_it = addresses
            .iter()
            .filter(|address| address.header.index == link.header.index);
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
    let interfaces = links
        .iter()
        .filter(|link| !is_loopback(link))
        .filter_map(&mut of_link)
        .collect();
    Ok((
        addresses.iter().filter_map(own_address).collect(),
        interfaces,
    ))
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
        let Ok(mut interfaces) = nix::ifaddrs::getifaddrs() else {
            return Self::Missing;
        };
        match interfaces.find(|interface| interface.interface_name == name) {
            None => Self::Missing,
            Some(interface) if interface.flags.contains(InterfaceFlags::IFF_LOOPBACK) => {
                Self::Loopback
            }
            Some(_) => Self::Other,
        }
    }
}

fn name(link: &LinkMessage) -> Option<InterfaceName> {
    link.attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => Some(InterfaceName::new(name.as_str())),
            _ => None,
        })
}

/// Only what software makes has a kind, as bridges, bonds, tunnels and veths do.
fn is_physical(link: &LinkMessage) -> bool {
    let has_kind = |attribute: &LinkAttribute| match attribute {
        LinkAttribute::LinkInfo(infos) => {
            infos.iter().any(|info| matches!(info, LinkInfo::Kind(_)))
        }
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
    let address =
        own_address(message).filter(|_| message.header.scope == AddressScope::Universe)?;
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

#[cfg(test)]
mod tests {
    use rtnetlink::packet_route::route::RouteMessage;

    use super::*;

    #[test]
    fn change_of_address_or_link_does_not_wait_for_routes() {
        let route = RouteMessage::default;
        let cases = [
            (
                RouteNetlinkMessage::NewAddress(AddressMessage::default()),
                Urgency::Immediate,
            ),
            (
                RouteNetlinkMessage::DelAddress(AddressMessage::default()),
                Urgency::Immediate,
            ),
            (
                RouteNetlinkMessage::NewLink(LinkMessage::default()),
                Urgency::Immediate,
            ),
            (
                RouteNetlinkMessage::DelLink(LinkMessage::default()),
                Urgency::Immediate,
            ),
            (RouteNetlinkMessage::NewRoute(route()), Urgency::AfterPause),
            (RouteNetlinkMessage::DelRoute(route()), Urgency::AfterPause),
        ];
        for (message, expected) in cases {
            assert_eq!(
                Urgency::of(&NetlinkPayload::InnerMessage(message.clone())),
                expected,
                "{message:?}"
            );
        }
        assert!(
            Some(Urgency::Immediate) > Some(Urgency::AfterPause)
                && Some(Urgency::AfterPause) > None
        );
    }
}
