//! Sets of `ipset`, which rules of iptables match: the kernel is asked whether it finds a packet in one. Source: the kernel's
//! `include/uapi/linux/netfilter/ipset/ip_set.h`, and the functions `*_kadt` of the types for what they take of a packet.

use std::net::{IpAddr, SocketAddr};

use super::{
    PathError,
    kernel_socket::{KernelSocket, family_of, octets},
    ruleset::IpSetMatch,
    state::PacketState,
};
use crate::netlink::{Attributes, Writer, message::kind_of};

const NFNL_SUBSYS_IPSET: u8 = 6;
/// `IPSET_CMD_TEST`, `IPSET_CMD_HEADER`, `IPSET_CMD_GET_BYINDEX`
const TEST: u8 = 11;
const HEADER: u8 = 12;
const GET_BY_INDEX: u8 = 15;
/// The first version that has all of these commands.
const PROTOCOL_VERSION: u8 = 7;

const PROTOCOL: u16 = 1;
const SET_NAME: u16 = 2;
const TYPE_NAME: u16 = 3;
const FAMILY: u16 = 5;
const DATA: u16 = 7;
const INDEX: u16 = 11;
/// Attributes of an element.
const ADDRESS: u16 = 1;
const PORT: u16 = 4;
const TRANSPORT: u16 = 7;
const SECOND_ADDRESS: u16 = 20;
const INTERFACE: u16 = 23;
/// Attributes of an address.
const ADDRESS_V4: u16 = 1;
const ADDRESS_V6: u16 = 2;
/// `NLA_F_NET_BYTEORDER`, which the kernel demands of addresses and ports.
const NETWORK_ORDER: u16 = 1 << 14;

/// `IPSET_ERR_EXIST`: it is not in the set.
const ERR_EXIST: i32 = 4103;
/// `IPSET_ERR_BITMAP_RANGE`: it is not in the range that the set is for.
const ERR_BITMAP_RANGE: i32 = 4352;
/// How many parts an element has at most: `IPSET_DIM_MAX`.
const MAX_DIMENSIONS: u8 = 6;
/// The length of `struct nfgenmsg`.
const MESSAGE_HEADER: usize = 4;

/// Whether the kernel finds a packet in a set; none for a type of set whose elements have parts that are not known.
pub(super) fn contains(
    socket: &mut KernelSocket,
    set: &IpSetMatch,
    packet: &PacketState,
) -> Result<Option<bool>, PathError> {
    let by_index = ask(socket, GET_BY_INDEX, |request| {
        request.bytes(INDEX | NETWORK_ORDER, &set.index.to_be_bytes());
    })?;
    let Ok(found) = by_index else {
        return Ok(None);
    };
    let Some(name) = attributes(&found).text(SET_NAME) else {
        return Ok(None);
    };
    let Ok(header) = ask(socket, HEADER, |request| request.text(SET_NAME, name))? else {
        return Ok(None);
    };
    let (Some(kind), Some(&[family])) = (
        attributes(&header).text(TYPE_NAME),
        attributes(&header).get(FAMILY),
    ) else {
        return Ok(None);
    };
    if family != 0 && family != family_of(packet.destination.ip()) {
        return Ok(Some(false));
    }
    let element = match element(kind, set, packet) {
        Element::Known(parts) => parts,
        Element::Absent => return Ok(Some(false)),
        Element::Unknown => return Ok(None),
    };
    let tested = ask(socket, TEST, |request| {
        request.text(SET_NAME, name);
        request.nested(DATA, |data| parts_of(&element, data));
    })?;
    Ok(match tested {
        Err(0) | Ok(_) => Some(true),
        Err(ERR_EXIST | ERR_BITMAP_RANGE) => Some(false),
        Err(_) => None,
    })
}

fn ask(
    socket: &mut KernelSocket,
    command: u8,
    fill: impl FnOnce(&mut Writer<'_>),
) -> Result<Result<Vec<u8>, i32>, PathError> {
    let kind = kind_of(NFNL_SUBSYS_IPSET, command);
    socket.look_up_or_confirm(kind, &[0; MESSAGE_HEADER], |request| {
        request.u8(PROTOCOL, PROTOCOL_VERSION);
        fill(request);
    })
}

fn attributes(message: &[u8]) -> Attributes<'_> {
    Attributes(message.get(MESSAGE_HEADER..).unwrap_or_default())
}

/// A part of an element.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Address(u16, IpAddr),
    Port(u16),
    Transport(u8),
    Interface(String),
}

/// What of a packet is looked for in a set.
#[derive(Debug, PartialEq, Eq)]
enum Element {
    Known(Vec<Part>),
    /// It lacks a part, so that it is in no such set.
    Absent,
    Unknown,
}

