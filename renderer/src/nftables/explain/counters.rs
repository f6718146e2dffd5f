//! The number of attempts to connect to each frontend, served and refused: the kernel counts them in elements of sets.

use std::{collections::BTreeMap, net::SocketAddr};

use contiv_model::{Frontend, Protocol};
use serde::Serialize;

use crate::linux::Linux;
use crate::nftables::{
    InspectError,
    desired::element::{Element, FrontendKey, Key, Value},
    kernel::read,
    layout::{DemandChain, Family, PickChain, Set, SetKind, TABLE, parse_attempts},
    netlink::{
        Attributes, Socket, Writer, constants::msg, counted_packets, set_elements,
        write_set_request,
    },
};

/// Why an attempt to connect was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalReason {
    /// There is no backend on any node: the client gets an error.
    NoEndpoints,
    /// A policy allows only backends of this node, and there is none: dropped.
    Policy,
    /// The client is in none of the service's source ranges: dropped.
    SourceRanges,
}

impl RefusalReason {
    /// Every reason.
    pub const ALL: [Self; 3] = [Self::NoEndpoints, Self::Policy, Self::SourceRanges];

    /// Its name in metrics and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoEndpoints => "no-endpoints",
            Self::Policy => "policy",
            Self::SourceRanges => "source-ranges",
        }
    }
}

/// Attempts to connect by frontend. Each is either served or refused; a repetition of a refused one (from the same address and
/// port, within two minutes of the last) is no attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Connections {
    /// Attempts that were sent to a backend.
    pub served: BTreeMap<Frontend, u64>,
    /// Attempts that were refused, by reason.
    pub refused: BTreeMap<(Frontend, RefusalReason), u64>,
}

/// Attempts by frontend, as counted by the kernel of this network namespace. Frontends without any are left out. The counter of
/// served ones restarts at zero when the frontend's number of slots changes, since that replaces its element, that of refused ones
/// after a day without any, and all when the table is created again. The addresses of a node port are one frontend.
///
/// Reads only the sets with counters, in a time proportional to their elements. Concurrent changes do not interrupt it. Needs
/// CAP_NET_ADMIN.
///
/// # Errors
/// When there is no table, or it cannot be read.
pub fn connections() -> Result<Connections, InspectError> {
    let mut socket = Socket::open(&Linux::shared())?;
    if read::table_header(&mut socket)?.is_none() {
        return Err(InspectError::NoTable);
    }
    let mut connections = Connections::default();
    for set in Set::all().filter(|set| set.kind.form().has_counter()) {
        // An element that is listed twice counts once.
        let mut counts = BTreeMap::new();
        let write_request = |message: &mut Writer<'_>| {
            write_set_request(message, TABLE, &set.name());
        };
        socket.pass(msg::GETSETELEM, write_request, |object| {
            let counted = set_elements(object).filter_map(|element| parse_counter(set, element));
            counts.extend(counted.filter(|(_, attempts)| *attempts > 0));
        })?;
        for (frontend, attempts) in counts {
            *connections.total(set.kind, frontend) += attempts;
        }
    }
    Ok(connections)
}

/// An attempt that was refused within the last two minutes, or repeated since it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RefusedAttempt {
    /// The client's address and port.
    pub client: SocketAddr,
    /// Where it connected to, before any translation.
    pub destination: SocketAddr,
    /// The protocol.
    pub protocol: Protocol,
}

/// The attempts that were refused lately, in no order. The kernel remembers at most 16,384 of each family. Needs CAP_NET_ADMIN.
///
/// # Errors
/// When there is no table, or it cannot be read.
pub fn refused_attempts() -> Result<Vec<RefusedAttempt>, InspectError> {
    let mut socket = Socket::open(&Linux::shared())?;
    if read::table_header(&mut socket)?.is_none() {
        return Err(InspectError::NoTable);
    }
    let mut refused = Vec::new();
    for family in Family::ALL {
        let set = Set {
            kind: SetKind::RefusedClients,
            family,
        };
        let write_request = |message: &mut Writer<'_>| {
            write_set_request(message, TABLE, &set.name());
        };
        socket.pass(msg::GETSETELEM, write_request, |object| {
            let attempts = parse_attempts(family, object);
            refused.extend(attempts.map(|attempt| RefusedAttempt {
                client: attempt.client,
                destination: attempt.destination,
                protocol: attempt.protocol,
            }));
        })?;
    }
    Ok(refused)
}

