//! Matches and targets of iptables, as iptables-nft writes them: the kernel's structures of `include/uapi/linux/netfilter/xt_*.h`.
//!
//! Numbers are in the order of the machine, unless a structure says otherwise.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::nftables::netlink::{Attributes, constants::expr};

/// The fields of a structure.
#[derive(Debug, Clone, Copy)]
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(self, offset: usize) -> Option<[u8; N]> {
        self.0.get(offset..)?.first_chunk().copied()
    }

    fn u8(self, offset: usize) -> Option<u8> {
        self.0.get(offset).copied()
    }

    fn u16(self, offset: usize) -> Option<u16> {
        self.array(offset).map(u16::from_ne_bytes)
    }

    fn be16(self, offset: usize) -> Option<u16> {
        self.array(offset).map(u16::from_be_bytes)
    }

    fn u32(self, offset: usize) -> Option<u32> {
        self.array(offset).map(u32::from_ne_bytes)
    }

    fn text(self) -> Option<String> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        std::str::from_utf8(&self.0[..end]).ok().map(str::to_owned)
    }
}

/// An inclusive range of ports, and whether it is inverted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::packet_path) struct PortRange {
    pub(in crate::packet_path) low: u16,
    pub(in crate::packet_path) high: u16,
    pub(in crate::packet_path) is_inverted: bool,
}

impl PortRange {
    fn read(fields: Fields<'_>, offset: usize, is_inverted: bool) -> Option<Self> {
        Some(Self {
            low: fields.u16(offset)?,
            high: fields.u16(offset + 2)?,
            is_inverted,
        })
    }

    pub(in crate::packet_path) fn contains(&self, port: u16) -> bool {
        (self.low..=self.high).contains(&port) != self.is_inverted
    }
}

/// A union of an IPv4 and an IPv6 address: 16 bytes.
pub(in crate::packet_path) type AddressBytes = [u8; 16];

/// One of the addresses of a connection that `conntrack` compares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::packet_path) struct TupleAddress {
    pub(in crate::packet_path) address: AddressBytes,
    pub(in crate::packet_path) mask: AddressBytes,
}

/// The match `conntrack`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::packet_path) struct ConntrackMatch {
    /// The conditions that it has: `XT_CONNTRACK_*`.
    pub(in crate::packet_path) flags: u16,
    /// Those that are inverted.
    pub(in crate::packet_path) inverted: u16,
    pub(in crate::packet_path) states: u16,
    pub(in crate::packet_path) statuses: u16,
    pub(in crate::packet_path) protocol: u16,
    /// Source and destination of the original direction, then of the reply.
    pub(in crate::packet_path) addresses: [TupleAddress; 4],
    /// Ports of the same, from and to.
    pub(in crate::packet_path) ports: [(u16, u16); 4],
}

/// The bits of [`ConntrackMatch::flags`].
pub(in crate::packet_path) mod conntrack_flag {
    pub(in crate::packet_path) const STATE: u16 = 1 << 0;
    pub(in crate::packet_path) const PROTOCOL: u16 = 1 << 1;
    /// The first of four, in the order of the addresses.
    pub(in crate::packet_path) const FIRST_ADDRESS: u16 = 1 << 2;
    pub(in crate::packet_path) const STATUS: u16 = 1 << 6;
    pub(in crate::packet_path) const EXPIRES: u16 = 1 << 7;
    /// The first of four, in the order of the addresses.
    pub(in crate::packet_path) const FIRST_PORT: u16 = 1 << 8;
    pub(in crate::packet_path) const DIRECTION: u16 = 1 << 12;
}

/// The match `addrtype`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::packet_path) struct AddressTypes {
    /// The kinds of the source, a bit each; none for any.
    pub(in crate::packet_path) sources: u16,
    pub(in crate::packet_path) destinations: u16,
    pub(in crate::packet_path) is_source_inverted: bool,
    pub(in crate::packet_path) is_destination_inverted: bool,
    /// Only addresses of the interface of the packet count.
    pub(in crate::packet_path) is_of_interface: bool,
}

