//! Messages of routing netlink: those of the library, and those of next hops, which it lacks.

use rtnetlink::{
    packet_core::{DecodeError, NetlinkDeserializable, NetlinkHeader, NetlinkSerializable},
    packet_route::RouteNetlinkMessage,
};

use super::nexthop::NexthopMessage;

/// A message of routing netlink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Message {
    Route(Box<RouteNetlinkMessage>),
    Nexthop(NexthopMessage),
}

impl From<RouteNetlinkMessage> for Message {
    fn from(message: RouteNetlinkMessage) -> Self {
        Self::Route(Box::new(message))
    }
}

impl From<NexthopMessage> for Message {
    fn from(message: NexthopMessage) -> Self {
        Self::Nexthop(message)
    }
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        match self {
            Self::Route(message) => message.message_type(),
            Self::Nexthop(message) => message.kind(),
        }
    }

    fn buffer_len(&self) -> usize {
        match self {
            Self::Route(message) => NetlinkSerializable::buffer_len(&**message),
            Self::Nexthop(message) => message.payload().len(),
        }
    }

    fn serialize(&self, buffer: &mut [u8]) {
        match self {
            Self::Route(message) => message.serialize(buffer),
            Self::Nexthop(message) => buffer.copy_from_slice(&message.payload()),
        }
    }
}

impl NetlinkDeserializable for Message {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        if let Some(message) = NexthopMessage::read(header.message_type, payload) {
            return message.map(Self::Nexthop);
        }
        RouteNetlinkMessage::deserialize(header, payload).map(Self::from)
    }
}
