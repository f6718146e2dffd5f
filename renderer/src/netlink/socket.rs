//! The socket: sends requests, receives answers, streams dumps.

use std::io;

use netlink_sys::{SocketAddr, protocols::NETLINK_NETFILTER};
use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, getsockopt, setsockopt, sockopt},
};
use thiserror::Error;

#[cfg(any(test, feature = "testing"))]
use super::faults::NetlinkFaults;
use super::{
    Membership,
    message::{NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, is_whole, messages},
};

/// Requested as send buffer, since a batch must be sent at once; without CAP_NET_ADMIN in the first user namespace the kernel
/// grants less, and batches are kept smaller.
const SEND_BUFFER: usize = 256 << 20;
/// Requested as receive buffer; without CAP_NET_ADMIN in the first user namespace it stays smaller.
const ANSWERS: usize = 4 << 20;
/// The kernel sends at most 32 KiB in one piece of a dump.
const RECEIVE_BUFFER: usize = 64 << 10;

/// Why a request failed.
#[derive(Debug, Error)]
pub(crate) enum NetlinkError {
    /// The kernel refused one message, and with it the whole batch.
    #[error("{subject}: {source}")]
    Refused {
        /// The content of the message, in words.
        subject: String,
        source: io::Error,
        /// Every message that was refused.
        refusals: Vec<Refusal>,
    },
    /// The socket failed.
    #[error("{action}: {source}")]
    Socket { action: &'static str, source: io::Error },
    /// The kernel lacks modules.
    #[error("the kernel has no {}", .0.join(", "))]
    MissingModules(Vec<&'static str>),
}

/// A message that the kernel refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The whole message.
    pub(crate) message: Vec<u8>,
    /// The offset of the attribute that caused the error, if the kernel reports it.
    pub(crate) offset: Option<usize>,
    /// The system's error number.
    pub(crate) errno: i32,
    /// The kernel's text, or that of the error number.
    pub(crate) reason: String,
}

impl NetlinkError {
    /// The system's error number.
    pub(crate) fn errno(&self) -> Option<i32> {
        match self {
            Self::Refused { source, .. } | Self::Socket { source, .. } => source.raw_os_error(),
            Self::MissingModules(_) => None,
        }
    }
}

/// A netfilter netlink socket.
#[derive(Debug)]
pub(crate) struct Socket {
    inner: netlink_sys::Socket,
    port: u32,
    batch_limit: usize,
    /// The listener's membership, left while a large batch is committed.
    pub(crate) membership: Option<Membership>,
    #[cfg(any(test, feature = "testing"))]
    pub(crate) faults: Option<NetlinkFaults>,
}

impl Socket {
    pub(crate) fn open() -> Result<Self, NetlinkError> {
        let failed = |action| move |source| NetlinkError::Socket { action, source };
        let mut socket =
            netlink_sys::Socket::new(NETLINK_NETFILTER).map_err(failed("open a netfilter netlink socket"))?;
        let port = socket.bind_auto().map_err(failed("bind the netlink socket"))?.port_number();
        // Without this a refusal contains a copy of the refused message.
        socket.set_cap_ack(true).map_err(failed("set up the netlink socket"))?;
        // With this the kernel reports which part of the message caused the error.
        socket.set_ext_ack(true).map_err(failed("set up the netlink socket"))?;
        // Every refused message causes an answer. An overflow is an error of the next read.
        let _ = setsockopt(&socket, sockopt::RcvBufForce, &ANSWERS);
        let batch_limit = raise_send_buffer(&socket).map_err(failed("size the send buffer"))?;
        Ok(Self {
            inner: socket,
            port,
            batch_limit,
            membership: None,
            #[cfg(any(test, feature = "testing"))]
            faults: None,
        })
    }

    /// The port by which the kernel names this socket as the origin of a change. It is unique in this network namespace while
    /// the socket is open.
    pub(crate) const fn port(&self) -> u32 {
        self.port
    }

    /// The largest batch in bytes that can be sent at once.
    pub(crate) const fn batch_limit(&self) -> usize {
        self.batch_limit
    }

    /// Sends a dump request and passes on what arrives, in pieces of at most 32 KiB. Returns whether the dump was consistent:
    /// nothing changed during it.
    pub(crate) fn stream(&mut self, request: &[u8], take: impl FnMut(Vec<u8>)) -> Result<bool, NetlinkError> {
        let result = self.stream_once(request, take);
        self.drained(result)
    }

    fn stream_once(&mut self, request: &[u8], mut take: impl FnMut(Vec<u8>)) -> Result<bool, NetlinkError> {
        self.send(request, "ask the kernel for a dump")?;
        let mut consistent = true;
        loop {
            let received = self.receive("read a dump from the kernel")?;
            let mut done = false;
            for message in messages(&received) {
                consistent &= message.flags & NLM_F_DUMP_INTR == 0;
                if message.kind == NLMSG_ERROR {
                    let source = io::Error::from_raw_os_error(-message.error_code());
                    return Err(NetlinkError::Refused {
                        subject: "dump".to_owned(),
                        source,
                        refusals: Vec::new(),
                    });
                }
                done |= message.kind == NLMSG_DONE;
            }
            take(received);
            if done {
                return Ok(consistent);
            }
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8], action: &'static str) -> Result<(), NetlinkError> {
        let failed = |source| NetlinkError::Socket { action, source };
        #[cfg(any(test, feature = "testing"))]
        self.faults.iter_mut().try_for_each(NetlinkFaults::before_sending).map_err(failed)?;
        #[cfg(any(test, feature = "testing"))]
        let bytes = &*match &self.faults {
            Some(faults) => faults.without_modules(bytes),
            None => bytes.into(),
        };
        let kernel = SocketAddr::new(0, 0);
        self.inner.send_to(bytes, &kernel, 0).map_err(failed)?;
        Ok(())
    }

    /// After a failure discards pending answers, so that they are not taken for those of the next request.
    pub(crate) fn drained<T>(&self, result: Result<T, NetlinkError>) -> Result<T, NetlinkError> {
        result.inspect_err(|_| self.drain())
    }

    fn drain(&self) {
        let mut thrown_away = Vec::with_capacity(RECEIVE_BUFFER);
        loop {
            match self.inner.recv(&mut thrown_away, MsgFlags::MSG_DONTWAIT.bits()) {
                Ok(_) => thrown_away.clear(),
                Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => (),
                Err(_) => return,
            }
        }
    }

    pub(crate) fn receive(&mut self, action: &'static str) -> Result<Vec<u8>, NetlinkError> {
        let failed = |source| NetlinkError::Socket { action, source };
        let mut received = Vec::with_capacity(RECEIVE_BUFFER);
        #[cfg(any(test, feature = "testing"))]
        self.faults.iter_mut().try_for_each(NetlinkFaults::before_receiving).map_err(failed)?;
        self.inner.recv(&mut received, 0).map_err(failed)?;
        #[cfg(any(test, feature = "testing"))]
        self.faults
            .iter_mut()
            .try_for_each(|faults| faults.after_receiving(&mut received))
            .map_err(failed)?;
        // Waiting for a truncated answer would last forever.
        if is_whole(&received) {
            Ok(received)
        } else {
            Err(failed(io::Error::other("the answer is cut short")))
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