/// A value under a mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::packet_path) struct MarkMatch {
    pub(in crate::packet_path) mark: u32,
    pub(in crate::packet_path) mask: u32,
    pub(in crate::packet_path) is_inverted: bool,
}

/// The ends of a packet that `multiport` compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::packet_path) enum PortChoice {
    Source,
    Destination,
    Either,
}

/// A list of clients, and what the match `recent` does with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::packet_path) struct RecentList {
    pub(in crate::packet_path) name: String,
    /// It adds the client; else it looks for it.
    pub(in crate::packet_path) adds: bool,
    /// Only clients of so many seconds are found.
    pub(in crate::packet_path) seconds: u32,
}

/// The match `set`: what of a packet is looked for in a set of `ipset`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::packet_path) struct IpSetMatch {
    /// The number of the set in this network namespace.
    pub(in crate::packet_path) index: u16,
    /// How many parts of a packet it names.
    pub(in crate::packet_path) dimensions: u8,
    /// A bit for each of them: it is that of the source.
    pub(in crate::packet_path) sources: u8,
    pub(in crate::packet_path) is_inverted: bool,
}

/// A match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::packet_path) enum XtMatch {
    Comment(String),
    Conntrack(Box<ConntrackMatch>),
    State(u32),
    /// TCP, UDP or SCTP: source ports, destination ports, and for TCP mask and value of the flags.
    Ports {
        source: PortRange,
        destination: PortRange,
        flags: Option<(u8, u8, bool)>,
    },
    Multiport {
        choice: PortChoice,
        ranges: Vec<(u16, u16)>,
        is_inverted: bool,
    },
    AddressTypes(AddressTypes),
    Mark(MarkMatch),
    ConnectionMark(MarkMatch),
    AddressRanges {
        source: Option<(AddressBytes, AddressBytes, bool)>,
        destination: Option<(AddressBytes, AddressBytes, bool)>,
    },
    PacketType {
        kind: u32,
        is_inverted: bool,
    },
    /// The match `rpfilter`: whether answers would leave by the interface by which the packet came in.
    ReversePath {
        /// By any interface.
        is_loose: bool,
        /// Addresses of this node may come in.
        accepts_local: bool,
        /// The mark of the packet counts.
        has_mark: bool,
        is_inverted: bool,
    },
    /// The match `statistic` with a probability: some packets.
    Random,
    /// The match `recent`, for sources.
    Recent(RecentList),
    /// The match `set`.
    Set(IpSetMatch),
    /// ICMP: the type, and the least and the greatest code.
    Icmp {
        kind: u8,
        codes: (u8, u8),
        is_inverted: bool,
    },
    /// Only packets with a socket of this node, which `owner` looks at.
    Owner,
    /// True for each packet: it only counts.
    Always,
    /// Never true for packets of connections.
    Never,
    /// What cannot be evaluated, by name.
    Unknown(String),
}

impl XtMatch {
    /// Decodes a match; none without a name.
    pub(in crate::packet_path) fn decode(attributes: Attributes<'_>) -> Option<Self> {
        let name = attributes.text(expr::TARGET_NAME)?;
        let revision = attributes.u32(expr::TARGET_REVISION).unwrap_or_default();
        let fields = Fields(attributes.get(expr::TARGET_INFO).unwrap_or_default());
        let decoded = match (name, revision) {
            ("comment", _) => fields.text().map(Self::Comment),
            ("conntrack", 1..=3) => conntrack(fields, revision),
            ("state", 0) => fields.u32(0).map(Self::State),
            ("tcp", 0) => tcp(fields),
            ("udp", 0) => udp(fields),
            ("sctp", 0) => sctp(fields),
            ("multiport", 1) => multiport(fields),
            ("addrtype", 0 | 1) => address_types(fields, revision).map(Self::AddressTypes),
            ("mark", 1) => mark(fields).map(Self::Mark),
            ("connmark", 1) => mark(fields).map(Self::ConnectionMark),
            ("iprange", 1) => address_ranges(fields),
            ("pkttype", 0) => packet_type(fields),
            ("rpfilter", 0) => reverse_path(fields),
            ("statistic", 0) => statistic(fields),
            ("recent", 0 | 1) => recent(fields),
            ("owner", _) => Some(Self::Owner),
            ("nfacct", _) => Some(Self::Always),
            ("set", 1..=4) => ip_set(fields, revision).map(Self::Set),
            ("icmp" | "icmp6", _) => icmp(fields),
            ("esp" | "ah" | "dccp" | "ipcomp", _) => Some(Self::Never),
            _ => None,
        };
        Some(decoded.unwrap_or_else(|| Self::Unknown(name.to_owned())))
    }
}

