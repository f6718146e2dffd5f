//! Events of conntrack: connections as they begin, change and end. Sources: the kernel's
//! `include/uapi/linux/netfilter/nfnetlink_conntrack.h` and `nfnetlink_compat.h`, and for the filter `include/uapi/linux/filter.h`.
//!
//! The kernel makes events only while a socket is in one of the groups, and of connections that began meanwhile
//! (`nf_conntrack_events=2`, its default). So nothing costs anything while there is no [`FlowEvents`].

use std::{
    io,
    os::fd::AsFd,
    sync::Arc,
    time::{Duration, Instant},
};

use netlink_sys::{SocketAddr, protocols::NETLINK_NETFILTER};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{MsgFlags, setsockopt, sockopt},
};
use serde::Serialize;
use socket2::{SockFilter, SockRef};

use super::{
    PathError,
    flows::{HEADER, KnownFlow, NEW, read},
    kernel_socket::KernelSocket,
};
use crate::{
    kernel::{Kernel, NetlinkProtocol},
    linux::Linux,
    netlink::{
        Attributes, NetlinkError,
        message::{NFNL_SUBSYS_CTNETLINK, PIECE_CAPACITY, kind_of, messages},
    },
    nftables::conntrack::constants::{
        COUNTERS_BYTES, COUNTERS_ORIG, COUNTERS_PACKETS, COUNTERS_REPLY, DELETE, GET, ID,
    },
};

/// The groups of new, changed and ended connections.
const NFNLGRP_CONNTRACK_NEW: u32 = 1;
const NFNLGRP_CONNTRACK_UPDATE: u32 = 2;
const NFNLGRP_CONNTRACK_DESTROY: u32 = 3;
/// Space for what arrives between two readings: about a kilobyte an event. If it is too small, events are lost, which is noticed.
const RECEIVE_BUFFER: usize = 8 << 20;
const EVENTS_SETTING: &str = "net/netfilter/nf_conntrack_events";

/// What has happened to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowEventKind {
    /// Its first packet went through.
    New,
    /// Its state is another one.
    Changed,
    /// The kernel has forgotten it.
    Ended,
    /// Nothing: it was listed.
    Listed,
}

/// What a connection has carried, if the kernel counts (`nf_conntrack_acct=1`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Packets of the client.
    pub packets_sent: u64,
    /// Bytes of the client, with headers of IP.
    pub bytes_sent: u64,
    /// Packets of the server.
    pub packets_received: u64,
    /// Bytes of the server, with headers of IP.
    pub bytes_received: u64,
}

/// A connection and what has happened to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowEvent {
    /// What has happened.
    pub kind: FlowEventKind,
    /// The kernel's number of this connection, evenly distributed.
    pub id: u32,
    /// The connection.
    pub flow: KnownFlow,
    /// What it has carried so far; in events only at its end.
    pub traffic: Option<Traffic>,
}

impl FlowEvent {
    fn read(kind: FlowEventKind, attributes: Attributes<'_>) -> Option<Self> {
        Some(Self {
            kind,
            id: attributes.u32(ID)?,
            flow: read(attributes)?,
            traffic: traffic(attributes),
        })
    }
}

fn traffic(attributes: Attributes<'_>) -> Option<Traffic> {
    let count = |direction: u16, kind: u16| {
        let bytes = attributes.nested(direction)?.get(kind)?;
        bytes.try_into().ok().map(u64::from_be_bytes)
    };
    Some(Traffic {
        packets_sent: count(COUNTERS_ORIG, COUNTERS_PACKETS)?,
        bytes_sent: count(COUNTERS_ORIG, COUNTERS_BYTES)?,
        packets_received: count(COUNTERS_REPLY, COUNTERS_PACKETS)?,
        bytes_received: count(COUNTERS_REPLY, COUNTERS_BYTES)?,
    })
}

/// The kernel passes on one connection in so many: those whose number has these low bits zero, so each of them whole or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleRate {
    /// One in two to the power of this.
    exponent: u8,
}

impl SampleRate {
    /// Every connection.
    pub const ALL: Self = Self { exponent: 0 };
    const MAX_EXPONENT: u8 = 20;

