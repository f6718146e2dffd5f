//! The socket: sends requests, hears answers, streams dumps.

use std::io;

use netlink_sys::{SocketAddr, protocols::NETLINK_NETFILTER};
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use thiserror::Error;

use super::message::{NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, messages};

/// Asked for as send buffer, since a batch must go in one piece; without CAP_NET_ADMIN in the first user namespace the
/// kernel gives less, and batches are kept smaller.
const SEND_BUFFER: usize = 256 << 20;
/// The kernel sends at most 32 KiB in one piece of a dump.
const RECEIVE_BUFFER: usize = 64 << 10;

/// Why the kernel did not do as asked.
#[derive(Debug, Error)]
pub(crate) enum NetlinkError {
    /// The kernel refused one message, and with it the whole batch.
    #[error("{subject}: {source}")]
    Refused {
        /// What the message was about.
        subject: String,
        source: io::Error,
    },
    /// The socket failed.
    #[error("{action}: {source}")]
    Socket { action: &'static str, source: io::Error },
}

impl NetlinkError {
    /// The system's error number.
    pub(crate) fn errno(&self) -> Option<i32> {
        match self {
            Self::Refused { source, .. } | Self::Socket { source, .. } => source.raw_os_error(),
        }
    }
}

/// A netfilter netlink socket.
#[derive(Debug)]
pub(crate) struct Socket {
    socket: netlink_sys::Socket,
    batch_limit: usize,
}

impl Socket {
    pub(crate) fn open() -> Result<Self, NetlinkError> {
        let failed = |action| move |source| NetlinkError::Socket { action, source };
        let mut socket =
            netlink_sys::Socket::new(NETLINK_NETFILTER).map_err(failed("open a netfilter netlink socket"))?;
        socket.bind_auto().map_err(failed("bind the netlink socket"))?;
        // Without this a refusal comes with a copy of the message that was refused.
        socket.set_cap_ack(true).map_err(failed("set up the netlink socket"))?;
        let batch_limit = raise_send_buffer(&socket).map_err(failed("size the send buffer"))?;
        Ok(Self { socket, batch_limit })
    }

    /// The largest batch in bytes that goes through in one piece.
    pub(crate) const fn batch_limit(&self) -> usize {
        self.batch_limit
    }

    /// Sends a request for a dump and hands over what arrives, in pieces of at most 32 KiB. Returns whether the dump was
    /// consistent: whether nothing changed under it.
    pub(crate) fn stream(
        &mut self,
        request: &[u8],
        mut take: impl FnMut(Vec<u8>),
    ) -> Result<bool, NetlinkError> {
        self.send(request, "ask the kernel for a dump")?;
        let mut consistent = true;
        loop {
            let received = self.receive("read a dump from the kernel")?;
            let mut done = false;
            for message in messages(&received) {
                consistent &= message.flags & NLM_F_DUMP_INTR == 0;
                if message.kind == NLMSG_ERROR {
                    let source = io::Error::from_raw_os_error(-message.error_code());
                    return Err(NetlinkError::Refused { subject: "dump".to_owned(), source });
                }
                done |= message.kind == NLMSG_DONE;
            }
            take(received);
            if done {
                return Ok(consistent);
            }
        }
    }

    pub(crate) fn send(&self, bytes: &[u8], action: &'static str) -> Result<(), NetlinkError> {
        let kernel = SocketAddr::new(0, 0);
        self.socket.send_to(bytes, &kernel, 0).map_err(|source| NetlinkError::Socket { action, source })?;
        Ok(())
    }

    pub(crate) fn receive(&self, action: &'static str) -> Result<Vec<u8>, NetlinkError> {
        let mut received = Vec::with_capacity(RECEIVE_BUFFER);
        self.socket.recv(&mut received, 0).map_err(|source| NetlinkError::Socket { action, source })?;
        Ok(received)
    }
}

/// Gives the socket the largest send buffer it can have, and returns how large a batch fits into it.
fn raise_send_buffer(socket: &netlink_sys::Socket) -> io::Result<usize> {
    if setsockopt(socket, sockopt::SndBufForce, &SEND_BUFFER).is_err() {
        setsockopt(socket, sockopt::SndBuf, &SEND_BUFFER)?;
    }
    // The kernel refuses what does not leave it 32 bytes (netlink_sendmsg).
    Ok(getsockopt(socket, sockopt::SndBuf)?.saturating_sub(32))
}