fn conntrack(fields: Fields<'_>, revision: u32) -> Option<XtMatch> {
    let address = |number: usize| {
        Some(TupleAddress {
            address: fields.array(number * 32)?,
            mask: fields.array(number * 32 + 16)?,
        })
    };
    // The last revision has ranges of ports, and the order of the machine.
    let port = |number: usize| {
        let offset = 138 + number * 2;
        if revision == 3 {
            Some((fields.u16(offset)?, fields.u16(154 + number * 2)?))
        } else {
            fields.be16(offset).map(|port| (port, port))
        }
    };
    let (states, statuses) = if revision == 1 {
        (u16::from(fields.u8(150)?), u16::from(fields.u8(151)?))
    } else {
        (fields.u16(150)?, fields.u16(152)?)
    };
    Some(XtMatch::Conntrack(Box::new(ConntrackMatch {
        flags: fields.u16(146)?,
        inverted: fields.u16(148)?,
        states,
        statuses,
        protocol: fields.u16(136)?,
        addresses: [address(0)?, address(1)?, address(2)?, address(3)?],
        ports: [port(0)?, port(1)?, port(2)?, port(3)?],
    })))
}

/// Bits of the byte of inversions of `tcp` and `udp`.
const INVERTED_SOURCE: u8 = 1;
const INVERTED_DESTINATION: u8 = 2;
const INVERTED_FLAGS: u8 = 4;

fn tcp(fields: Fields<'_>) -> Option<XtMatch> {
    let inverted = fields.u8(11)?;
    let (option, mask, value) = (fields.u8(8)?, fields.u8(9)?, fields.u8(10)?);
    // Which options a packet has is not known.
    (option == 0).then_some(())?;
    Some(XtMatch::Ports {
        source: PortRange::read(fields, 0, inverted & INVERTED_SOURCE != 0)?,
        destination: PortRange::read(fields, 4, inverted & INVERTED_DESTINATION != 0)?,
        flags: Some((mask, value, inverted & INVERTED_FLAGS != 0)),
    })
}

fn udp(fields: Fields<'_>) -> Option<XtMatch> {
    let inverted = fields.u8(8)?;
    Some(XtMatch::Ports {
        source: PortRange::read(fields, 0, inverted & INVERTED_SOURCE != 0)?,
        destination: PortRange::read(fields, 4, inverted & INVERTED_DESTINATION != 0)?,
        flags: None,
    })
}

/// Its destination ports come first, and a map of chunks, which are not evaluated, before the flags.
fn sctp(fields: Fields<'_>) -> Option<XtMatch> {
    const SOURCE: u32 = 1;
    const DESTINATION: u32 = 2;
    const CHUNKS: u32 = 4;
    let (flags, inverted) = (fields.u32(284)?, fields.u32(288)?);
    (flags & CHUNKS == 0).then_some(())?;
    let ports = |offset, flag| {
        if flags & flag == 0 {
            return Some(PortRange {
                low: 0,
                high: u16::MAX,
                is_inverted: false,
            });
        }
        PortRange::read(fields, offset, inverted & flag != 0)
    };
    Some(XtMatch::Ports {
        source: ports(4, SOURCE)?,
        destination: ports(0, DESTINATION)?,
        flags: None,
    })
}

