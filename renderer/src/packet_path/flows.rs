//! Connections that conntrack knows. Sources: the kernel's `include/uapi/linux/netfilter/nfnetlink_conntrack.h`,
//! `nf_conntrack_common.h` and `nf_conntrack_tcp.h`.

use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, SocketAddr},
};

use contiv_model::Protocol;
use serde::Serialize;

use super::{
    PathError,
    kernel_socket::{KernelSocket, family_of, octets},
};
use crate::{
    netlink::{
        Attributes, Writer,
        message::{NFNL_SUBSYS_CTNETLINK, kind_of},
    },
    nftables::conntrack::{
        constants::{
            ASSURED, DESTINATION_TRANSLATED, FILTER, FILTER_IP_DST, FILTER_IP_SRC,
            FILTER_ORIG_FLAGS, FILTER_PROTO_DST_PORT, FILTER_PROTO_NUM, FILTER_PROTO_SRC_PORT,
            FILTER_REPLY_FLAGS, GET, IP_V4_DST, IP_V4_SRC, IP_V6_DST, IP_V6_SRC, MARK,
            PROTO_DST_PORT, PROTO_NUM, PROTO_SRC_PORT, PROTOINFO, PROTOINFO_STATE, PROTOINFO_TCP,
            SEEN_REPLY, SOURCE_TRANSLATED, STATUS, STATUS_MASK, TIMEOUT, TUPLE_IP, TUPLE_ORIG,
            TUPLE_PROTO, TUPLE_REPLY, ZONE,
        },
        endpoint,
    },
};

/// How many flows are returned. There may be a hundred thousand of one client.
pub const MAX_FLOWS: usize = 1000;

/// How many unanswered flows are returned. A flood of packets with false sources makes very many.
pub const MAX_UNANSWERED: usize = 10_000;

/// `IPCTNL_MSG_CT_NEW`, the kind of a listed flow.
pub(super) const NEW: u8 = 0;
/// The length of `struct nfgenmsg`.
pub(super) const HEADER: usize = 4;

/// A connection that conntrack knows.
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are bits of the kernel's status, each with its own meaning"
)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KnownFlow {
    /// Its protocol.
    pub protocol: Protocol,
    /// The client: the source of its first packet.
    pub client: SocketAddr,
    /// What the client connected to: the destination of its first packet.
    pub destination: SocketAddr,
    /// From where answers are expected: the backend, or `destination` if it was not translated.
    pub server: SocketAddr,
    /// To where answers are expected: the source that the server sees, which is `client` if it was not translated.
    pub seen_source: SocketAddr,
    /// An answer was seen.
    pub is_answered: bool,
    /// Both sides have spoken as the protocol demands.
    pub is_assured: bool,
    /// Its destination is translated (`IPS_DST_NAT`).
    pub is_destination_translated: bool,
    /// Its source is translated (`IPS_SRC_NAT`).
    pub is_source_translated: bool,
    /// The state of a TCP connection.
    pub tcp_state: Option<TcpState>,
    /// The kernel forgets it after so many seconds without a packet.
    pub seconds_left: Option<u32>,
    /// Its mark.
    pub mark: u32,
    /// The zone of the rules that see it; 0 is the default one, in which the agent's rules are.
    pub zone: u16,
}

/// The state of a TCP connection in conntrack: `TCP_CONNTRACK_SYN_SENT` and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TcpState {
    /// Nothing yet.
    None,
    /// A SYN of the client was seen, and no answer.
    SynSent,
    /// The server has answered it.
    SynReceived,
    /// It is established.
    Established,
    /// One side has ended.
    FinWait,
    /// The other side has confirmed it.
    CloseWait,
    /// Both sides have ended.
    LastAck,
    /// It is over.
    TimeWait,
    /// One side has reset it.
    Close,
    /// Both sides have sent a SYN.
    SynSent2,
}

