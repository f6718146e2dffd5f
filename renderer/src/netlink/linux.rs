//! The real socket. It stays connected to the network namespace in which it was opened.

use std::io;

use netlink_sys::{
    SocketAddr,
    protocols::{NETLINK_NETFILTER, NETLINK_ROUTE, NETLINK_SOCK_DIAG},
};
use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, getsockopt, setsockopt, sockopt},
};

use super::message::{ANSWER_BUFFER, PIECE_CAPACITY};
use crate::kernel::{NetlinkProtocol, NetlinkSocket};

/// Requested as send buffer, since a batch must be sent at once; without CAP_NET_ADMIN in the first user namespace the kernel
/// grants less, and batches are kept smaller.
const SEND_BUFFER: usize = 256 << 20;

/// A netlink socket.
#[derive(Debug)]
pub(crate) struct LinuxSocket {
    inner: netlink_sys::Socket,
    port: u32,
    send_limit: usize,
}

impl LinuxSocket {
    pub(crate) fn open(protocol: NetlinkProtocol) -> io::Result<Self> {
        let mut inner = netlink_sys::Socket::new(protocol_number(protocol))?;
        let port = inner.bind_auto()?.port_number();
        // Without this a refusal contains a copy of the refused message.
        inner.set_cap_ack(true)?;
        match protocol {
            // With this the kernel reports which part of the message caused the error.
            NetlinkProtocol::Netfilter => inner.set_ext_ack(true)?,
            // With this the kernel applies the filter of a dump request.
            NetlinkProtocol::Route => inner.set_netlink_get_strict_chk(true)?,
            NetlinkProtocol::Sockets => {}
        }
        // Every refused message causes an answer. An overflow is an error of the next read.
        let _ = setsockopt(&inner, sockopt::RcvBufForce, &ANSWER_BUFFER);
        let send_limit = raise_send_buffer(&inner)?;
        Ok(Self {
            inner,
            port,
            send_limit,
        })
    }
}

/// The number of a protocol.
pub(super) const fn protocol_number(protocol: NetlinkProtocol) -> isize {
    match protocol {
        NetlinkProtocol::Netfilter => NETLINK_NETFILTER,
        NetlinkProtocol::Route => NETLINK_ROUTE,
        NetlinkProtocol::Sockets => NETLINK_SOCK_DIAG,
    }
}

impl NetlinkSocket for LinuxSocket {
    fn port(&self) -> u32 {
        self.port
    }

    fn send_limit(&self) -> usize {
        self.send_limit
    }

    fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.inner
            .send_to(request, &SocketAddr::new(0, 0), 0)
            .map(drop)
    }

    fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut received = Vec::with_capacity(PIECE_CAPACITY);
        self.inner.recv(&mut received, 0)?;
        Ok(received)
    }

    fn discard(&mut self) {
        let mut thrown_away = Vec::with_capacity(PIECE_CAPACITY);
        loop {
            match self
                .inner
                .recv(&mut thrown_away, MsgFlags::MSG_DONTWAIT.bits())
            {
                Ok(_) => thrown_away.clear(),
                Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => (),
                Err(_) => return,
            }
        }
    }
}

/// Sets the largest possible send buffer, and returns how large a batch fits into it.
fn raise_send_buffer(socket: &netlink_sys::Socket) -> io::Result<usize> {
    if setsockopt(socket, sockopt::SndBufForce, &SEND_BUFFER).is_err() {
        setsockopt(socket, sockopt::SndBuf, &SEND_BUFFER)?;
    }
    // The kernel refuses a message that does not leave 32 bytes (netlink_sendmsg).
    Ok(getsockopt(socket, sockopt::SndBuf)?.saturating_sub(32))
}