    /// One in how many connections is in the sample.
    pub const fn one_in(self) -> u32 {
        1 << self.exponent
    }

    /// Half as many connections.
    #[must_use]
    pub const fn halved(self) -> Self {
        if self.exponent >= Self::MAX_EXPONENT {
            return self;
        }
        Self {
            exponent: self.exponent + 1,
        }
    }

    /// Twice as many connections, or all.
    #[must_use]
    pub const fn doubled(self) -> Self {
        Self {
            exponent: self.exponent.saturating_sub(1),
        }
    }

    /// Whether the connection with this number is in the sample. What is in a smaller sample is in a larger one too.
    pub const fn contains(self, id: u32) -> bool {
        id & (self.one_in() - 1) == 0
    }
}

/// What one reading has received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventsRead {
    /// Messages of the kernel.
    pub count: usize,
    /// The kernel had no room for some events, which are lost.
    pub has_lost: bool,
}

/// Receives the events of the network namespace in which it was opened.
#[derive(Debug)]
pub struct FlowEvents {
    socket: netlink_sys::Socket,
    buffer: Vec<u8>,
    has_changes: bool,
}

impl FlowEvents {
    /// Joins the groups of new and ended connections.
    ///
    /// # Errors
    /// When the kernel makes no events, or does not let this process have them: without CAP_NET_ADMIN.
    pub fn open() -> Result<Self, PathError> {
        if Linux.setting(EVENTS_SETTING).is_ok_and(|set| set == "0") {
            return Err(PathError(
                "the kernel tells of no connections: nf_conntrack_events is 0; run: sysctl -w net.netfilter.nf_conntrack_events=2"
                    .to_owned(),
            ));
        }
        Self::join().map_err(|source| {
            let action = "join the groups of conntrack's events";
            failed(&NetlinkError::Socket { action, source })
        })
    }

    fn join() -> io::Result<Self> {
        let mut socket = netlink_sys::Socket::new(NETLINK_NETFILTER)?;
        // Without CAP_NET_ADMIN in the first user namespace the buffer is smaller.
        if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
            setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER)?;
        }
        socket.bind(&SocketAddr::new(0, 0))?;
        for group in [NFNLGRP_CONNTRACK_NEW, NFNLGRP_CONNTRACK_DESTROY] {
            socket.add_membership(group)?;
        }
        Ok(Self {
            socket,
            buffer: Vec::with_capacity(PIECE_CAPACITY),
            has_changes: false,
        })
    }

    /// Receives changes of state too, or not any more. There are about six for a connection of TCP.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn receive_changes(&mut self, receives: bool) -> Result<(), PathError> {
        if receives == self.has_changes {
            return Ok(());
        }
        let result = if receives {
            self.socket.add_membership(NFNLGRP_CONNTRACK_UPDATE)
        } else {
            self.socket.drop_membership(NFNLGRP_CONNTRACK_UPDATE)
        };
        let action = "change the groups of conntrack's events";
        result.map_err(|source| failed(&NetlinkError::Socket { action, source }))?;
        self.has_changes = receives;
        Ok(())
    }

    /// Has the kernel leave out connections that are not in the sample.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn sample(&mut self, rate: SampleRate) -> Result<(), PathError> {
        let filter = sample_filter(rate);
        let action = "filter conntrack's events";
        SockRef::from(&self.socket)
            .attach_filter(&filter)
            .map_err(|source| failed(&NetlinkError::Socket { action, source }))
    }

    /// Waits until there is an event, for at most `timeout`. False if there is none.
    ///
    /// # Errors
    /// When the system call fails.
    pub fn wait(&self, timeout: Duration) -> Result<bool, PathError> {
        let end = Instant::now() + timeout;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut ready = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            match poll(&mut ready, left) {
                Err(Errno::EINTR) => (),
                Err(error) => return Err(PathError(format!("wait for events: {error}"))),
                Ok(count) => return Ok(count > 0),
            }
        }
    }

    /// Passes on what has arrived, at most `limit` messages of it, without waiting.
    ///
    /// # Errors
    /// When nothing can be received any more. Lost events are no error.
    pub fn read(
        &mut self,
        limit: usize,
        mut take: impl FnMut(FlowEvent),
    ) -> Result<EventsRead, PathError> {
        let mut read = EventsRead::default();
        while read.count < limit {
            self.buffer.clear();
            match self
                .socket
                .recv(&mut self.buffer, MsgFlags::MSG_DONTWAIT.bits())
            {
                Ok(_) => {
                    read.count += 1;
                    events(&self.buffer).for_each(&mut take);
                }
                Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                    Some(Errno::EAGAIN) => break,
                    Some(Errno::EINTR) => (),
                    Some(Errno::ENOBUFS) => read.has_lost = true,
                    _ => {
                        return Err(PathError(format!("read conntrack's events: {error}")));
                    }
                },
            }
        }
        Ok(read)
    }
}

