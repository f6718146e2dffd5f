//! The addresses of this node's interfaces, listed and watched.

use std::{collections::BTreeSet, io, net::IpAddr};

use futures::{StreamExt, TryStreamExt, channel::mpsc::UnboundedReceiver};
use rtnetlink::{
    Handle, MulticastGroup, new_multicast_connection,
    packet_core::NetlinkMessage,
    packet_route::{
        RouteNetlinkMessage,
        address::{AddressAttribute, AddressMessage},
    },
    sys::SocketAddr,
};
use thiserror::Error;
use tokio::task::JoinHandle;

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

/// Watches the addresses of this node's interfaces.
///
/// A notification only triggers a new list. So the set is right even if notifications are lost or reordered.
#[derive(Debug)]
pub struct LocalAddresses {
    current: BTreeSet<IpAddr>,
    handle: Handle,
    notifications: UnboundedReceiver<(NetlinkMessage<RouteNetlinkMessage>, SocketAddr)>,
    connection: JoinHandle<()>,
}

impl LocalAddresses {
    /// Starts to watch them. Needs a Tokio runtime.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub async fn open() -> Result<Self, LocalAddressesError> {
        let groups = [MulticastGroup::Ipv4Ifaddr, MulticastGroup::Ipv6Ifaddr];
        // Subscribed before the list, so that no change after it is missed.
        let (connection, handle, notifications) = new_multicast_connection(&groups)?;
        let connection = tokio::spawn(connection);
        let mut addresses = Self { current: BTreeSet::new(), handle, notifications, connection };
        addresses.current = addresses.list().await?;
        Ok(addresses)
    }

    /// The addresses as last listed, of all interfaces and both families, including loopback and link-local ones.
    pub const fn current(&self) -> &BTreeSet<IpAddr> {
        &self.current
    }

    /// Waits until they differ, and returns them.
    ///
    /// # Errors
    /// When the kernel no longer answers; open another watch then.
    pub async fn changed(&mut self) -> Result<&BTreeSet<IpAddr>, LocalAddressesError> {
        loop {
            self.notifications.next().await.ok_or(LocalAddressesError::Ended)?;
            // Further notifications add nothing to the first.
            while self.notifications.try_recv().is_ok() {}
            let listed = self.list().await?;
            if listed != self.current {
                self.current = listed;
                return Ok(&self.current);
            }
        }
    }

    async fn list(&self) -> Result<BTreeSet<IpAddr>, LocalAddressesError> {
        let messages: Vec<AddressMessage> = self.handle.address().get().execute().try_collect().await?;
        Ok(messages.iter().filter_map(own_address).collect())
    }
}

impl Drop for LocalAddresses {
    fn drop(&mut self) {
        self.connection.abort();
    }
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
