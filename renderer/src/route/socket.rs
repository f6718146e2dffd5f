//! A routing netlink socket: dumps, lookups and batches of changes.

use std::{io, sync::Arc};

use rtnetlink::{
    packet_core::{
        NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST,
        NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload,
    },
    packet_route::{RouteNetlinkMessage, route::RouteMessage},
};

use super::{
    message::Message,
    nexthop::{Action, NexthopMessage},
};
use crate::{
    kernel::{Kernel, Membership, NetlinkProtocol, NetlinkSocket},
    netlink::{NetlinkError, message::NLM_F_DUMP_INTR},
};

/// Changes that are sent at once. The kernel answers each before any answer is read, and all answers must fit into the buffer.
const MAX_BATCH: usize = 128;
/// How often an inconsistent dump is repeated.
const DUMP_TRIES: usize = 5;

/// A routing netlink socket.
#[derive(Debug)]
pub(super) struct RouteSocket {
    inner: Box<dyn NetlinkSocket>,
    sequence: u32,
    /// The listener ends when this is dropped.
    pub(super) membership: Option<Box<dyn Membership>>,
    /// Recorded requests, if they are of interest.
    pub(super) record: Option<Vec<Exchange>>,
}

/// One sent piece, and how its answer ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// Messages of netlink.
    pub bytes: Vec<u8>,
    /// After so many answers; none: with the end of a dump.
    pub answers: Option<usize>,
}

/// A change, and how to treat an existing object.
#[derive(Debug, Clone)]
pub(super) enum Change {
    /// An existing object stays, and the change is refused. Also for deletions.
    Make(Message),
    /// The existing object is known to be ours, and replaced atomically; if it is gone, the change is refused.
    Replace(Message),
}

/// The result of a batch.
#[derive(Debug, Default)]
pub(super) struct BatchResult {
    /// The error number of each change, in order; none if it succeeded.
    pub(super) results: Vec<Option<i32>>,
    pub(super) pieces: usize,
    pub(super) bytes: usize,
}

impl RouteSocket {
    pub(super) fn open(kernel: &Arc<dyn Kernel>) -> Result<Self, NetlinkError> {
        let failed = |source| NetlinkError::Socket {
            action: "open a routing netlink socket",
            source,
        };
        let inner = kernel.connect(NetlinkProtocol::Route).map_err(failed)?;
        Ok(Self {
            inner,
            sequence: 0,
            membership: None,
            record: None,
        })
    }

    /// The port by which the kernel names this socket as the origin of a change.
    pub(super) fn port(&self) -> u32 {
        self.inner.port()
    }

    /// All next hops.
    pub(super) fn dump_nexthops(&mut self) -> Result<Vec<NexthopMessage>, NetlinkError> {
        let found = self
            .dump_all(&NexthopMessage::dump_request().into())?
            .into_iter();
        let nexthop = |message| match message {
            Message::Nexthop(message) => Some(message),
            Message::Route(_) => None,
        };
        Ok(found.filter_map(nexthop).collect())
    }