fn multiport(fields: Fields<'_>) -> Option<XtMatch> {
    const PORTS: usize = 15;
    let choice = match fields.u8(0)? {
        0 => PortChoice::Source,
        1 => PortChoice::Destination,
        2 => PortChoice::Either,
        _ => return None,
    };
    let count = usize::from(fields.u8(1)?).min(PORTS);
    let port = |number: usize| fields.u16(2 + 2 * number);
    let mut ranges = Vec::new();
    let mut number = 0;
    while number < count {
        let low = port(number)?;
        // The next port is the end of a range that begins with this one.
        let is_range = fields.u8(32 + number)? != 0 && number + 1 < count;
        number += usize::from(is_range);
        ranges.push((low, port(number)?));
        number += 1;
    }
    Some(XtMatch::Multiport {
        choice,
        ranges,
        is_inverted: fields.u8(47)? != 0,
    })
}

fn address_types(fields: Fields<'_>, revision: u32) -> Option<AddressTypes> {
    let (sources, destinations) = (fields.u16(0)?, fields.u16(2)?);
    let flags = fields.u32(4)?;
    Some(if revision == 0 {
        AddressTypes {
            sources,
            destinations,
            is_source_inverted: flags != 0,
            is_destination_inverted: fields.u32(8)? != 0,
            is_of_interface: false,
        }
    } else {
        let has = |bit: u32| flags & 1 << bit != 0;
        AddressTypes {
            sources,
            destinations,
            is_source_inverted: has(0),
            is_destination_inverted: has(1),
            is_of_interface: has(2) || has(3),
        }
    })
}

fn mark(fields: Fields<'_>) -> Option<MarkMatch> {
    Some(MarkMatch {
        mark: fields.u32(0)?,
        mask: fields.u32(4)?,
        is_inverted: fields.u8(8)? != 0,
    })
}

fn address_ranges(fields: Fields<'_>) -> Option<XtMatch> {
    let flags = fields.u8(64)?;
    let range = |offset, flag: u8| {
        let ends = (fields.array(offset)?, fields.array(offset + 16)?);
        Some((flags & flag != 0).then_some((ends.0, ends.1, flags & flag << 4 != 0)))
    };
    Some(XtMatch::AddressRanges {
        source: range(0, 1)?,
        destination: range(32, 2)?,
    })
}

fn reverse_path(fields: Fields<'_>) -> Option<XtMatch> {
    let flags = fields.u8(0)?;
    let has = |bit: u8| flags & 1 << bit != 0;
    Some(XtMatch::ReversePath {
        is_loose: has(0),
        has_mark: has(1),
        accepts_local: has(2),
        is_inverted: has(3),
    })
}

/// Every n-th packet cannot be evaluated.
fn statistic(fields: Fields<'_>) -> Option<XtMatch> {
    const RANDOM: u16 = 0;
    (fields.u16(0)? == RANDOM).then_some(XtMatch::Random)
}

/// A list of sources without a count of packets; others cannot be evaluated.
fn recent(fields: Fields<'_>) -> Option<XtMatch> {
    const CHECK: u8 = 1 << 0;
    const SET: u8 = 1 << 1;
    const UPDATE: u8 = 1 << 2;
    const NAME: usize = 10;
    const SIDE: usize = 210;
    let (seconds, hits) = (fields.u32(0)?, fields.u32(4)?);
    let (mode, inverted) = (fields.u8(8)?, fields.u8(9)?);
    let is_simple = hits == 0 && inverted == 0 && mode & (CHECK | SET | UPDATE) != 0;
    (is_simple && fields.u8(SIDE)? == 0).then_some(())?;
    Some(XtMatch::Recent(RecentList {
        name: Fields(fields.0.get(NAME..SIDE)?).text()?,
        adds: mode & SET != 0,
        seconds,
    }))
}

