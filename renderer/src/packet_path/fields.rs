//! What expressions read: of the packet, its connection, and the routes of its addresses.

use contiv_model::InterfaceName;

use super::{
    AddressKind, Hook, Network, PathError, Route, RouteQuery,
    lookups::RuleLookups,
    registers::Bits,
    state::{PacketState, Tracking, address_bytes},
};
use crate::nftables::netlink::constants::{NFPROTO_IPV4, NFPROTO_IPV6, expr};

/// The length of the name of an interface: `IFNAMSIZ`.
const INTERFACE_NAME_BYTES: usize = 16;
/// The name of the interface of packets that this node sends to itself.
pub(super) const LOOPBACK: &str = "lo";
/// The length of a value that is unknown, and whose length is too.
const UNKNOWN_BYTES: usize = 16;

/// A name of an interface, padded with zeros; empty without one.
fn name(interface: Option<&InterfaceName>) -> Bits {
    let mut name = interface.map_or_else(Vec::new, |name| name.0.as_bytes().to_vec());
    name.resize(INTERFACE_NAME_BYTES, 0);
    Bits::known(&name)
}

fn index(interface: Option<&InterfaceName>, lookups: &mut dyn RuleLookups) -> Bits {
    let Some(interface) = interface else {
        return Bits::known(&0_u32.to_ne_bytes());
    };
    match lookups.interface_index(interface) {
        Some(index) => Bits::known(&index.to_ne_bytes()),
        None => Bits::unknown(4, "the number of an interface"),
    }
}

/// A field of the packet's state in the kernel; none if the packet has none, and the rule does not match.
pub(super) fn meta(
    key: u32,
    hook: Hook,
    state: &PacketState,
    lookups: &mut dyn RuleLookups,
) -> Option<Bits> {
    let family = if state.is_v4() {
        NFPROTO_IPV4
    } else {
        NFPROTO_IPV6
    };
    // At these hooks the other interface does not exist yet, or no longer.
    let input = state.input.as_ref();
    let output = state
        .output
        .as_ref()
        .filter(|_| [Hook::Forward, Hook::Output, Hook::Postrouting, Hook::Egress].contains(&hook));
    Some(match key {
        expr::META_PROTOCOL => Bits::known(&state.ethertype().to_be_bytes()),
        expr::META_MARK => Bits::number(state.mark, state.unknown_mark, "meta mark"),
        expr::META_IIF => index(input, lookups),
        expr::META_OIF => index(output, lookups),
        expr::META_IIFNAME => name(input),
        expr::META_OIFNAME => name(output),
        expr::META_IIFTYPE => interface_type(input?),
        expr::META_OIFTYPE => interface_type(output?),
        // Only packets that a process of this node sends have a socket.
        expr::META_SKUID | expr::META_SKGID if !state.is_sent_here => return None,
        expr::META_SKUID => Bits::unknown(4, "meta skuid"),
        expr::META_SKGID => Bits::unknown(4, "meta skgid"),
        expr::META_NFPROTO => Bits::known(&[family]),
        expr::META_L4PROTO => Bits::known(&[state.protocol_number()]),
        expr::META_PRIORITY => match state.priority {
            Some(priority) => Bits::known(&priority),
            None => Bits::unknown(UNKNOWN_BYTES, &meta_name(key)),
        },
        // The packet is for this machine, `PACKET_HOST`, and not traced.
        expr::META_PKTTYPE | expr::META_NFTRACE => Bits::known(&[0]),
        _ => Bits::unknown(UNKNOWN_BYTES, &meta_name(key)),
    })
}

/// `ARPHRD_LOOPBACK`; other interfaces have many types.
fn interface_type(interface: &InterfaceName) -> Bits {
    const LOOPBACK_TYPE: u16 = 772;
    if &*interface.0 == LOOPBACK {
        Bits::known(&LOOPBACK_TYPE.to_ne_bytes())
    } else {
        Bits::unknown(2, "the type of an interface")
    }
}

fn meta_name(key: u32) -> String {
    let names = [
        (0, "length"),
        (expr::META_PRIORITY, "priority"),
        (13, "rtclassid"),
        (14, "secmark"),
        (17, "ibrname"),
        (18, "obrname"),
        (20, "cpu"),
        (21, "iifgroup"),
        (22, "oifgroup"),
        (23, "cgroup"),
        (24, "random"),
        (25, "ipsec"),
        (26, "iifkind"),
        (27, "oifkind"),
        (30, "time"),
        (31, "day"),
        (32, "hour"),
        (33, "sdif"),
        (34, "sdifname"),
    ];
    let name = names.iter().find(|(number, _)| *number == key);
    name.map_or_else(
        || format!("meta key {key}"),
        |(_, name)| format!("meta {name}"),
    )
}