impl TcpState {
    const fn of(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::None,
            1 => Self::SynSent,
            2 => Self::SynReceived,
            3 => Self::Established,
            4 => Self::FinWait,
            5 => Self::CloseWait,
            6 => Self::LastAck,
            7 => Self::TimeWait,
            8 => Self::Close,
            9 => Self::SynSent2,
            _ => return None,
        })
    }
}

impl fmt::Display for TcpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Flows that were selected.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct KnownFlows {
    /// The first [`MAX_FLOWS`] of them, in the kernel's order.
    pub flows: Vec<KnownFlow>,
    /// How many there are.
    pub count: usize,
    /// How many of them are not over: those of TCP that are end by themselves, and their ports are used again.
    pub open: usize,
}

impl KnownFlow {
    /// It is over, and only remembered for a while.
    const fn is_over(&self) -> bool {
        matches!(
            self.tcp_state,
            Some(TcpState::TimeWait | TcpState::Close | TcpState::LastAck)
        )
    }
}

impl KnownFlows {
    fn add(&mut self, flow: KnownFlow) {
        self.count += 1;
        self.open += usize::from(!flow.is_over());
        if self.flows.len() < MAX_FLOWS {
            self.flows.push(flow);
        }
    }
}

/// The addresses of a tuple for which the kernel selects flows. The unspecified address stands for all of its family; without any
/// address the kernel selects nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct TupleFilter {
    pub(super) is_reply: bool,
    pub(super) source: Option<IpAddr>,
    pub(super) destination: Option<IpAddr>,
    pub(super) source_port: Option<u16>,
    pub(super) destination_port: Option<u16>,
}

/// The translated flows of a backend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackendFlows {
    /// Those that were answered, and of TCP are not over.
    pub open: usize,
    /// Those that were answered, and are over.
    pub ended: usize,
    /// Those that were not answered so far.
    pub unanswered: usize,
}

impl BackendFlows {
    const fn add(&mut self, flow: &KnownFlow) {
        if !flow.is_answered {
            self.unanswered += 1;
        } else if flow.is_over() {
            self.ended += 1;
        } else {
            self.open += 1;
        }
    }
}

/// A translated flow that was not answered so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnansweredFlow {
    /// Its protocol.
    pub protocol: Protocol,
    /// The source of its first packet.
    pub client: SocketAddr,
    /// The destination of its first packet.
    pub destination: SocketAddr,
}

/// The translated flows that were not answered, [`MAX_UNANSWERED`] at most. Kernels before 5.15 do not know this filter, so it is
/// checked again here.
pub(super) fn unanswered(socket: &mut KernelSocket) -> Result<Vec<UnansweredFlow>, PathError> {
    let kinds = [GET, NEW].map(|kind| kind_of(NFNL_SUBSYS_CTNETLINK, kind));
    let fill = |request: &mut Writer<'_>| {
        request.u32(STATUS, DESTINATION_TRANSLATED);
        request.u32(STATUS_MASK, DESTINATION_TRANSLATED | SEEN_REPLY);
    };
    let mut found = Vec::new();
    socket.dump(kinds, &[0; HEADER], fill, |message| {
        let flow = message
            .get(HEADER..)
            .and_then(|bytes| read(Attributes(bytes)))
            .filter(|flow| flow.is_destination_translated && !flow.is_answered && flow.zone == 0);
        if let Some(flow) = flow
            && found.len() < MAX_UNANSWERED
        {
            found.push(UnansweredFlow {
                protocol: flow.protocol,
                client: flow.client,
                destination: flow.destination,
            });
        }
    })?;
    Ok(found)
}

/// Selects flows.
pub(super) fn select(
    socket: &mut KernelSocket,
    protocol: Protocol,
    filter: TupleFilter,
) -> Result<KnownFlows, PathError> {
    let mut found = KnownFlows::default();
    pass(socket, protocol, filter, |flow| found.add(flow))?;
    Ok(found)
}

