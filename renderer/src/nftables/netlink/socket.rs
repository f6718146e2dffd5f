//! The socket: sends batches and hears the verdict, asks for dumps.

use std::io;

use netlink_sys::{SocketAddr, protocols::NETLINK_NETFILTER};
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use thiserror::Error;

use super::{
    attributes::{Attributes, Writer},
    batch::{Batch, MESSAGE_HEADER, NFGEN_HEADER, NLM_F_REQUEST, begin_message, end_message},
    constants::{NFNL_SUBSYS_NFTABLES, NFPROTO_INET},
};

const NLM_F_DUMP: u16 = 0x300;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// How often a dump that the kernel calls inconsistent is asked for again.
const DUMP_TRIES: usize = 5;
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

    /// Sends a batch and waits for the verdict. Returns the bytes sent.
    pub(crate) fn commit(&mut self, mut batch: Batch) -> Result<usize, NetlinkError> {
        let (bytes, last) = batch.finish();
        let length = bytes.len();
        self.send(bytes, "send a batch to the kernel")?;
        let mut refusal = None;
        loop {
            let received = self.receive("hear the kernel's verdict")?;
            for message in messages(&received) {
                if message.kind != NLMSG_ERROR {
                    continue;
                }
                let code = message.error_code();
                if code != 0 && refusal.is_none() {
                    let subject =
                        batch.subject(message.sequence).unwrap_or("the batch as a whole").to_owned();
                    refusal =
                        Some(NetlinkError::Refused { subject, source: io::Error::from_raw_os_error(-code) });
                }
                // A failure of the whole batch is reported for its first message (sequence number 0).
                if message.sequence == last || message.sequence == 0 {
                    return refusal.map_or(Ok(length), Err);
                }
            }
        }
    }

    /// Dumps all objects of one kind; `fill` narrows down which.
    pub(crate) fn dump(
        &mut self,
        kind: u8,
        fill: impl FnOnce(&mut Writer<'_>),
    ) -> Result<Dump, NetlinkError> {
        let mut request = Vec::new();
        let kind = u16::from(NFNL_SUBSYS_NFTABLES) << 8 | u16::from(kind);
        begin_message(&mut request, kind, NLM_F_REQUEST | NLM_F_DUMP, 1, NFPROTO_INET, 0);
        fill(&mut Writer::new(&mut request));
        end_message(&mut request, 0);
        for _ in 0..DUMP_TRIES {
            self.send(&request, "ask the kernel for a dump")?;
            if let Some(dump) = self.receive_dump()? {
                return Ok(dump);
            }
        }
        let source = io::Error::other("something else keeps changing it");
        Err(NetlinkError::Socket { action: "dump the table", source })
    }

    /// Reads a dump to its end; none if it was not consistent.
    fn receive_dump(&mut self) -> Result<Option<Dump>, NetlinkError> {
        let mut dump = Dump { received: Vec::new() };
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
            dump.received.push(received);
            if done {
                return Ok(consistent.then_some(dump));
            }
        }
    }

    fn send(&self, bytes: &[u8], action: &'static str) -> Result<(), NetlinkError> {
        let kernel = SocketAddr::new(0, 0);
        self.socket.send_to(bytes, &kernel, 0).map_err(|source| NetlinkError::Socket { action, source })?;
        Ok(())
    }

    fn receive(&self, action: &'static str) -> Result<Vec<u8>, NetlinkError> {
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

/// What a dump returned.
#[derive(Debug)]
pub(crate) struct Dump {
    received: Vec<Vec<u8>>,
}

impl Dump {
    /// The attributes of each object.
    pub(crate) fn objects(&self) -> impl Iterator<Item = Attributes<'_>> {
        self.received
            .iter()
            .flat_map(|bytes| messages(bytes))
            .filter(|message| message.kind >> 8 == u16::from(NFNL_SUBSYS_NFTABLES))
            .map(|message| Attributes(message.payload.get(NFGEN_HEADER..).unwrap_or_default()))
    }
}

/// One received message.
struct Message<'a> {
    kind: u16,
    flags: u16,
    sequence: u32,
    payload: &'a [u8],
}

impl Message<'_> {
    /// Of an error message: zero for an acknowledgement, else the negative error number.
    fn error_code(&self) -> i32 {
        self.payload.first_chunk().copied().map_or(0, i32::from_ne_bytes)
    }
}

/// Splits what was received into messages. Ends at the first one that is malformed.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let header = bytes.first_chunk::<MESSAGE_HEADER>()?;
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let message = Message {
            kind: u16::from_ne_bytes([header[4], header[5]]),
            flags: u16::from_ne_bytes([header[6], header[7]]),
            sequence: u32::from_ne_bytes([header[8], header[9], header[10], header[11]]),
            payload: bytes.get(MESSAGE_HEADER..length)?,
        };
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}