/// A field of the packet's connection; none if it has no connection, and the rule does not match.
pub(super) fn conntrack(key: u32, direction: Option<u8>, state: &PacketState) -> Option<Bits> {
    let connection = &state.connection;
    if key == expr::CT_STATE {
        return Some(Bits::known(&state.connection_state().to_ne_bytes()));
    }
    if connection.tracking != Tracking::Tracked {
        return None;
    }
    let own_direction = if connection.is_new {
        expr::CT_DIR_ORIGINAL
    } else {
        expr::CT_DIR_REPLY
    };
    let (source, destination) = if direction.unwrap_or(own_direction) == expr::CT_DIR_ORIGINAL {
        connection.original
    } else {
        connection.reply
    };
    let family = if state.is_v4() {
        NFPROTO_IPV4
    } else {
        NFPROTO_IPV6
    };
    Some(match key {
        expr::CT_DIR => Bits::known(&[own_direction]),
        expr::CT_STATUS => Bits::known(&state.connection_status().to_ne_bytes()),
        expr::CT_MARK => Bits::number(connection.mark, connection.unknown_mark, "ct mark"),
        expr::CT_L3PROTOCOL => Bits::known(&[family]),
        expr::CT_PROTOCOL => Bits::known(&[state.protocol.number()]),
        expr::CT_SRC => Bits::known(&address_bytes(source.ip())),
        expr::CT_DST => Bits::known(&address_bytes(destination.ip())),
        expr::CT_SRC_IP if state.is_v4() => Bits::known(&address_bytes(source.ip())),
        expr::CT_DST_IP if state.is_v4() => Bits::known(&address_bytes(destination.ip())),
        expr::CT_SRC_IP6 if !state.is_v4() => Bits::known(&address_bytes(source.ip())),
        expr::CT_DST_IP6 if !state.is_v4() => Bits::known(&address_bytes(destination.ip())),
        expr::CT_SRC_IP | expr::CT_DST_IP | expr::CT_SRC_IP6 | expr::CT_DST_IP6 => return None,
        expr::CT_PROTO_SRC => Bits::known(&source.port().to_be_bytes()),
        expr::CT_PROTO_DST => Bits::known(&destination.port().to_be_bytes()),
        expr::CT_ZONE => Bits::unknown(2, "ct zone"),
        _ => Bits::unknown(UNKNOWN_BYTES, &conntrack_name(key)),
    })
}

fn conntrack_name(key: u32) -> String {
    let names = [
        (4, "secmark"),
        (5, "expiration"),
        (6, "helper"),
        (13, "label"),
        (14, "packets"),
        (15, "bytes"),
        (16, "avgpkt"),
        (18, "event"),
        (23, "id"),
    ];
    let name = names.iter().find(|(number, _)| *number == key);
    name.map_or_else(|| format!("ct key {key}"), |(_, name)| format!("ct {name}"))
}

/// The number that the kernel has for a kind of address: `RTN_*`. Only the table of local addresses is searched for IPv4, so that of an
/// address of other machines it says that it is of one.
pub(super) fn address_type(kind: AddressKind, is_v4: bool) -> u32 {
    const UNICAST: u32 = 1;
    match kind {
        AddressKind::Unicast => UNICAST,
        AddressKind::Local => expr::ADDRTYPE_LOCAL,
        AddressKind::Broadcast => 3,
        AddressKind::Multicast => 5,
        _ if is_v4 => UNICAST,
        AddressKind::Blackhole => 6,
        AddressKind::Unreachable => 7,
        AddressKind::Prohibited => 8,
    }
}

/// What `fib` says of an address of the packet.
pub(super) fn fib(
    result: u32,
    flags: u32,
    state: &PacketState,
    network: &mut dyn Network,
    lookups: &mut dyn RuleLookups,
) -> Result<Bits, PathError> {
    let has = |flag| flags & flag != 0;
    let address = if has(expr::FIB_FLAG_SADDR) {
        state.source.ip()
    } else {
        state.destination.ip()
    };
    let interface = if has(expr::FIB_FLAG_OIF) {
        state.output.clone()
    } else if has(expr::FIB_FLAG_IIF) {
        state.input.clone()
    } else {
        None
    };
    if result == expr::FIB_RESULT_ADDRTYPE {
        let kind = network.address_kind(address)?;
        // An address of another interface of this node is not one of this interface.
        return Ok(if interface.is_some() && kind == AddressKind::Local {
            Bits::unknown(4, "fib type of an interface")
        } else {
            Bits::known(&address_type(kind, state.is_v4()).to_ne_bytes())
        });
    }
    let is_loopback = (state.input.as_ref()).is_some_and(|input| &*input.0 == LOOPBACK);
    let mark = if has(expr::FIB_FLAG_MARK) {
        state.mark
    } else {
        0
    };
    let out = if is_loopback {
        state.input.clone()
    } else {
        let route = network.route(&RouteQuery {
            source: None,
            destination: address,
            input: None,
            mark,
            ports: None,
        })?;
        match route {
            Route::Unicast { interface: out, .. } => {
                (interface.as_ref().is_none_or(|wanted| *wanted == out)).then_some(out)
            }
            _ => None,
        }
    };
    Ok(if has(expr::FIB_FLAG_PRESENT) {
        Bits::known(&[u8::from(out.is_some())])
    } else if result == expr::FIB_RESULT_OIF {
        index(out.as_ref(), lookups)
    } else if result == expr::FIB_RESULT_OIFNAME {
        name(out.as_ref())
    } else {
        Bits::unknown(UNKNOWN_BYTES, "fib")
    })
}