/// Counts translated flows by backend.
pub(super) fn count_by_backend(
    socket: &mut KernelSocket,
    protocol: Protocol,
    filter: TupleFilter,
) -> Result<BTreeMap<SocketAddr, BackendFlows>, PathError> {
    let mut counts: BTreeMap<SocketAddr, BackendFlows> = BTreeMap::new();
    pass(socket, protocol, filter, |flow| {
        if flow.is_destination_translated {
            counts.entry(flow.server).or_default().add(&flow);
        }
    })?;
    Ok(counts)
}

/// Passes selected flows on. Kernels before 5.8 do not know the filter, so it is checked again here.
pub(super) fn pass(
    socket: &mut KernelSocket,
    protocol: Protocol,
    filter: TupleFilter,
    mut take: impl FnMut(KnownFlow),
) -> Result<(), PathError> {
    let kinds = [GET, NEW].map(|kind| kind_of(NFNL_SUBSYS_CTNETLINK, kind));
    let family = filter.source.or(filter.destination).map_or(0, family_of);
    let fill = |request: &mut Writer<'_>| write_filter(request, protocol, filter);
    socket.dump(kinds, &[family, 0, 0, 0], fill, |message| {
        let flow = message
            .get(HEADER..)
            .and_then(|bytes| read(Attributes(bytes)));
        if let Some(flow) = flow
            && flow.protocol == protocol
            && filter.matches(&flow)
        {
            take(flow);
        }
    })
}

impl TupleFilter {
    fn matches(&self, flow: &KnownFlow) -> bool {
        let (source, destination) = if self.is_reply {
            (flow.server, flow.seen_source)
        } else {
            (flow.client, flow.destination)
        };
        let is_at = |wanted: IpAddr, address: IpAddr| {
            let is_any = wanted.is_unspecified() && wanted.is_ipv4() == address.is_ipv4();
            is_any || wanted == address
        };
        self.source.is_none_or(|wanted| is_at(wanted, source.ip()))
            && self
                .destination
                .is_none_or(|wanted| is_at(wanted, destination.ip()))
            && self.source_port.is_none_or(|port| port == source.port())
            && self
                .destination_port
                .is_none_or(|port| port == destination.port())
    }
}

/// Addresses of IPv6 are left to the reader: the kernel compares them the wrong way round, and leaves out exactly the flows with
/// these addresses (`ctnetlink_filter_match_tuple()` as of Linux 6.18).
fn write_filter(request: &mut Writer<'_>, protocol: Protocol, filter: TupleFilter) {
    let (tuple, flags) = if filter.is_reply {
        (TUPLE_REPLY, FILTER_REPLY_FLAGS)
    } else {
        (TUPLE_ORIG, FILTER_ORIG_FLAGS)
    };
    let mut selected = FILTER_PROTO_NUM;
    request.nested(tuple, |tuple| {
        let [source, destination] = [filter.source, filter.destination].map(|address| {
            address.filter(|address| address.is_ipv4() && !address.is_unspecified())
        });
        if source.is_some() || destination.is_some() {
            tuple.nested(TUPLE_IP, |addresses| {
                let mut write = |address: Option<IpAddr>, kind, flag| {
                    if let Some(address) = address {
                        addresses.bytes(kind, &octets(address));
                        selected |= flag;
                    }
                };
                write(source, IP_V4_SRC, FILTER_IP_SRC);
                write(destination, IP_V4_DST, FILTER_IP_DST);
            });
        }
        tuple.nested(TUPLE_PROTO, |ports| {
            ports.u8(PROTO_NUM, protocol.number());
            let mut write = |port: Option<u16>, kind, flag| {
                if let Some(port) = port {
                    ports.bytes(kind, &port.to_be_bytes());
                    selected |= flag;
                }
            };
            write(filter.source_port, PROTO_SRC_PORT, FILTER_PROTO_SRC_PORT);
            write(
                filter.destination_port,
                PROTO_DST_PORT,
                FILTER_PROTO_DST_PORT,
            );
        });
    });
    request.nested(FILTER, |filter| {
        filter.bytes(flags, &selected.to_ne_bytes());
    });
}

