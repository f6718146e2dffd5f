//! The number of connections of each frontend: the kernel counts them in the elements of the service maps.

use std::collections::BTreeMap;

use contiv_model::Frontend;

use super::{
    InspectError,
    element::{FrontendKey, Key},
    layout::{Set, SetKind, TABLE},
    netlink::{
        Attributes, Socket, Writer,
        constants::{LIST_ELEM, counter, elem, msg, rule},
    },
    read,
};
use crate::linux::Linux;

/// New connections by frontend.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Connections {
    /// Connections that were sent to a backend.
    pub served: BTreeMap<Frontend, u64>,
    /// Connections that no backend could serve: rejected or dropped. Each packet of a client that tries again counts.
    pub refused: BTreeMap<Frontend, u64>,
}

/// New connections by frontend, as counted by the kernel of this network namespace. Frontends without any are left out. A
/// counter restarts at zero when the frontend's number of slots changes, since that replaces its element, and when the table is
/// created again. The addresses of a node port are one frontend.
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
            message.text(elem::LIST_TABLE, TABLE);
            message.text(elem::LIST_SET, &set.name());
        };
        socket.pass(msg::GETSETELEM, write_request, |object| {
            let elements = object.nested(elem::LIST_ELEMENTS).into_iter().flat_map(Attributes::iter);
            let elements = elements.filter(|(kind, _)| *kind == LIST_ELEM);
            let counted = elements.filter_map(|(_, element)| parse_counter(set, Attributes(element)));
            counts.extend(counted.filter(|(_, packets)| *packets > 0));
        })?;
        let totals = match set.kind {
            SetKind::NoEndpoints | SetKind::NoLocalEndpoints => &mut connections.refused,
            _ => &mut connections.served,
        };
        for (frontend, packets) in counts {
            *totals.entry(frontend).or_default() += packets;
        }
    }
    Ok(connections)
}

/// The frontend of an element and its packets. Each packet began a connection, since these are rules of NAT chains.
fn parse_counter(set: Set, element: Attributes<'_>) -> Option<(Frontend, u64)> {
    let Key::Frontend(key) = read::parse_element(set, element)?.key else { return None };
    let expression = element.nested(elem::EXPR)?;
    if expression.text(rule::EXPR_NAME) != Some("counter") {
        return None;
    }
    let packets = expression.nested(rule::EXPR_DATA)?.get(counter::PACKETS)?;
    Some((frontend(key), u64::from_be_bytes(packets.try_into().ok()?)))
}

const fn frontend(key: FrontendKey) -> Frontend {
    let FrontendKey { address, protocol, port } = key;
    if key.is_node_port() {
        Frontend::NodePort { protocol, port }
    } else {
        Frontend::Address { address, protocol, port }
    }
}

#[cfg(test)]
mod tests {
    use contiv_model::Protocol;

    use super::*;
    use crate::nftables::{
        layout::Family,
        netlink::{Writer, constants::data},
    };

    fn element(address: [u8; 4], packets: u64, expression: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.nested(elem::KEY, |key| {
            let port_and_protocol = [6, 0, 0, 0, 0, 80, 0, 0];
            key.bytes(data::VALUE, &[&address[..], &port_and_protocol].concat());
        });
        writer.nested(elem::DATA, |value| {
            value.bytes(data::VALUE, &1_u32.to_ne_bytes());
        });
        writer.nested(elem::EXPR, |expr| {
            expr.text(rule::EXPR_NAME, expression);
            expr.nested(rule::EXPR_DATA, |data| data.bytes(counter::PACKETS, &packets.to_be_bytes()));
        });
        bytes
    }

    #[test]
    fn packets_of_element_are_connections_of_its_frontend() {
        let set = Set { kind: SetKind::Services, family: Family::V4 };
        let count = |bytes: &[u8]| parse_counter(set, Attributes(bytes));
        let address = Frontend::Address { address: [10, 96, 0, 7].into(), protocol: Protocol::Tcp, port: 80 };
        assert_eq!(count(&element([10, 96, 0, 7], 41, "counter")), Some((address, 41)));
        let node_port = Frontend::NodePort { protocol: Protocol::Tcp, port: 80 };
        assert_eq!(count(&element([0; 4], 1, "counter")), Some((node_port, 1)));
        assert_eq!(count(&element([10, 96, 0, 7], 41, "quota")), None, "that counts something else");
    }
}