/// Type, range of codes, and whether both are inverted: `struct ipt_icmp`. The type 255 of IPv4 stands for all.
fn icmp(fields: Fields<'_>) -> Option<XtMatch> {
    Some(XtMatch::Icmp {
        kind: fields.u8(0)?,
        codes: (fields.u8(1)?, fields.u8(2)?),
        is_inverted: fields.u8(3)? & 1 != 0,
    })
}

/// A set without conditions on its counters; others cannot be evaluated.
fn ip_set(fields: Fields<'_>, revision: u32) -> Option<IpSetMatch> {
    const INVERTED: u8 = 1;
    const FLAGS: usize = 40;
    // The operators of the two counters; 0 is none.
    let operators = match revision {
        3 => [fields.u8(8)?, fields.u8(24)?],
        4 => [fields.u8(16)?, fields.u8(32)?],
        _ => [0, 0],
    };
    let has_options = revision >= 3 && fields.u32(FLAGS)? != 0;
    (operators == [0, 0] && !has_options).then_some(())?;
    let flags = fields.u8(3)?;
    Some(IpSetMatch {
        index: fields.u16(0)?,
        dimensions: fields.u8(2)?,
        sources: flags >> 1,
        is_inverted: flags & INVERTED != 0,
    })
}

fn packet_type(fields: Fields<'_>) -> Option<XtMatch> {
    Some(XtMatch::PacketType {
        kind: fields.u32(0)?,
        is_inverted: fields.u32(4)? != 0,
    })
}

/// The translation that a target asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::packet_path) struct NatRange {
    /// The least and the greatest address; none if only ports change.
    pub(in crate::packet_path) addresses: Option<(AddressBytes, AddressBytes)>,
    /// The least and the greatest port.
    pub(in crate::packet_path) ports: Option<(u16, u16)>,
}

/// What `CONNMARK` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::packet_path) enum MarkTransfer {
    SetConnection,
    ToConnection,
    ToPacket,
}

/// A target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::packet_path) enum XtTarget {
    Reject,
    DestinationNat(NatRange),
    SourceNat(NatRange),
    Masquerade,
    Redirect(NatRange),
    Mark {
        mark: u32,
        mask: u32,
    },
    ConnectionMark {
        transfer: MarkTransfer,
        value: u32,
        connection_mask: u32,
        packet_mask: u32,
    },
    Notrack,
    /// Connections of another zone are others.
    Zone,
    Queue {
        is_bypassed: bool,
    },
    Divert {
        name: &'static str,
        is_for_tcp_only: bool,
    },
    /// It lowers the size of the segments of TCP that the other side may send.
    ClampSegments,
    /// Nothing that concerns the way of a packet.
    Harmless,
    /// What cannot be evaluated, by name.
    Unknown(String),
}

impl XtTarget {
    /// Decodes a target; none without a name.
    pub(in crate::packet_path) fn decode(attributes: Attributes<'_>) -> Option<Self> {
        let name = attributes.text(expr::TARGET_NAME)?;
        let revision = attributes.u32(expr::TARGET_REVISION).unwrap_or_default();
        let bytes = attributes.get(expr::TARGET_INFO).unwrap_or_default();
        let fields = Fields(bytes);
        let range = || nat_range(fields, bytes.len());
        let decoded = match (name, revision) {
            ("REJECT", _) => Some(Self::Reject),
            ("DNAT", _) => range().map(Self::DestinationNat),
            ("SNAT", _) => range().map(Self::SourceNat),
            ("MASQUERADE", _) => Some(Self::Masquerade),
            ("REDIRECT", _) => range().map(Self::Redirect),
            ("MARK", 2) => fields
                .u32(0)
                .zip(fields.u32(4))
                .map(|(mark, mask)| Self::Mark { mark, mask }),
            ("CONNMARK", 1 | 2) => connection_mark(fields, revision),
            ("NOTRACK", _) => Some(Self::Notrack),
            ("CT", _) => connection_template(fields),
            ("NFQUEUE", _) => Some(Self::Queue {
                // The third revision has flags, the second a number.
                is_bypassed: revision >= 2 && fields.u16(4).is_some_and(|flags| flags & 1 != 0),
            }),
            ("TPROXY", _) => Some(Self::Divert {
                name: "TPROXY",
                is_for_tcp_only: false,
            }),
            ("SYNPROXY", _) => Some(Self::Divert {
                name: "SYNPROXY",
                is_for_tcp_only: true,
            }),
            ("TCPMSS", _) => Some(Self::ClampSegments),
            (
                "LOG" | "NFLOG" | "ULOG" | "CHECKSUM" | "TRACE" | "TEE" | "CLASSIFY" | "DSCP"
                | "TOS" | "TTL" | "HL" | "SECMARK" | "CONNSECMARK" | "AUDIT" | "LED" | "IDLETIMER"
                | "RATEEST" | "SET" | "TCPOPTSTRIP" | "ECN",
                _,
            ) => Some(Self::Harmless),
            _ => None,
        };
        Some(decoded.unwrap_or_else(|| Self::Unknown(name.to_owned())))
    }
}