/// The events in received bytes.
fn events(received: &[u8]) -> impl Iterator<Item = FlowEvent> {
    /// `NLM_F_CREATE`: the connection is new, and not changed.
    const CREATE: u16 = 0x400;
    messages(received).filter_map(|message| {
        let kind = match (message.kind, message.flags & CREATE != 0) {
            (kind, true) if kind == kind_of(NFNL_SUBSYS_CTNETLINK, NEW) => FlowEventKind::New,
            (kind, false) if kind == kind_of(NFNL_SUBSYS_CTNETLINK, NEW) => FlowEventKind::Changed,
            (kind, _) if kind == kind_of(NFNL_SUBSYS_CTNETLINK, DELETE) => FlowEventKind::Ended,
            _ => return None,
        };
        FlowEvent::read(kind, message.object(NFNL_SUBSYS_CTNETLINK)?)
    })
}

/// Lists all connections, of both families.
///
/// # Errors
/// When the kernel cannot be queried; without CAP_NET_ADMIN.
pub fn list_flows(mut take: impl FnMut(FlowEvent)) -> Result<(), PathError> {
    let mut socket = KernelSocket::open(NetlinkProtocol::Netfilter)?;
    let kinds = [GET, NEW].map(|kind| kind_of(NFNL_SUBSYS_CTNETLINK, kind));
    socket.dump(
        kinds,
        &[0; HEADER],
        |_| (),
        |message| {
            let attributes = message.get(HEADER..).map(Attributes);
            let listed = attributes
                .and_then(|attributes| FlowEvent::read(FlowEventKind::Listed, attributes));
            if let Some(event) = listed {
                take(event);
            }
        },
    )
}

/// Whether the kernel counts what connections carry.
pub fn counts_traffic() -> bool {
    let kernel: Arc<dyn Kernel> = Linux::shared();
    let setting = kernel.setting("net/netfilter/nf_conntrack_acct");
    setting.is_ok_and(|set| set == "1")
}

fn failed(error: &NetlinkError) -> PathError {
    PathError(error.with_advice("tell of connections").to_string())
}

