//! Tracked connections: the parts of `net/netfilter/nf_conntrack_netlink.c` that the search for stale flows uses.

use std::net::{IpAddr, SocketAddr};

use super::{
    attributes::{Attributes, Writer},
    errno::{Errno, Result, refuse},
    message::{self, Frame, Message},
    uapi::{NFPROTO_IPV4, NFPROTO_IPV6, NLM_F_DUMP, NLM_F_MULTI, SUBSYS_CTNETLINK},
};

const NEW: u8 = 0;
const GET: u8 = 1;
const DELETE: u8 = 2;

const TUPLE_ORIG: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const STATUS: u16 = 3;
const ID: u16 = 12;
const FILTER: u16 = 25;
const STATUS_MASK: u16 = 26;
const TUPLE_IP: u16 = 1;
const TUPLE_PROTO: u16 = 2;
const V4: [u16; 2] = [1, 2];
const V6: [u16; 2] = [3, 4];
const PROTO_NUM: u16 = 1;
const PROTO_PORTS: [u16; 2] = [2, 3];
const FILTER_ORIG_FLAGS: u16 = 1;
const F_PROTO_NUM: u32 = 1 << 3;
/// The number of connections in a datagram of a dump.
const PER_PIECE: usize = 64;

/// Bits of [`Connection::status`].
pub mod status {
    /// There was a packet in the other direction: `IPS_SEEN_REPLY`.
    pub const SEEN_REPLY: u32 = 1 << 1;
    /// Its first packet has passed all hooks: `IPS_CONFIRMED`.
    pub const CONFIRMED: u32 = 1 << 3;
    /// Its source is translated: `IPS_SRC_NAT`.
    pub const SRC_NAT: u32 = 1 << 4;
    /// Its destination is translated: `IPS_DST_NAT`.
    pub const DST_NAT: u32 = 1 << 5;
}

/// A connection, or a flow of datagrams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// The number of the IP protocol.
    pub protocol: u8,
    /// The sender of the first packet.
    pub client: SocketAddr,
    /// The original destination of the first packet.
    pub destination: SocketAddr,
    /// The source of replies, after destination NAT.
    pub server: SocketAddr,
    /// The destination of replies: the client, or an address of the node if the source is masqueraded.
    pub source: SocketAddr,
    /// Bits of [`status`].
    pub status: u32,
    /// Distinguishes it from later connections with the same addresses.
    pub id: u32,
}

impl Connection {
    /// Whether the server has replied.
    pub const fn was_answered(&self) -> bool {
        self.status & status::SEEN_REPLY != 0
    }

    fn family(&self) -> u8 {
        if self.client.is_ipv4() {
            NFPROTO_IPV4
        } else {
            NFPROTO_IPV6
        }
    }

    fn original(&self) -> [SocketAddr; 2] {
        [self.client, self.destination]
    }

    fn write(&self, out: &mut Writer) {
        out.nested(TUPLE_ORIG, |out| {
            write_tuple(self.protocol, self.original(), out);
        });
        out.nested(TUPLE_REPLY, |out| {
            write_tuple(self.protocol, [self.server, self.source], out);
        });
        out.u32(STATUS, self.status);
        out.u32(ID, self.id);
    }
}

fn write_tuple(protocol: u8, ends: [SocketAddr; 2], out: &mut Writer) {
    out.nested(TUPLE_IP, |out| {
        for (end, (v4, v6)) in ends.iter().zip(V4.into_iter().zip(V6)) {
            match end.ip() {
                IpAddr::V4(address) => out.bytes(v4, &address.octets()),
                IpAddr::V6(address) => out.bytes(v6, &address.octets()),
            }
        }
    });
    out.nested(TUPLE_PROTO, |out| {
        out.u8(PROTO_NUM, protocol);
        for (end, kind) in ends.iter().zip(PROTO_PORTS) {
            out.bytes(kind, &end.port().to_be_bytes());
        }
    });
}

