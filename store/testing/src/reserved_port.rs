//! A port that no other program gets.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use tokio::net::TcpSocket;

/// A TCP port of this machine, for a server that must be able to start, and to start again after it was killed.
///
/// A socket is bound to it and never listens. So the kernel chooses this port for no other socket, connections are refused while
/// there is no server, and a server that names the port and sets `SO_REUSEADDR`, as etcd and tokio do, can listen on it.
#[derive(Debug)]
pub struct ReservedPort {
    address: SocketAddr,
    _socket: TcpSocket,
}

impl ReservedPort {
    /// Reserves a port of 127.0.0.1.
    ///
    /// # Errors
    /// As [`ReservedPort::on`].
    pub fn new() -> io::Result<Self> {
        Self::on(Ipv4Addr::LOCALHOST.into())
    }

    /// Reserves a port of an address until this is dropped, in the network namespace of this thread.
    ///
    /// # Errors
    /// When no port is left.
    pub fn on(address: IpAddr) -> io::Result<Self> {
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::new(address, 0))?;
        Ok(Self {
            address: socket.local_addr()?,
            _socket: socket,
        })
    }

    /// Its address.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}
