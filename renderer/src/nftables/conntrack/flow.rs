//! One flow of the kernel's conntrack table: its destination and its backend.

use std::net::{IpAddr, SocketAddr};

use contiv_model::Protocol;

use super::constants::{
    ID, IP_V4_DST, IP_V4_SRC, IP_V6_DST, IP_V6_SRC, PROTO_DST_PORT, PROTO_NUM, PROTO_SRC_PORT,
    PROTOINFO, PROTOINFO_STATE, PROTOINFO_TCP, SEEN_REPLY, STATUS, TCP_SYN_SENT, TUPLE_IP,
    TUPLE_ORIG, TUPLE_PROTO, TUPLE_REPLY, ZONE,
};
use crate::netlink::Attributes;

/// A flow of conntrack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flow<'a> {
    pub(crate) protocol: Protocol,
    /// The destination that the client sends to.
    pub(crate) destination: SocketAddr,
    /// The backend that replies, or the destination itself without translation.
    pub(crate) backend: SocketAddr,
    /// A reply was seen, and both sides may think that they are connected.
    pub(crate) is_in_use: bool,
    pub(crate) identity: Identity<'a>,
}

/// The attributes by which the kernel finds exactly this flow, in their encoded form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity<'a> {
    /// The payload of `CTA_TUPLE_ORIG`.
    pub(crate) tuple: &'a [u8],
    /// Distinguishes it from a later flow with the same tuple.
    pub(crate) id: &'a [u8],
}

impl<'a> Flow<'a> {
    /// Reads a flow; none for protocols that no service has, and for zones other than the default one. Other zones belong to
    /// other programs, which see the same packets before or after our rules.
    pub(super) fn read(attributes: Attributes<'a>) -> Option<Self> {
        if attributes.get(ZONE).is_some() {
            return None;
        }
        let [original, reply] = [TUPLE_ORIG, TUPLE_REPLY].map(|kind| attributes.nested(kind));
        let (original, reply) = (original?, reply?);
        let ports = original.nested(TUPLE_PROTO)?;
        let protocol = match ports.get(PROTO_NUM)? {
            [6] => Protocol::Tcp,
            [17] => Protocol::Udp,
            [132] => Protocol::Sctp,
            _ => return None,
        };
        let destination = endpoint(original, [IP_V4_DST, IP_V6_DST], PROTO_DST_PORT)?;
        let backend = endpoint(reply, [IP_V4_SRC, IP_V6_SRC], PROTO_SRC_PORT)?;
        let was_answered = attributes.u32(STATUS)? & SEEN_REPLY != 0;
        let is_in_use = was_answered && !is_attempt(protocol, attributes);
        let identity = Identity {
            tuple: attributes.get(TUPLE_ORIG)?,
            id: attributes.get(ID)?,
        };
        Some(Self {
            protocol,
            destination,
            backend,
            is_in_use,
            identity,
        })
    }

    /// Its destination was translated: it uses a service.
    pub(super) fn is_translated(&self) -> bool {
        self.destination != self.backend
    }
}

/// True while the client repeats its SYN, whatever was answered: nothing is established.
///
/// A connection of TCP whose SYN was answered counts as established, since the client's confirmation may be on its way. So does an
/// association of SCTP whose INIT was answered: the client's next packet is its cookie, which only this backend knows.
fn is_attempt(protocol: Protocol, attributes: Attributes<'_>) -> bool {
    let state = || {
        attributes
            .nested(PROTOINFO)?
            .nested(PROTOINFO_TCP)?
            .get(PROTOINFO_STATE)?
            .first()
            .copied()
    };
    protocol == Protocol::Tcp && state().is_some_and(|state| TCP_SYN_SENT.contains(&state))
}

/// Address and port of one end of a tuple.
pub(crate) fn endpoint(tuple: Attributes<'_>, [v4, v6]: [u16; 2], port: u16) -> Option<SocketAddr> {
    let addresses = tuple.nested(TUPLE_IP)?;
    let address = match (addresses.get(v4), addresses.get(v6)) {
        (Some(bytes), _) => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        (None, bytes) => IpAddr::from(<[u8; 16]>::try_from(bytes?).ok()?),
    };
    let port = tuple.nested(TUPLE_PROTO)?.get(port)?;
    Some(SocketAddr::new(
        address,
        u16::from_be_bytes(port.try_into().ok()?),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Writer;

    /// `CTA_PROTOINFO_SCTP`
    const PROTOINFO_SCTP: u16 = 3;

    /// A UDP flow from 10.0.0.9:4000 to 10.96.0.1:53 with replies from 10.244.1.7:5353.
    fn flow(protocol: u8, zone: Option<u8>) -> Vec<u8> {
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
            tuple(([10, 0, 0, 9], 4000), ([10, 96, 0, 1], 53)),
        );
        writer.nested(
            TUPLE_REPLY,
            tuple(([10, 244, 1, 7], 5353), ([10, 0, 0, 9], 4000)),
        );
        writer.u32(STATUS, 0x18a);
        writer.u32(ID, 77);
        if let Some(zone) = zone {
            writer.bytes(ZONE, &[0, zone]);
        }
        bytes
    }

    #[test]
    fn flow_has_its_destination_and_its_backend() {
        let bytes = flow(17, None);
        let flow = Flow::read(Attributes(&bytes)).unwrap();
        assert_eq!(flow.protocol, Protocol::Udp);
        assert_eq!(flow.destination, "10.96.0.1:53".parse().unwrap());
        assert_eq!(flow.backend, "10.244.1.7:5353".parse().unwrap());
        assert!(flow.is_in_use && flow.is_translated());
        assert_eq!(flow.identity.id, [0, 0, 0, 77]);
    }

    #[test]
    fn answered_flow_is_in_use_once_something_is_established() {
        // The kernel's numbers of states: `enum tcp_conntrack` and `enum sctp_conntrack` (2 and 3: a cookie is awaited or sent).
        let in_use = [
            (6, PROTOINFO_TCP, &[2, 3, 4, 5, 6, 7, 8][..], true),
            (6, PROTOINFO_TCP, &[1, 9], false),
            (132, PROTOINFO_SCTP, &[1, 2, 3, 4, 5, 6, 7, 8], true),
            // The state of another protocol.
            (17, PROTOINFO_TCP, &[1], true),
        ];
        for (protocol, of, states, expected) in in_use {
            for state in states {
                let mut bytes = flow(protocol, None);
                let mut writer = Writer::new(&mut bytes);
                writer.nested(PROTOINFO, |info| {
                    info.nested(of, |info| info.u8(PROTOINFO_STATE, *state));
                });
                let flow = Flow::read(Attributes(&bytes)).unwrap();
                assert_eq!(
                    flow.is_in_use, expected,
                    "protocol {protocol}, state {state}"
                );
            }
        }
    }

    #[test]
    fn flows_of_other_protocols_and_other_zones_are_none_of_ours() {
        assert_eq!(Flow::read(Attributes(&flow(1, None))), None);
        assert_eq!(Flow::read(Attributes(&flow(17, Some(5)))), None);
        for protocol in [6, 17, 132] {
            assert!(Flow::read(Attributes(&flow(protocol, None))).is_some());
        }
    }

    #[test]
    fn flow_that_is_cut_short_is_no_flow() {
        let whole = flow(17, None);
        let id = whole.len() - 8;
        for length in (0..=id).step_by(4) {
            assert_eq!(
                Flow::read(Attributes(&whole[..length])),
                None,
                "{length} bytes"
            );
        }
    }
}
