//! Next-hop messages: writer and reader.

use std::net::IpAddr;

use rtnetlink::packet_core::DecodeError;

use super::{Grouping, Hop, Member, Nexthop};
use crate::{
    netlink::{Attributes, Writer},
    route::kernel_route::PROTOCOL,
};

const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;
const RTM_GETNEXTHOP: u16 = 106;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const RTNH_F_ONLINK: u32 = 4;
/// `struct nhmsg`: family, scope, protocol, a reserved byte, flags.
const HEADER_BYTES: usize = 8;

const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_GROUP_TYPE: u16 = 3;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
const NHA_RES_GROUP: u16 = 12;
const NHA_RES_GROUP_BUCKETS: u16 = 1;
const NHA_RES_GROUP_IDLE_TIMER: u16 = 2;

const GROUP_PLAIN: u16 = 0;
const GROUP_RESILIENT: u16 = 1;
/// `struct nexthop_grp`: ID, weight less one, three reserved bytes.
const MEMBER_BYTES: usize = 8;

/// Buckets of a resilient group. They limit the smallest share of a next hop, and cannot be changed later.
const RESILIENT_BUCKETS: u16 = 128;
/// The kernel's unit of time here is a hundredth of a second.
const USER_HZ: u32 = 100;

/// The action of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::route) enum Action {
    /// Adds an object, or replaces that with its ID; or reports one.
    New,
    Delete,
    Get,
}

/// A message about one next hop or group; or the request for all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::route) struct NexthopMessage {
    pub(in crate::route) action: Action,
    /// It has our protocol number.
    pub(in crate::route) is_ours: bool,
    /// Zero in the request for all.
    pub(in crate::route) id: u32,
    /// None where only the ID matters.
    pub(in crate::route) nexthop: Option<Nexthop>,
}

impl NexthopMessage {
    /// The message that adds or replaces an object.
    pub(in crate::route) const fn new(id: u32, nexthop: Nexthop) -> Self {
        Self {
            action: Action::New,
            is_ours: true,
            id,
            nexthop: Some(nexthop),
        }
    }

    /// The message that deletes an object.
    pub(in crate::route) const fn deletion(id: u32) -> Self {
        Self {
            action: Action::Delete,
            is_ours: false,
            id,
            nexthop: None,
        }
    }

    /// The request for all of them.
    pub(in crate::route) const fn dump_request() -> Self {
        Self {
            action: Action::Get,
            is_ours: false,
            id: 0,
            nexthop: None,
        }
    }

    /// Its type in the netlink header.
    pub(in crate::route) const fn kind(&self) -> u16 {
        match self.action {
            Action::New => RTM_NEWNEXTHOP,
            Action::Delete => RTM_DELNEXTHOP,
            Action::Get => RTM_GETNEXTHOP,
        }
    }

    /// The bytes after the netlink header.
    pub(in crate::route) fn payload(&self) -> Vec<u8> {
        let (family, flags) = match &self.nexthop {
            Some(Nexthop::Hop(hop)) if hop.gateway.is_ipv4() => (AF_INET, RTNH_F_ONLINK),
            Some(Nexthop::Hop(_)) => (AF_INET6, RTNH_F_ONLINK),
            _ => (0, 0),
        };
        let protocol = if self.is_ours { PROTOCOL } else { 0 };
        let mut bytes = vec![family, 0, protocol, 0];
        bytes.extend_from_slice(&flags.to_ne_bytes());
        let mut writer = Writer::new(&mut bytes);
        if self.id != 0 {
            writer.bytes(NHA_ID, &self.id.to_ne_bytes());
        }
        match &self.nexthop {
            Some(Nexthop::Hop(Hop { gateway, interface })) => {
                writer.bytes(NHA_OIF, &interface.to_ne_bytes());
                match gateway {
                    IpAddr::V4(address) => writer.bytes(NHA_GATEWAY, &address.octets()),
                    IpAddr::V6(address) => writer.bytes(NHA_GATEWAY, &address.octets()),
                }
            }
            Some(Nexthop::Group { grouping, members }) => {
                write_group(&mut writer, *grouping, members);
            }
            Some(Nexthop::Other) | None => {}
        }
        bytes
    }

    /// Reads the bytes after the netlink header; none for other types of messages.
    pub(in crate::route) fn read(kind: u16, payload: &[u8]) -> Option<Result<Self, DecodeError>> {
        let action = match kind {
            RTM_NEWNEXTHOP => Action::New,
            RTM_DELNEXTHOP => Action::Delete,
            _ => return None,
        };
        let read = || {
            let header = payload.first_chunk::<HEADER_BYTES>()?;
            let attributes = Attributes(payload.get(HEADER_BYTES..)?);
            let id = u32_of(attributes, NHA_ID)?;
            let onlink = u32::from_ne_bytes([header[4], header[5], header[6], header[7]])
                & RTNH_F_ONLINK
                != 0;
            let nexthop = hop(attributes)
                .filter(|_| onlink)
                .map(Nexthop::Hop)
                .or_else(|| group(attributes));
            let nexthop = Some(nexthop.unwrap_or(Nexthop::Other));
            Some(Self {
                action,
                is_ours: header[2] == PROTOCOL,
                id,
                nexthop,
            })
        };
        Some(read().ok_or_else(|| DecodeError::from("a message about a next hop without its ID")))
    }
}

