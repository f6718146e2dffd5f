//! Sockets of this network namespace that wait for connections or datagrams. Source: the kernel's
//! `include/uapi/linux/inet_diag.h` and `sock_diag.h`.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use contiv_model::Protocol;
use serde::Serialize;

use super::{
    PathError,
    kernel_socket::{KernelSocket, number_at},
};
use crate::netlink::Attributes;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// The length of `struct inet_diag_req_v2`, and the offsets of its states and of the source port of its `struct inet_diag_sockid`.
const REQUEST: usize = 56;
const REQUEST_STATES: usize = 4;
const REQUEST_PORT: usize = 8;
/// The length of `struct inet_diag_msg`, and offsets in it.
const MESSAGE: usize = 72;
const MESSAGE_PORT: usize = 4;
const MESSAGE_ADDRESS: usize = 8;
const MESSAGE_INTERFACE: usize = 40;
const MESSAGE_RQUEUE: usize = 56;
const MESSAGE_WQUEUE: usize = 60;
/// `INET_DIAG_SKV6ONLY`
const ATTRIBUTE_V6ONLY: u16 = 11;
/// `TCP_LISTEN`; a socket of UDP without a peer has `TCP_CLOSE`, as has one of SCTP.
const TCP_LISTEN: u32 = 10;
const TCP_CLOSE: u32 = 7;

/// A socket that waits for connections or datagrams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listener {
    /// The address at which it waits; unspecified for all.
    pub address: SocketAddr,
    /// It waits for IPv6 only; of no meaning for an address of IPv4.
    pub is_v6_only: bool,
    /// The index of the interface to which it is bound; 0 without one.
    pub interface: u32,
    /// How much waits for the process: connections of TCP, bytes of UDP.
    pub waiting: u32,
    /// How many connections of TCP may wait. The kernel drops further ones. For UDP it says nothing.
    pub limit: u32,
}

impl Listener {
    /// Whether it receives what is sent to an address of this node.
    pub fn receives(&self, address: IpAddr) -> bool {
        match (self.address.ip(), address) {
            (IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(_)) => !self.is_v6_only,
            (own, _) if own.is_unspecified() => own.is_ipv4() == address.is_ipv4(),
            (IpAddr::V6(own), IpAddr::V4(address)) => own.to_ipv4_mapped() == Some(address),
            (own, _) => own == address,
        }
    }

    /// Whether a connection of TCP would be dropped, since the process does not accept those that wait.
    pub const fn is_full(&self) -> bool {
        self.waiting > self.limit
    }
}

/// Whether a process of this network namespace receives what comes to an address and port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Listening {
    /// One does, by this socket. If several do, one that is not full.
    Here(Listener),
    /// Sockets have the port, at these other addresses only.
    Elsewhere(Vec<IpAddr>),
    /// No socket has the port.
    Nowhere,
}

impl Listening {
    /// Of the sockets that have the port.
    fn of(sockets: Vec<Listener>, address: IpAddr) -> Self {
        let mut addresses: Vec<IpAddr> = sockets.iter().map(|socket| socket.address.ip()).collect();
        let here = sockets
            .into_iter()
            .filter(|socket| socket.receives(address))
            .min_by_key(Listener::is_full);
        if let Some(socket) = here {
            return Self::Here(socket);
        }
        addresses.sort_unstable();
        addresses.dedup();
        if addresses.is_empty() {
            Self::Nowhere
        } else {
            Self::Elsewhere(addresses)
        }
    }
}

/// Whether a process receives what comes to `destination`.
pub(super) fn listening(
    socket: &mut KernelSocket,
    protocol: Protocol,
    destination: SocketAddr,
) -> Result<Listening, PathError> {
    let families: &[u8] = if destination.is_ipv4() {
        &[AF_INET, AF_INET6]
    } else {
        &[AF_INET6]
    };
    let mut sockets = Vec::new();
    for family in families {
        let request = request(*family, protocol, destination.port());
        let kinds = [SOCK_DIAG_BY_FAMILY; 2];
        socket.dump(
            kinds,
            &request,
            |_| (),
            |message| {
                let is_of_port = |socket: &Listener| socket.address.port() == destination.port();
                sockets.extend(read(message).filter(is_of_port));
            },
        )?;
    }
    Ok(Listening::of(sockets, destination.ip()))
}