/// The length of `nf_nat_ipv4_multi_range_compat`, padded to eight. `nf_nat_range` has 40 bytes, and `nf_nat_range2` two more.
const IPV4_RANGE_BYTES: usize = 24;

fn nat_range(fields: Fields<'_>, len: usize) -> Option<NatRange> {
    const HAS_ADDRESS: u32 = 1 << 0;
    const HAS_PORT: u32 = 1 << 1;
    /// Ports are shifted by the offset of the packet's from another.
    const PORT_OFFSET: u32 = 1 << 5;
    const NETMAP: u32 = 1 << 6;
    let (flags, addresses, ports) = if len <= IPV4_RANGE_BYTES {
        let v4 = |offset| {
            let mut bytes = AddressBytes::default();
            bytes[..4].copy_from_slice(&fields.array::<4>(offset)?);
            Some(bytes)
        };
        let ports = (fields.be16(16)?, fields.be16(18)?);
        (fields.u32(4)?, (v4(8)?, v4(12)?), ports)
    } else {
        let ports = (fields.be16(36)?, fields.be16(38)?);
        (fields.u32(0)?, (fields.array(4)?, fields.array(20)?), ports)
    };
    (flags & (PORT_OFFSET | NETMAP) == 0).then_some(())?;
    Some(NatRange {
        addresses: (flags & HAS_ADDRESS != 0).then_some(addresses),
        ports: (flags & HAS_PORT != 0).then_some(ports),
    })
}

fn connection_mark(fields: Fields<'_>, revision: u32) -> Option<XtTarget> {
    let mode = if revision == 2 {
        // The second revision shifts the mark too.
        (fields.u8(13)? == 0).then_some(())?;
        fields.u8(14)?
    } else {
        fields.u8(12)?
    };
    Some(XtTarget::ConnectionMark {
        transfer: match mode {
            0 => MarkTransfer::SetConnection,
            1 => MarkTransfer::ToConnection,
            2 => MarkTransfer::ToPacket,
            _ => return None,
        },
        value: fields.u32(0)?,
        connection_mask: fields.u32(4)?,
        packet_mask: fields.u32(8)?,
    })
}

/// `CT`: a helper or a timeout does not concern the way of a packet.
fn connection_template(fields: Fields<'_>) -> Option<XtTarget> {
    const NOTRACK: u16 = 3;
    const ZONE_OF_MARK: u16 = 1 << 4;
    let (flags, zone) = (fields.u16(0)?, fields.u16(2)?);
    Some(if flags & NOTRACK != 0 {
        XtTarget::Notrack
    } else if zone != 0 || flags & ZONE_OF_MARK != 0 {
        XtTarget::Zone
    } else {
        XtTarget::Harmless
    })
}

/// The address in a union of both families, of the family of another address.
pub(in crate::packet_path) fn address_like(bytes: AddressBytes, other: IpAddr) -> IpAddr {
    match other {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3])),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from(bytes)),
    }
}