/// A classic BPF filter that passes the connections of a sample, and messages without a number.
fn sample_filter(rate: SampleRate) -> [SockFilter; 9] {
    const LOAD_NUMBER: u16 = 0x00;
    const LOAD_NUMBER_TO_INDEX: u16 = 0x01;
    const LOAD_BYTE: u16 = 0x30;
    const LOAD_INDEXED_WORD: u16 = 0x40;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const JUMP_IF_ANY_BIT: u16 = 0x45;
    const INDEX_IS_VALUE: u16 = 0x07;
    const RETURN: u16 = 0x06;
    /// `SKF_AD_OFF + SKF_AD_NLATTR`: from the offset in A, look for the attribute in X; its offset or 0.
    const FIND_ATTRIBUTE: u32 = 0xffff_f00c;
    /// The headers of a message, and that of an attribute.
    const ATTRIBUTES: u32 = 20;
    const ATTRIBUTE_HEADER: u32 = 4;
    [
        SockFilter::new(LOAD_NUMBER, 0, 0, ATTRIBUTES),
        SockFilter::new(LOAD_NUMBER_TO_INDEX, 0, 0, u32::from(ID)),
        SockFilter::new(LOAD_BYTE, 0, 0, FIND_ATTRIBUTE),
        SockFilter::new(JUMP_IF_EQUAL, 3, 0, 0),
        SockFilter::new(INDEX_IS_VALUE, 0, 0, 0),
        SockFilter::new(LOAD_INDEXED_WORD, 0, 0, ATTRIBUTE_HEADER),
        SockFilter::new(JUMP_IF_ANY_BIT, 1, 0, rate.one_in() - 1),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
        SockFilter::new(RETURN, 0, 0, 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        netlink::{
            Writer,
            message::{begin_message, end_message},
        },
        nftables::conntrack::constants::{
            IP_V4_DST, IP_V4_SRC, PROTO_DST_PORT, PROTO_NUM, PROTO_SRC_PORT, STATUS, TUPLE_IP,
            TUPLE_ORIG, TUPLE_PROTO, TUPLE_REPLY,
        },
    };

    /// A message about a connection of UDP, which has carried 60 and 120 bytes.
    fn message(kind: u8, flags: u16) -> Vec<u8> {
        let mut bytes = Vec::new();
        let kind = kind_of(NFNL_SUBSYS_CTNETLINK, kind);
        begin_message(&mut bytes, kind, flags, 0, 2, 0);
        let mut writer = Writer::new(&mut bytes);
        for (tuple, source, destination) in [
            (TUPLE_ORIG, [10, 0, 0, 9], [10, 96, 0, 1]),
            (TUPLE_REPLY, [10, 244, 1, 7], [10, 0, 0, 9]),
        ] {
            writer.nested(tuple, |tuple| {
                tuple.nested(TUPLE_IP, |addresses| {
                    addresses.bytes(IP_V4_SRC, &source);
                    addresses.bytes(IP_V4_DST, &destination);
                });
                tuple.nested(TUPLE_PROTO, |ports| {
                    ports.u8(PROTO_NUM, 17);
                    ports.bytes(PROTO_SRC_PORT, &4000_u16.to_be_bytes());
                    ports.bytes(PROTO_DST_PORT, &53_u16.to_be_bytes());
                });
            });
        }
        writer.u32(STATUS, 0);
        writer.u32(ID, 77);
        for (direction, packets, size) in [(COUNTERS_ORIG, 1_u64, 60_u64), (COUNTERS_REPLY, 2, 120)]
        {
            writer.nested(direction, |counters| {
                counters.bytes(COUNTERS_PACKETS, &packets.to_be_bytes());
                counters.bytes(COUNTERS_BYTES, &size.to_be_bytes());
            });
        }
        end_message(&mut bytes, 0);
        bytes
    }

    #[test]
    fn message_tells_what_has_happened_to_which_connection() {
        for (kind, flags, expected) in [
            (NEW, 0x600, FlowEventKind::New),
            (NEW, 0, FlowEventKind::Changed),
            (DELETE, 0, FlowEventKind::Ended),
        ] {
            let received = message(kind, flags);
            let found: Vec<FlowEvent> = events(&received).collect();
            let [event] = &found[..] else {
                panic!("{found:?}")
            };
            assert_eq!((event.kind, event.id), (expected, 77));
            assert_eq!(event.flow.server, ([10, 244, 1, 7], 4000).into());
            let traffic = event.traffic.unwrap();
            assert_eq!((traffic.bytes_sent, traffic.packets_received), (60, 2));
            for end in 0..received.len() {
                assert_eq!(events(&received[..end]).count(), 0, "cut off after {end}");
            }
        }
        assert_eq!(events(&message(GET, 0)).count(), 0);
    }

    #[test]
    fn sample_has_the_part_of_the_numbers_that_it_says() {
        let mut rate = SampleRate::ALL;
        for one_in in [1, 2, 4, 8] {
            assert_eq!(rate.one_in(), one_in);
            let contained = (0..800).filter(|id| rate.contains(*id)).count();
            assert_eq!(u32::try_from(contained), Ok(800 / one_in));
            assert!(rate.doubled().contains(one_in) || one_in == 1);
            rate = rate.halved();
        }
        for _ in 0..100 {
            rate = rate.halved();
        }
        assert!(rate.one_in() > 1_000_000);
    }
}
