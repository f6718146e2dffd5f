//! The socket: sends requests, receives answers, streams dumps.

use std::{io, sync::Arc};

use super::NetlinkError;
use super::message::{NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, has_complete_messages, messages};
use crate::kernel::{Kernel, Membership, NetlinkProtocol, NetlinkSocket};

/// A netlink socket of the real kernel or a model.
#[derive(Debug)]
pub(crate) struct Socket {
    inner: Box<dyn NetlinkSocket>,
    kernel: Arc<dyn Kernel>,
    /// The listener's membership, left while a large batch is committed.
    pub(crate) membership: Option<Box<dyn Membership>>,
}

impl Socket {
    pub(crate) fn open(kernel: &Arc<dyn Kernel>) -> Result<Self, NetlinkError> {
        Self::open_for(kernel, NetlinkProtocol::Netfilter)
    }

    pub(crate) fn open_for(
        kernel: &Arc<dyn Kernel>,
        protocol: NetlinkProtocol,
    ) -> Result<Self, NetlinkError> {
        let action = match protocol {
            NetlinkProtocol::Netfilter => "open a netfilter netlink socket",
            NetlinkProtocol::Route => "open a route netlink socket",
            NetlinkProtocol::Sockets => "open a netlink socket for sockets",
        };
        let failed = |source| NetlinkError::Socket { action, source };
        let inner = kernel.connect(protocol).map_err(failed)?;
        Ok(Self {
            inner,
            kernel: Arc::clone(kernel),
            membership: None,
        })
    }

    /// The kernel at the other end.
    pub(crate) fn kernel(&self) -> &Arc<dyn Kernel> {
        &self.kernel
    }

    /// The port by which the kernel names this socket as the origin of a change. It is unique in this network namespace while
    /// the socket is open.
    pub(crate) fn port(&self) -> u32 {
        self.inner.port()
    }

    /// The largest batch in bytes that can be sent at once.
    pub(crate) fn batch_limit(&self) -> usize {
        self.inner.send_limit()
    }

    /// Sends a dump request and passes on what arrives, in pieces of at most 32 KiB. Returns whether the dump was consistent:
    /// nothing changed during it.
    pub(crate) fn stream(
        &mut self,
        request: &[u8],
        take: impl FnMut(Vec<u8>),
    ) -> Result<bool, NetlinkError> {
        let result = self.stream_once(request, take);
        self.drained(result)
    }

    fn stream_once(
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
        self.inner.send(bytes).map_err(failed)
    }

    /// After a failure discards pending answers, so that they are not taken for those of the next request.
    pub(crate) fn drained<T>(
        &mut self,
        result: Result<T, NetlinkError>,
    ) -> Result<T, NetlinkError> {
        result.inspect_err(|_| self.inner.discard())
    }

    pub(crate) fn receive(&mut self, action: &'static str) -> Result<Vec<u8>, NetlinkError> {
        let failed = |source| NetlinkError::Socket { action, source };
        let received = self.inner.receive().map_err(failed)?;
        // Waiting for a truncated answer would last forever.
        if has_complete_messages(&received) {
            Ok(received)
        } else {
            Err(failed(io::Error::other("the answer is cut short")))
        }
    }
}