    /// All objects that the request selects.
    pub(super) fn dump(
        &mut self,
        request: RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>, NetlinkError> {
        let found = self.dump_all(&request.into())?.into_iter();
        let route = |message| match message {
            Message::Route(message) => Some(*message),
            Message::Nexthop(_) => None,
        };
        Ok(found.filter_map(route).collect())
    }

    fn dump_all(&mut self, request: &Message) -> Result<Vec<Message>, NetlinkError> {
        for _ in 1..DUMP_TRIES {
            if let (found, true) = self.try_dump(request)? {
                return Ok(found);
            }
        }
        // Changes made meanwhile are notified, or found the next time.
        Ok(self.try_dump(request)?.0)
    }

    /// Also returns whether the dump was consistent.
    fn try_dump(&mut self, request: &Message) -> Result<(Vec<Message>, bool), NetlinkError> {
        let mut bytes = Vec::new();
        let sequence = self.write(&mut bytes, request.clone(), NLM_F_REQUEST | NLM_F_DUMP);
        self.send(&bytes, None)?;
        let (mut found, mut is_consistent) = (Vec::new(), true);
        loop {
            let received = self.receive()?;
            for message in
                messages(&received).filter(|message| message.header.sequence_number == sequence)
            {
                is_consistent &= message.header.flags & NLM_F_DUMP_INTR == 0;
                match message.payload {
                    NetlinkPayload::Done(done) if done.code < 0 => {
                        return Err(refused("list", done.code));
                    }
                    NetlinkPayload::Done(_) => return Ok((found, is_consistent)),
                    NetlinkPayload::Error(error) => return Err(refused("list", error.raw_code())),
                    NetlinkPayload::InnerMessage(message) => found.push(message),
                    _ => {}
                }
            }
        }
    }

    /// The routes that the kernel would use, one for each request; none if it has none.
    pub(super) fn look_up(
        &mut self,
        requests: Vec<RouteMessage>,
    ) -> Result<Vec<Option<RouteMessage>>, NetlinkError> {
        let mut routes = Vec::with_capacity(requests.len());
        let mut requests = requests.into_iter().peekable();
        while requests.peek().is_some() {
            let first = self.sequence.wrapping_add(1);
            let mut bytes = Vec::new();
            let end = routes.len() + requests.len().min(MAX_BATCH);
            for request in requests.by_ref().take(MAX_BATCH) {
                let request = RouteNetlinkMessage::GetRoute(request).into();
                self.write(&mut bytes, request, NLM_F_REQUEST | NLM_F_ACK);
            }
            self.send(&bytes, Some(end - routes.len()))?;
            let start = routes.len();
            let mut found = None;
            while routes.len() < end {
                for message in messages(&self.receive()?) {
                    let answered = u32::try_from(routes.len() - start).unwrap_or(u32::MAX);
                    if message.header.sequence_number != first.wrapping_add(answered) {
                        continue;
                    }
                    match message.payload {
                        // It ends the answer, with or without an error.
                        NetlinkPayload::Error(_) => routes.push(found.take()),
                        NetlinkPayload::InnerMessage(Message::Route(message)) => {
                            if let RouteNetlinkMessage::NewRoute(route) = *message {
                                found = Some(route);
                            }
                        }
                        _ => {}
                    }
                }
            }
        }
        Ok(routes)
    }

    /// Makes these changes in order. A refused one does not prevent the others.
    pub(super) fn change(&mut self, changes: Vec<Change>) -> Result<BatchResult, NetlinkError> {
        let mut sent = BatchResult {
            results: Vec::with_capacity(changes.len()),
            ..BatchResult::default()
        };
        let mut changes = changes.into_iter().peekable();
        let mut bytes = Vec::new();
        while changes.peek().is_some() {
            bytes.clear();
            let first = self.sequence.wrapping_add(1);
            let mut count = 0;
            for change in changes.by_ref().take(MAX_BATCH) {
                let (message, flags) = match change {
                    Change::Replace(message) => (message, NLM_F_REPLACE),
                    Change::Make(message) if is_addition(&message) => {
                        (message, NLM_F_CREATE | NLM_F_EXCL)
                    }
                    // For a deletion the same bits would mean all objects of a kind.
                    Change::Make(message) => (message, 0),
                };
                self.write(&mut bytes, message, NLM_F_REQUEST | NLM_F_ACK | flags);
                count += 1;
            }
            self.send(&bytes, Some(count as usize))?;
            sent.pieces += 1;
            sent.bytes += bytes.len();
            self.collect(first, count, &mut sent.results)?;
        }
        Ok(sent)
    }

    /// Reads the answers to `count` changes, which the kernel gives in order.
    fn collect(
        &mut self,
        first: u32,
        count: u32,
        results: &mut Vec<Option<i32>>,
    ) -> Result<(), NetlinkError> {
        let mut answered = 0;
        while answered < count {
            for message in messages(&self.receive()?) {
                // It may be an unread answer to an earlier change that failed.
                if message.header.sequence_number != first.wrapping_add(answered) {
                    continue;
                }
                if let NetlinkPayload::Error(error) = message.payload {
                    answered += 1;
                    let code = error.raw_code();
                    results.push((code != 0).then_some(-code));
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, bytes: &mut Vec<u8>, message: Message, flags: u16) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = NetlinkMessage::new(
            NetlinkHeader::default(),
            NetlinkPayload::InnerMessage(message),
        );
        message.header.flags = flags;
        message.header.sequence_number = self.sequence;
        message.finalize();
        let start = bytes.len();
        bytes.resize(start + message.buffer_len().next_multiple_of(4), 0);
        message.serialize(&mut bytes[start..]);
        self.sequence
    }

    /// `answers`: how the answer ends, as in [`Exchange`].
    fn send(&mut self, bytes: &[u8], answers: Option<usize>) -> Result<(), NetlinkError> {
        if let Some(record) = &mut self.record {
            record.push(Exchange {
                bytes: bytes.to_vec(),
                answers,
            });
        }
        let failed = |source| NetlinkError::Socket {
            action: "ask the kernel",
            source,
        };
        self.inner.send(bytes).map_err(failed)
    }

    fn receive(&mut self) -> Result<Vec<u8>, NetlinkError> {
        let failed = |source| NetlinkError::Socket {
            action: "read the kernel's answer",
            source,
        };
        self.inner.receive().map_err(failed)
    }
}

/// True if a message adds an object.
fn is_addition(message: &Message) -> bool {
    match message {
        Message::Route(message) => {
            matches!(
                **message,
                RouteNetlinkMessage::NewRoute(_) | RouteNetlinkMessage::NewRule(_)
            )
        }
        Message::Nexthop(message) => message.action == Action::New,
    }
}

/// Splits received bytes into messages. Unreadable ones are skipped: their objects are left alone.
pub(super) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = NetlinkMessage<Message>> {
    std::iter::from_fn(move || {
        loop {
            let length = NetlinkBuffer::new_checked(bytes).ok()?.length() as usize;
            let message = NetlinkMessage::deserialize(bytes.get(..length)?);
            bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
            if let Ok(message) = message {
                return Some(message);
            }
        }
    })
}

fn refused(subject: &str, code: i32) -> NetlinkError {
    NetlinkError::Refused {
        subject: subject.to_owned(),
        source: io::Error::from_raw_os_error(-code),
        refusals: Vec::new(),
    }
}
