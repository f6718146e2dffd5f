//! An object of routing netlink as it is sent: a header and attributes.

use std::{collections::BTreeMap, net::IpAddr};

use crate::kernel::{
    attributes::{Attributes, Writer},
    errno::{Errno, Result, refuse},
    message::{self, Message},
    uapi::{NFPROTO_IPV4, NFPROTO_IPV6},
};

/// An object. Two are the same if they were sent alike, in whatever order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) header: Vec<u8>,
    /// The payloads of the attributes, by their types.
    pub(super) attributes: BTreeMap<u16, Vec<u8>>,
}

impl Object {
    /// The object of a message with a header of this size.
    pub(super) fn read(message: &Message<'_>, header: usize) -> Result<Self> {
        let start = message::HEADER + header;
        let (Some(bytes), Some(rest)) = (
            message.bytes.get(message::HEADER..start),
            message.bytes.get(start..),
        ) else {
            return refuse(Errno::EINVAL);
        };
        let attributes = Attributes::new(rest, start).iter();
        let attributes = attributes
            .map(|attribute| (attribute.kind, attribute.payload.to_vec()))
            .collect();
        Ok(Self {
            header: bytes.to_vec(),
            attributes,
        })
    }

    /// The message with the object.
    pub(super) fn message(&self, kind: u16, flags: u16, sequence: u32, port: u32) -> Vec<u8> {
        let mut writer = Writer(self.header.clone());
        for (kind, payload) in &self.attributes {
            writer.bytes(*kind, payload);
        }
        message::raw(kind, flags, sequence, port, &writer.0)
    }

    /// A number; zero without the attribute.
    pub(super) fn number(&self, kind: u16) -> u32 {
        let bytes = self
            .attributes
            .get(&kind)
            .and_then(|payload| payload.first_chunk().copied());
        bytes.map_or(0, u32::from_ne_bytes)
    }

    pub(super) fn address(&self, kind: u16) -> Option<IpAddr> {
        let payload = self.attributes.get(&kind)?;
        let v4 = <[u8; 4]>::try_from(payload.as_slice()).map(IpAddr::from);
        v4.or_else(|_| <[u8; 16]>::try_from(payload.as_slice()).map(IpAddr::from))
            .ok()
    }

    pub(super) fn set_number(&mut self, kind: u16, number: u32) {
        self.attributes.insert(kind, number.to_ne_bytes().to_vec());
    }

    pub(super) fn set_address(&mut self, kind: u16, address: IpAddr) {
        let bytes = match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        self.attributes.insert(kind, bytes);
    }
}

/// The number of an address family, which is the same in netfilter.
pub(super) const fn family_of(address: IpAddr) -> u8 {
    if address.is_ipv4() {
        NFPROTO_IPV4
    } else {
        NFPROTO_IPV6
    }
}
