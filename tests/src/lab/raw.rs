//! Raw IP sockets, for protocols for which the kernel has no sockets.

use std::{
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use socket2::{Domain, Protocol, Socket, Type};

/// The largest packet of the lab's links.
const MAX_PACKET: usize = 1500;
/// The header length in units of four bytes, in the first byte of an IPv4 packet.
const V4_HEADER_LENGTH: u8 = 0x0f;

/// Sends and receives the payload of IP packets of one protocol and family.
#[derive(Debug)]
pub struct RawSocket {
    /// The standard library has no raw sockets, but its UDP socket can send and receive on one.
    socket: UdpSocket,
    is_v4: bool,
}

impl RawSocket {
    /// A socket for packets to one address of the caller's namespace.
    ///
    /// # Errors
    /// Those of the kernel; raw sockets are for root only.
    pub fn bind(address: IpAddr, protocol: u8) -> io::Result<Self> {
        let socket = Self::open(address, protocol)?;
        socket.bind(&SocketAddr::new(address, 0).into())?;
        Ok(Self {
            socket: socket.into(),
            is_v4: address.is_ipv4(),
        })
    }

    /// A socket for packets from and to one peer. It also receives the ICMP errors of its packets.
    ///
    /// # Errors
    /// As [`Self::bind`], or when there is no route.
    pub fn connect(peer: IpAddr, protocol: u8) -> io::Result<Self> {
        let socket = Self::open(peer, protocol)?;
        socket.connect(&SocketAddr::new(peer, 0).into())?;
        Ok(Self {
            socket: socket.into(),
            is_v4: peer.is_ipv4(),
        })
    }

    fn open(address: IpAddr, protocol: u8) -> io::Result<Socket> {
        let domain = if address.is_ipv4() {
            Domain::IPV4
        } else {
            Domain::IPV6
        };
        Socket::new(domain, Type::RAW, Some(Protocol::from(i32::from(protocol))))
    }

    /// Its own address.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn local_address(&self) -> io::Result<IpAddr> {
        self.socket.local_addr().map(|address| address.ip())
    }

    /// Sends to the peer of a connected socket.
    ///
    /// # Errors
    /// Those of the kernel, also for an earlier packet.
    pub fn send(&self, payload: &[u8]) -> io::Result<()> {
        self.socket.send(payload).map(drop)
    }

    /// Sends to any address.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn send_to(&self, payload: &[u8], to: IpAddr) -> io::Result<()> {
        self.socket
            .send_to(payload, SocketAddr::new(to, 0))
            .map(drop)
    }

    /// Waits for a packet for which `read` returns something, and returns that.
    ///
    /// # Errors
    /// The ICMP error of an earlier packet; and [`ErrorKind::TimedOut`] or [`ErrorKind::WouldBlock`] when none came in time.
    pub fn receive<T>(
        &self,
        limit: Duration,
        read: impl Fn(IpAddr, &[u8]) -> Option<T>,
    ) -> io::Result<T> {
        let start = Instant::now();
        let mut buffer = [0; MAX_PACKET];
        loop {
            let left = limit
                .checked_sub(start.elapsed())
                .filter(|left| !left.is_zero());
            self.socket
                .set_read_timeout(Some(left.ok_or(ErrorKind::TimedOut)?))?;
            let (length, from) = self.socket.recv_from(&mut buffer)?;
            // The kernel includes the header of IPv4, but not that of IPv6.
            let header = if self.is_v4 {
                usize::from(buffer[0] & V4_HEADER_LENGTH) * 4
            } else {
                0
            };
            if let Some(found) = buffer[..length]
                .get(header..)
                .and_then(|payload| read(from.ip(), payload))
            {
                return Ok(found);
            }
        }
    }
}

impl std::os::fd::AsFd for RawSocket {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