fn write_group(writer: &mut Writer<'_>, grouping: Grouping, members: &[Member]) {
    writer.payload(NHA_GROUP, |bytes| {
        for Member { id, weight } in members {
            bytes.extend_from_slice(&id.to_ne_bytes());
            bytes.extend_from_slice(&[weight.saturating_sub(1), 0, 0, 0]);
        }
    });
    match grouping {
        Grouping::Plain => writer.bytes(NHA_GROUP_TYPE, &GROUP_PLAIN.to_ne_bytes()),
        Grouping::Resilient { idle } => {
            writer.bytes(NHA_GROUP_TYPE, &GROUP_RESILIENT.to_ne_bytes());
            writer.nested(NHA_RES_GROUP, |writer| {
                writer.bytes(NHA_RES_GROUP_BUCKETS, &RESILIENT_BUCKETS.to_ne_bytes());
                writer.bytes(
                    NHA_RES_GROUP_IDLE_TIMER,
                    &idle.saturating_mul(USER_HZ).to_ne_bytes(),
                );
            });
        }
    }
}

fn hop(attributes: Attributes<'_>) -> Option<Hop> {
    let gateway = attributes.get(NHA_GATEWAY)?;
    let v4 = <[u8; 4]>::try_from(gateway).map(IpAddr::from);
    let gateway = v4
        .or_else(|_| <[u8; 16]>::try_from(gateway).map(IpAddr::from))
        .ok()?;
    Some(Hop {
        gateway,
        interface: u32_of(attributes, NHA_OIF)?,
    })
}

fn group(attributes: Attributes<'_>) -> Option<Nexthop> {
    let members = attributes
        .get(NHA_GROUP)?
        .chunks_exact(MEMBER_BYTES)
        .map(|member| Member {
            id: u32::from_ne_bytes([member[0], member[1], member[2], member[3]]),
            weight: member[4].saturating_add(1),
        });
    let kind = attributes
        .get(NHA_GROUP_TYPE)
        .and_then(|kind| Some(u16::from_ne_bytes(kind.try_into().ok()?)));
    let grouping = match kind.unwrap_or(GROUP_PLAIN) {
        GROUP_PLAIN => Grouping::Plain,
        GROUP_RESILIENT => {
            let of_group = attributes.nested(NHA_RES_GROUP)?;
            let buckets = of_group.get(NHA_RES_GROUP_BUCKETS)?;
            // A group of another size cannot become ours.
            (buckets == RESILIENT_BUCKETS.to_ne_bytes()).then_some(())?;
            Grouping::Resilient {
                idle: u32_of(of_group, NHA_RES_GROUP_IDLE_TIMER)? / USER_HZ,
            }
        }
        _ => return None,
    };
    Some(Nexthop::Group {
        grouping,
        members: members.collect(),
    })
}

fn u32_of(attributes: Attributes<'_>, kind: u16) -> Option<u32> {
    attributes
        .get(kind)?
        .try_into()
        .ok()
        .map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> [Nexthop; 4] {
        let members = vec![Member { id: 7, weight: 1 }, Member { id: 8, weight: 255 }];
        [
            Nexthop::Hop(Hop {
                gateway: [10, 1, 0, 2].into(),
                interface: 3,
            }),
            Nexthop::Hop(Hop {
                gateway: "fd00::2".parse().unwrap(),
                interface: 3,
            }),
            Nexthop::Group {
                grouping: Grouping::Plain,
                members: members.clone(),
            },
            Nexthop::Group {
                grouping: Grouping::Resilient { idle: 120 },
                members,
            },
        ]
    }

    #[test]
    fn nexthop_sent_is_recognized_when_read() {
        for nexthop in all() {
            let message = NexthopMessage::new(9, nexthop);
            let read = NexthopMessage::read(message.kind(), &message.payload())
                .unwrap()
                .unwrap();
            assert_eq!(read, message);
        }
    }

    #[test]
    fn foreign_next_hop_is_recognized_and_its_id_is_known() {
        let mut payload = NexthopMessage::new(9, all()[0].clone()).payload();
        payload[2] = 3;
        let read = NexthopMessage::read(RTM_NEWNEXTHOP, &payload)
            .unwrap()
            .unwrap();
        assert_eq!((read.is_ours, read.id), (false, 9));
        payload[4..8].fill(0);
        let read = NexthopMessage::read(RTM_NEWNEXTHOP, &payload)
            .unwrap()
            .unwrap();
        assert_eq!(read.nexthop, Some(Nexthop::Other), "not on the link");
    }

    #[test]
    fn truncated_nexthop_is_an_error_and_other_messages_are_ignored() {
        let payload = NexthopMessage::new(9, all()[3].clone()).payload();
        for length in 0..HEADER_BYTES + 8 {
            assert!(
                NexthopMessage::read(RTM_NEWNEXTHOP, &payload[..length])
                    .unwrap()
                    .is_err(),
                "{length}"
            );
        }
        assert!(NexthopMessage::read(24, &payload).is_none());
    }

    #[test]
    fn nexthops_are_written_as_ip_command_shows_them() {
        let texts = all().map(|nexthop| nexthop.to_string());
        assert_eq!(texts[0], "via 10.1.0.2 dev if3 onlink");
        assert_eq!(texts[2], "group 7,1/8,255");
        assert_eq!(texts[3], "group 7,1/8,255 type resilient idle_timer 120");
    }
}