impl Connections {
    /// The total to which the elements of a set with counters belong.
    fn total(&mut self, kind: SetKind, frontend: Frontend) -> &mut u64 {
        let reason = match kind {
            SetKind::RefusedNoEndpoints => RefusalReason::NoEndpoints,
            SetKind::RefusedPolicy => RefusalReason::Policy,
            SetKind::RefusedSourceRanges => RefusalReason::SourceRanges,
            _ => return self.served.entry(frontend).or_default(),
        };
        self.refused.entry((frontend, reason)).or_default()
    }
}

/// The frontend of an element and its attempts. Each packet is one, since these are rules of NAT chains, or count no repetition.
/// None for a frontend that drops some of the packets that look it up: it counts the others elsewhere.
fn parse_counter(set: Set, element: Attributes<'_>) -> Option<(Frontend, u64)> {
    let Element {
        key: Key::Frontend(key),
        value,
        ..
    } = read::parse_element(set, element)?
    else {
        return None;
    };
    if let Value::Goto(DemandChain::Pick(PickChain {
        external_slots: Some(0),
        ..
    })) = value
    {
        return None;
    }
    Some((frontend(key), counted_packets(element)?))
}

const fn frontend(key: FrontendKey) -> Frontend {
    let FrontendKey {
        address,
        protocol,
        port,
    } = key;
    if key.is_node_port() {
        Frontend::NodePort { protocol, port }
    } else {
        Frontend::Address {
            address,
            protocol,
            port,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nftables::netlink::constants::{counter, data, elem, rule};

    fn element(address: [u8; 4], packets: u64, expression: &str) -> Vec<u8> {
        element_leading_to(1, address, packets, expression)
    }

    fn element_leading_to(chain: u32, address: [u8; 4], packets: u64, expression: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.nested(elem::KEY, |key| {
            let port_and_protocol = [6, 0, 0, 0, 0, 80, 0, 0];
            key.bytes(data::VALUE, &[&address[..], &port_and_protocol].concat());
        });
        writer.nested(elem::DATA, |value| {
            value.bytes(data::VALUE, &chain.to_ne_bytes());
        });
        writer.nested(elem::EXPR, |expr| {
            expr.text(rule::EXPR_NAME, expression);
            expr.nested(rule::EXPR_DATA, |data| {
                data.bytes(counter::PACKETS, &packets.to_be_bytes());
            });
        });
        bytes
    }

    #[test]
    fn packets_of_element_are_attempts_of_its_frontend() {
        let set = Set {
            kind: SetKind::Services,
            family: Family::V4,
        };
        let count = |bytes: &[u8]| parse_counter(set, Attributes(bytes));
        let address = Frontend::Address {
            address: [10, 96, 0, 7].into(),
            protocol: Protocol::Tcp,
            port: 80,
        };
        assert_eq!(
            count(&element([10, 96, 0, 7], 41, "counter")),
            Some((address, 41))
        );
        let node_port = Frontend::NodePort {
            protocol: Protocol::Tcp,
            port: 80,
        };
        assert_eq!(count(&element([0; 4], 1, "counter")), Some((node_port, 1)));
        assert_eq!(
            count(&element([10, 96, 0, 7], 41, "quota")),
            None,
            "that counts something else"
        );
        // External clients are dropped, or have slots of their own.
        for (chain, expected) in [(0x0001_0002, None), (0x0002_0002, Some((address, 41)))] {
            let bytes = element_leading_to(chain, [10, 96, 0, 7], 41, "counter");
            assert_eq!(count(&bytes), expected, "{chain:#x}");
        }
    }
}