/// Reads a flow; none for protocols that no service has.
pub(super) fn read(attributes: Attributes<'_>) -> Option<KnownFlow> {
    let [original, reply] = [TUPLE_ORIG, TUPLE_REPLY].map(|kind| attributes.nested(kind));
    let (original, reply) = (original?, reply?);
    let protocol = match original.nested(TUPLE_PROTO)?.get(PROTO_NUM)? {
        [6] => Protocol::Tcp,
        [17] => Protocol::Udp,
        [132] => Protocol::Sctp,
        _ => return None,
    };
    let source = |tuple| endpoint(tuple, [IP_V4_SRC, IP_V6_SRC], PROTO_SRC_PORT);
    let destination = |tuple| endpoint(tuple, [IP_V4_DST, IP_V6_DST], PROTO_DST_PORT);
    let status = attributes.u32(STATUS)?;
    let has = |bit: u32| status & bit != 0;
    let tcp_state = attributes.nested(PROTOINFO).and_then(|info| {
        info.nested(PROTOINFO_TCP)?
            .get(PROTOINFO_STATE)?
            .first()
            .copied()
    });
    let zone = attributes
        .get(ZONE)
        .and_then(|zone| zone.try_into().ok())
        .map_or(0, u16::from_be_bytes);
    Some(KnownFlow {
        protocol,
        client: source(original)?,
        destination: destination(original)?,
        server: source(reply)?,
        seen_source: destination(reply)?,
        is_answered: has(SEEN_REPLY),
        is_assured: has(ASSURED),
        is_destination_translated: has(DESTINATION_TRANSLATED),
        is_source_translated: has(SOURCE_TRANSLATED),
        tcp_state: tcp_state.and_then(TcpState::of),
        seconds_left: attributes.u32(TIMEOUT),
        mark: attributes.u32(MARK).unwrap_or(0),
        zone,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection of 10.0.0.9:4000 to 10.96.0.1:80, with answers of 10.244.1.7:8080 to `seen`.
    fn message(protocol: u8, seen: [u8; 4], status: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        let tuple = |source: ([u8; 4], u16), destination: ([u8; 4], u16)| {
            move |tuple: &mut Writer<'_>| {
                tuple.nested(TUPLE_IP, |addresses| {
                    addresses.bytes(IP_V4_SRC, &source.0);
                    addresses.bytes(IP_V4_DST, &destination.0);
                });
                tuple.nested(TUPLE_PROTO, |ports| {
                    ports.u8(PROTO_NUM, protocol);
                    ports.bytes(PROTO_SRC_PORT, &source.1.to_be_bytes());
                    ports.bytes(PROTO_DST_PORT, &destination.1.to_be_bytes());
                });
            }
        };
        writer.nested(
            TUPLE_ORIG,
            tuple(([10, 0, 0, 9], 4000), ([10, 96, 0, 1], 80)),
        );
        writer.nested(TUPLE_REPLY, tuple(([10, 244, 1, 7], 8080), (seen, 4000)));
        writer.u32(STATUS, status);
        writer.u32(TIMEOUT, 117);
        writer.u32(MARK, 0x4000);
        writer.nested(PROTOINFO, |info| {
            info.nested(PROTOINFO_TCP, |tcp| tcp.u8(PROTOINFO_STATE, 1));
        });
        bytes
    }

    #[test]
    fn flow_is_read_with_both_ends_and_status() {
        let bytes = message(
            6,
            [172, 31, 0, 1],
            DESTINATION_TRANSLATED | SOURCE_TRANSLATED,
        );
        let flow = read(Attributes(&bytes)).unwrap();
        let text = serde_json::to_value(&flow).unwrap();
        assert_eq!(
            text,
            serde_json::json!({
                "protocol": "TCP", "client": "10.0.0.9:4000", "destination": "10.96.0.1:80", "server": "10.244.1.7:8080",
                "seen_source": "172.31.0.1:4000", "is_answered": false, "is_assured": false,
                "is_destination_translated": true, "is_source_translated": true, "tcp_state": "syn-sent",
                "seconds_left": 117, "mark": 0x4000, "zone": 0,
            })
        );
    }

    #[test]
    fn flow_of_another_protocol_or_cut_short_is_left_out() {
        assert_eq!(read(Attributes(&message(1, [10, 0, 0, 9], 0))), None);
        let bytes = message(17, [10, 0, 0, 9], 0);
        for end in 0..bytes.len() {
            // Without its last attributes it is still a flow.
            let _ = read(Attributes(&bytes[..end]));
        }
        assert_eq!(read(Attributes(&bytes[..60])), None);
    }

    #[test]
    fn filter_selects_what_the_kernel_does_not() {
        let bytes = message(6, [172, 31, 0, 1], 0);
        let flow = read(Attributes(&bytes)).unwrap();
        let all = TupleFilter {
            is_reply: false,
            source: None,
            destination: None,
            source_port: None,
            destination_port: None,
        };
        let address = |text: &str| Some(text.parse().unwrap());
        for (filter, expected) in [
            (all, true),
            (
                TupleFilter {
                    source: address("10.0.0.9"),
                    ..all
                },
                true,
            ),
            (
                TupleFilter {
                    source: address("10.0.0.8"),
                    ..all
                },
                false,
            ),
            (
                TupleFilter {
                    destination: address("10.96.0.1"),
                    ..all
                },
                true,
            ),
            (
                TupleFilter {
                    destination: address("10.96.0.2"),
                    ..all
                },
                false,
            ),
            (
                TupleFilter {
                    destination: address("0.0.0.0"),
                    ..all
                },
                true,
            ),
            (
                TupleFilter {
                    destination: address("::"),
                    ..all
                },
                false,
            ),
            (
                TupleFilter {
                    source_port: Some(4000),
                    ..all
                },
                true,
            ),
            (
                TupleFilter {
                    source_port: Some(8080),
                    ..all
                },
                false,
            ),
            (
                TupleFilter {
                    destination_port: Some(80),
                    ..all
                },
                true,
            ),
            (
                TupleFilter {
                    destination_port: Some(81),
                    ..all
                },
                false,
            ),
            (
                TupleFilter {
                    is_reply: true,
                    source_port: Some(8080),
                    ..all
                },
                true,
            ),
            (
                TupleFilter {
                    is_reply: true,
                    destination: address("172.31.0.1"),
                    ..all
                },
                true,
            ),
            (
                TupleFilter {
                    is_reply: true,
                    destination: address("10.0.0.9"),
                    ..all
                },
                false,
            ),
        ] {
            assert_eq!(filter.matches(&flow), expected, "{filter:?}");
        }
    }

    #[test]
    fn flows_of_a_backend_that_are_over_are_not_open() {
        let mut counts = BackendFlows::default();
        let bytes = message(6, [172, 31, 0, 1], SEEN_REPLY);
        let flow = read(Attributes(&bytes)).unwrap();
        for (tcp_state, is_answered) in [
            (Some(TcpState::Established), true),
            (Some(TcpState::FinWait), true),
            (None, true),
            (Some(TcpState::TimeWait), true),
            (Some(TcpState::Close), true),
            (Some(TcpState::SynSent), false),
            (None, false),
        ] {
            counts.add(&KnownFlow {
                is_answered,
                tcp_state,
                ..flow.clone()
            });
        }
        let expected = BackendFlows {
            open: 3,
            ended: 2,
            unanswered: 2,
        };
        assert_eq!(counts, expected);
    }

    #[test]
    fn more_flows_than_the_bound_are_counted() {
        let bytes = message(6, [172, 31, 0, 1], 0);
        let flow = read(Attributes(&bytes)).unwrap();
        let mut flows = KnownFlows::default();
        for _ in 0..MAX_FLOWS + 5 {
            flows.add(flow.clone());
        }
        flows.add(KnownFlow {
            tcp_state: Some(TcpState::TimeWait),
            ..flow
        });
        assert_eq!((flows.flows.len(), flows.count), (MAX_FLOWS, MAX_FLOWS + 6));
        assert_eq!(flows.open, MAX_FLOWS + 5);
    }
}