/// The element that a set of a type such as "hash:ip,port" looks for.
fn element(kind: &str, set: &IpSetMatch, packet: &PacketState) -> Element {
    let Some((method @ ("hash" | "bitmap"), fields)) = kind.split_once(':') else {
        return Element::Unknown;
    };
    let mut parts = Vec::new();
    let mut address_attribute = ADDRESS;
    for (number, field) in fields.split(',').enumerate() {
        if number >= usize::from(set.dimensions.min(MAX_DIMENSIONS)) {
            return Element::Absent;
        }
        let is_source = set.sources & 1 << number != 0;
        let end: SocketAddr = if is_source {
            packet.source
        } else {
            packet.destination
        };
        match field {
            "ip" | "net" => {
                parts.push(Part::Address(address_attribute, end.ip()));
                address_attribute = SECOND_ADDRESS;
            }
            // An error of ICMP has its type there.
            "port" if packet.is_size_error => return Element::Unknown,
            "port" => {
                parts.push(Part::Port(end.port()));
                if method == "hash" {
                    parts.push(Part::Transport(packet.protocol.number()));
                }
            }
            "iface" => {
                let interface = if is_source {
                    &packet.input
                } else {
                    &packet.output
                };
                match interface {
                    Some(interface) => parts.push(Part::Interface(interface.0.to_string())),
                    None => return Element::Absent,
                }
            }
            _ => return Element::Unknown,
        }
    }
    Element::Known(parts)
}

fn parts_of(parts: &[Part], data: &mut Writer<'_>) {
    for part in parts {
        match part {
            Part::Address(attribute, address) => {
                let kind = match address {
                    IpAddr::V4(_) => ADDRESS_V4,
                    IpAddr::V6(_) => ADDRESS_V6,
                };
                data.nested(*attribute, |inner| {
                    inner.bytes(kind | NETWORK_ORDER, &octets(*address));
                });
            }
            Part::Port(port) => data.bytes(PORT | NETWORK_ORDER, &port.to_be_bytes()),
            Part::Transport(protocol) => data.u8(TRANSPORT, *protocol),
            Part::Interface(name) => data.text(INTERFACE, name),
        }
    }
}

#[cfg(test)]
mod tests {
    use contiv_model::{InterfaceName, Protocol};

    use super::*;
    use crate::packet_path::state::{Connection, Tracking};

    fn packet() -> PacketState {
        let (source, destination) = (end("10.1.0.2:40000"), end("10.2.0.2:80"));
        PacketState {
            protocol: Protocol::Tcp,
            source,
            destination,
            input: Some(InterfaceName::new("eth1")),
            output: None,
            mark: 0,
            priority: None,
            unknown_mark: 0,
            is_answer: false,
            is_size_error: false,
            is_sent_here: false,
            connection: Connection {
                tracking: Tracking::NotYet,
                is_new: true,
                original: (source, destination),
                reply: (destination, source),
                mark: 0,
                unknown_mark: 0,
                is_destination_decided: false,
                is_source_decided: false,
            },
        }
    }

    fn end(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn element_has_the_parts_of_the_type_from_the_ends_of_the_match() {
        let set = |dimensions, sources| IpSetMatch {
            index: 0,
            dimensions,
            sources,
            is_inverted: false,
        };
        let of =
            |kind: &str, dimensions, sources| element(kind, &set(dimensions, sources), &packet());
        let known = |parts: Vec<Part>| Element::Known(parts);
        let address = |attribute, text: &str| Part::Address(attribute, text.parse().unwrap());
        let (client, server) = ("10.1.0.2", "10.2.0.2");
        assert_eq!(of("hash:ip", 1, 1), known(vec![address(ADDRESS, client)]));
        let both = [address(ADDRESS, server), Part::Port(80), Part::Transport(6)];
        assert_eq!(of("hash:ip,port", 2, 0), known(both.to_vec()));
        assert_eq!(of("bitmap:port", 1, 1), known(vec![Part::Port(40000)]));
        let three = [
            address(ADDRESS, client),
            Part::Port(80),
            Part::Transport(6),
            address(SECOND_ADDRESS, server),
        ];
        assert_eq!(of("hash:ip,port,net", 3, 1), known(three.to_vec()));
        let input = Part::Interface("eth1".to_owned());
        let with_input = vec![address(ADDRESS, server), input];
        assert_eq!(of("hash:net,iface", 2, 2), known(with_input));
        assert_eq!(of("hash:net,iface", 2, 0), Element::Absent, "no output yet");
        assert_eq!(of("hash:ip,port", 1, 0), Element::Absent, "too few parts");
        for kind in ["hash:ip,mark", "hash:mac", "list:set", "odd", ""] {
            assert_eq!(of(kind, 6, 0), Element::Unknown, "{kind}");
        }
    }
}