fn read_tuple(tuple: Attributes<'_>) -> Option<(u8, [SocketAddr; 2])> {
    let (addresses, ports) = (tuple.nested(TUPLE_IP)?, tuple.nested(TUPLE_PROTO)?);
    let end = |at: usize| {
        let v4 = addresses
            .get(V4[at])
            .and_then(|found| <[u8; 4]>::try_from(found.payload).ok());
        let v6 = addresses
            .get(V6[at])
            .and_then(|found| <[u8; 16]>::try_from(found.payload).ok());
        let address = v4.map(IpAddr::from).or_else(|| v6.map(IpAddr::from))?;
        let port = <[u8; 2]>::try_from(ports.get(PROTO_PORTS[at])?.payload).ok()?;
        Some(SocketAddr::new(address, u16::from_be_bytes(port)))
    };
    Some((ports.get(PROTO_NUM)?.u8().ok()?, [end(0)?, end(1)?]))
}

/// The answer to a message about connections: datagrams; none if an acknowledgement is the only answer.
pub(super) fn answer(
    connections: &mut Vec<Connection>,
    message: &Message<'_>,
    port: u32,
) -> Result<Vec<Vec<u8>>> {
    match message.kind_in_subsystem() {
        GET if message.flags & NLM_F_DUMP == NLM_F_DUMP => dump(connections, message, port),
        DELETE => delete(connections, message).map(|()| Vec::new()),
        _ => refuse(Errno::EOPNOTSUPP),
    }
}

fn dump(connections: &[Connection], message: &Message<'_>, port: u32) -> Result<Vec<Vec<u8>>> {
    let attributes = message.attributes();
    let protocol = attributes
        .nested(TUPLE_ORIG)
        .and_then(|tuple| tuple.nested(TUPLE_PROTO));
    let protocol = protocol
        .and_then(|ports| ports.get(PROTO_NUM))
        .and_then(|number| number.u8().ok());
    let flags = attributes
        .nested(FILTER)
        .and_then(|filter| filter.get(FILTER_ORIG_FLAGS));
    // These flags are in host byte order.
    let flags = flags
        .and_then(|flags| flags.payload.first_chunk().copied())
        .map_or(0, u32::from_ne_bytes);
    let protocol = protocol.filter(|_| flags & F_PROTO_NUM != 0);
    let status = attributes.u32(STATUS)?.unwrap_or_default();
    let mask = attributes.u32(STATUS_MASK)?.unwrap_or_default();
    let is_match = |connection: &&Connection| {
        connection.family() == message.family()
            && protocol.is_none_or(|protocol| protocol == connection.protocol)
            && connection.status & mask == status & mask
    };
    let matching: Vec<&Connection> = connections.iter().filter(is_match).collect();
    let frame = |family| Frame {
        subsystem: SUBSYS_CTNETLINK,
        kind: NEW,
        flags: NLM_F_MULTI,
        sequence: message.sequence,
        port,
        family,
        resource: 0,
    };
    let piece = |chunk: &[&Connection]| {
        let messages = chunk
            .iter()
            .map(|one| frame(one.family()).write(|out| one.write(out)));
        messages.collect::<Vec<_>>().concat()
    };
    let mut pieces: Vec<Vec<u8>> = matching.chunks(PER_PIECE).map(piece).collect();
    pieces.push(message::done(NLM_F_MULTI, message.sequence, port));
    Ok(pieces)
}

fn delete(connections: &mut Vec<Connection>, message: &Message<'_>) -> Result<()> {
    let attributes = message.attributes();
    let Some(tuple) = attributes.nested(TUPLE_ORIG).and_then(read_tuple) else {
        return refuse(Errno::EINVAL);
    };
    let id = attributes.u32(ID)?;
    let is_it = |connection: &Connection| {
        (connection.protocol, connection.original()) == tuple
            && id.is_none_or(|id| id == connection.id)
    };
    match connections.iter().position(is_it) {
        Some(at) => {
            connections.remove(at);
            Ok(())
        }
        None => refuse(Errno::ENOENT),
    }
}