fn request(family: u8, protocol: Protocol, port: u16) -> [u8; REQUEST] {
    let states = match protocol {
        Protocol::Tcp => 1_u32 << TCP_LISTEN,
        Protocol::Udp => 1 << TCP_CLOSE,
        Protocol::Sctp => 1 << TCP_LISTEN | 1 << TCP_CLOSE,
    };
    let mut request = [0; REQUEST];
    request[..2].copy_from_slice(&[family, protocol.number()]);
    request[REQUEST_STATES..REQUEST_PORT].copy_from_slice(&states.to_ne_bytes());
    request[REQUEST_PORT..REQUEST_PORT + 2].copy_from_slice(&port.to_be_bytes());
    request
}

fn read(message: &[u8]) -> Option<Listener> {
    let attributes = Attributes(message.get(MESSAGE..)?);
    let port = u16::from_be_bytes(*message.get(MESSAGE_PORT..)?.first_chunk()?);
    let address = message.get(MESSAGE_ADDRESS..)?;
    let address = match message[0] {
        AF_INET => IpAddr::from(*address.first_chunk::<4>()?),
        AF_INET6 => IpAddr::from(*address.first_chunk::<16>()?),
        _ => return None,
    };
    Some(Listener {
        address: SocketAddr::new(address, port),
        is_v6_only: attributes
            .get(ATTRIBUTE_V6ONLY)
            .is_some_and(|value| value.first() == Some(&1)),
        interface: number_at(message, MESSAGE_INTERFACE)?,
        waiting: number_at(message, MESSAGE_RQUEUE)?,
        limit: number_at(message, MESSAGE_WQUEUE)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Writer;

    fn listener(address: &str, is_v6_only: bool, waiting: u32) -> Listener {
        Listener {
            address: address.parse().unwrap(),
            is_v6_only,
            interface: 0,
            waiting,
            limit: 4,
        }
    }

    #[test]
    fn socket_is_read_with_address_and_queue() {
        let mut message = vec![0; MESSAGE];
        message[0] = AF_INET6;
        message[MESSAGE_PORT..MESSAGE_PORT + 2].copy_from_slice(&8080_u16.to_be_bytes());
        message[MESSAGE_ADDRESS + 15] = 1;
        message[MESSAGE_RQUEUE..MESSAGE_RQUEUE + 4].copy_from_slice(&5_u32.to_ne_bytes());
        message[MESSAGE_WQUEUE..MESSAGE_WQUEUE + 4].copy_from_slice(&4_u32.to_ne_bytes());
        Writer::new(&mut message).u8(ATTRIBUTE_V6ONLY, 1);
        let read_back = read(&message).unwrap();
        assert_eq!(read_back, listener("[::1]:8080", true, 5));
        assert!(read_back.is_full());
        for end in 0..MESSAGE {
            assert_eq!(read(&message[..end]), None, "cut off after {end}");
        }
    }

    #[test]
    fn socket_receives_at_its_own_addresses() {
        for (address, is_v6_only, to, expected) in [
            ("0.0.0.0:80", false, "10.0.0.1", true),
            ("0.0.0.0:80", false, "fd00::1", false),
            ("[::]:80", false, "10.0.0.1", true),
            ("[::]:80", true, "10.0.0.1", false),
            ("[::]:80", true, "fd00::1", true),
            ("127.0.0.1:80", false, "10.0.0.1", false),
            ("10.0.0.1:80", false, "10.0.0.1", true),
            ("[::ffff:10.0.0.1]:80", false, "10.0.0.1", true),
            ("[::ffff:10.0.0.1]:80", false, "10.0.0.2", false),
            ("[fd00::1]:80", false, "fd00::2", false),
        ] {
            let receives = listener(address, is_v6_only, 0).receives(to.parse().unwrap());
            assert_eq!(receives, expected, "{address} {is_v6_only} {to}");
        }
    }

    #[test]
    fn listening_prefers_a_socket_with_an_empty_queue() {
        let to: IpAddr = "10.0.0.1".parse().unwrap();
        assert_eq!(Listening::of(Vec::new(), to), Listening::Nowhere);
        let local = listener("127.0.0.1:80", false, 0);
        assert_eq!(
            Listening::of(vec![local.clone(), local.clone()], to),
            Listening::Elsewhere(vec![local.address.ip()])
        );
        let (full, empty) = (
            listener("0.0.0.0:80", false, 5),
            listener("10.0.0.1:80", false, 0),
        );
        assert_eq!(
            Listening::of(vec![local, full, empty.clone()], to),
            Listening::Here(empty)
        );
    }
}
