//! Netlink messages with the header of nfnetlink.

use super::{
    attributes::{Attributes, Writer},
    errno::Refusal,
    uapi::{NLM_F_ACK_TLVS, NLM_F_CAPPED, NLMSG_DONE, NLMSG_ERROR, NLMSGERR_ATTR_OFFS},
};

pub(crate) const HEADER: usize = 16;
const NFGEN: usize = 4;

/// One message of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    /// The whole message, including its headers.
    pub(crate) bytes: &'a [u8],
}

impl<'a> Message<'a> {
    /// The first message in `bytes`, and the bytes after it.
    pub(crate) fn first(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let header = bytes.first_chunk::<HEADER>()?;
        let word = |at: usize| {
            u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let length = word(0) as usize;
        let whole = bytes.get(..length).filter(|whole| whole.len() >= HEADER)?;
        let message = Self {
            kind: half(4),
            flags: half(6),
            sequence: word(8),
            bytes: whole,
        };
        Some((
            message,
            bytes.get(length.next_multiple_of(4)..).unwrap_or_default(),
        ))
    }

    /// Whether it is long enough for the header of nfnetlink.
    pub(crate) fn is_complete(&self) -> bool {
        self.bytes.len() >= HEADER + NFGEN
    }

    pub(crate) fn subsystem(&self) -> u8 {
        self.kind.to_be_bytes()[0]
    }

    /// The kind within the subsystem.
    pub(crate) fn kind_in_subsystem(&self) -> u8 {
        self.kind.to_be_bytes()[1]
    }

    pub(crate) fn family(&self) -> u8 {
        self.bytes.get(HEADER).copied().unwrap_or_default()
    }

    pub(crate) fn resource(&self) -> u16 {
        self.bytes
            .get(HEADER + 2..HEADER + 4)
            .map_or(0, |id| u16::from_be_bytes([id[0], id[1]]))
    }

    pub(crate) fn attributes(&self) -> Attributes<'a> {
        Attributes::new(
            self.bytes.get(HEADER + NFGEN..).unwrap_or_default(),
            HEADER + NFGEN,
        )
    }

    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// All messages in `bytes`, up to the first one that is malformed.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let (message, rest) = Message::first(bytes)?;
        bytes = rest;
        Some(message)
    })
}

/// The headers of a message to write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) subsystem: u8,
    pub(crate) kind: u8,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) port: u32,
    pub(crate) family: u8,
    pub(crate) resource: u16,
}

impl Frame {
    /// A message with these attributes.
    pub(crate) fn write(self, fill: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let kind = u16::from_be_bytes([self.subsystem, self.kind]);
        let mut payload = vec![self.family, 0];
        payload.extend_from_slice(&self.resource.to_be_bytes());
        let mut writer = Writer(payload);
        fill(&mut writer);
        raw(kind, self.flags, self.sequence, self.port, &writer.0)
    }
}

/// A message of any kind.
pub(crate) fn raw(kind: u16, flags: u16, sequence: u32, port: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + payload.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(HEADER + payload.len());
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&flags.to_ne_bytes());
    bytes.extend_from_slice(&sequence.to_ne_bytes());
    bytes.extend_from_slice(&port.to_ne_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// The answer to a message: an error, or that it was done. The sockets of the renderer request answers without a copy of the
/// message, but with the offset of the error.
pub(crate) fn acknowledgement(of: &Message<'_>, port: u32, refused: Option<Refusal>) -> Vec<u8> {
    let code = refused.map_or(0, |refused| -refused.errno.0);
    let mut payload = code.to_ne_bytes().to_vec();
    payload.extend_from_slice(&of.bytes[..HEADER.min(of.bytes.len())]);
    let mut flags = NLM_F_CAPPED;
    if let Some(at) = refused.and_then(|refused| refused.at) {
        flags |= NLM_F_ACK_TLVS;
        let mut writer = Writer(payload);
        // This field is in host byte order.
        writer.bytes(
            NLMSGERR_ATTR_OFFS,
            &u32::try_from(at).unwrap_or_default().to_ne_bytes(),
        );
        payload = writer.0;
    }
    raw(NLMSG_ERROR, flags, of.sequence, port, &payload)
}

/// The end of a dump.
pub(crate) fn done(flags: u16, sequence: u32, port: u32) -> Vec<u8> {
    raw(NLMSG_DONE, flags, sequence, port, &0_i32.to_ne_bytes())
}
