//! Messages of the netfilter subsystems: written with their two headers, and split again. Source: the kernel's
//! `include/uapi/linux/netlink.h` and `netfilter/nfnetlink.h`.

use super::attributes::{Attributes, Writer};

/// Requested as receive buffer for answers; without CAP_NET_ADMIN in the first user namespace it stays smaller.
pub(crate) const ANSWER_BUFFER: usize = 4 << 20;
/// The kernel sends at most 32 KiB in one piece of a dump.
pub(crate) const PIECE_CAPACITY: usize = 64 << 10;

/// The subsystem of logged packets.
pub(crate) const NFNL_SUBSYS_ULOG: u8 = 4;
/// The subsystem of conntrack.
pub(crate) const NFNL_SUBSYS_CTNETLINK: u8 = 1;

const MESSAGE_HEADER: usize = 16;
const NFGEN_HEADER: usize = 4;
pub(crate) const NLM_F_REQUEST: u16 = 0x1;
pub(crate) const NLM_F_ACK: u16 = 0x4;
pub(crate) const NLM_F_DUMP: u16 = 0x300;
/// Marks an inconsistent dump.
pub(crate) const NLM_F_DUMP_INTR: u16 = 0x10;
pub(crate) const NLMSG_ERROR: u16 = 2;
/// An error message ends in attributes with details: `NLM_F_ACK_TLVS`.
const NLM_F_ACK_TLVS: u16 = 0x200;
/// The text of an error, and the position of its cause in the refused message. Source: `include/uapi/linux/netlink.h`.
const NLMSGERR_ATTR_MSG: u16 = 1;
const NLMSGERR_ATTR_OFFS: u16 = 2;
pub(crate) const NLMSG_DONE: u16 = 3;

/// Writes the headers of a message, with a length to be filled in by [`end_message`].
pub(crate) fn begin_message(
    bytes: &mut Vec<u8>,
    kind: u16,
    flags: u16,
    sequence: u32,
    family: u8,
    resource: u16,
) {
    bytes.extend_from_slice(&0u32.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&flags.to_ne_bytes());
    bytes.extend_from_slice(&sequence.to_ne_bytes());
    bytes.extend_from_slice(&0u32.to_ne_bytes());
    bytes.extend_from_slice(&[family, 0]);
    bytes.extend_from_slice(&resource.to_be_bytes());
}

/// Fills in the length of the message that begins at `start`.
pub(crate) fn end_message(bytes: &mut [u8], start: usize) {
    #[allow(clippy::cast_possible_truncation)]
    let length = (bytes.len() - start) as u32;
    bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
}

/// A request for a dump, with the attributes that `fill` writes.
pub(crate) fn dump_request(kind: u16, family: u8, fill: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut request = Vec::new();
    begin_message(&mut request, kind, NLM_F_REQUEST | NLM_F_DUMP, 1, family, 0);
    fill(&mut Writer::new(&mut request));
    end_message(&mut request, 0);
    request
}

/// A request of any protocol: its own header, and the attributes that `fill` writes.
pub(crate) fn request(
    kind: u16,
    flags: u16,
    sequence: u32,
    header: &[u8],
    fill: impl FnOnce(&mut Writer<'_>),
) -> Vec<u8> {
    let mut request = Vec::new();
    begin_message(&mut request, kind, NLM_F_REQUEST | flags, sequence, 0, 0);
    request.truncate(MESSAGE_HEADER);
    request.extend_from_slice(header);
    fill(&mut Writer::new(&mut request));
    end_message(&mut request, 0);
    request
}

/// The kind of a message of a netfilter subsystem.
pub(crate) const fn kind_of(subsystem: u8, message: u8) -> u16 {
    u16::from_be_bytes([subsystem, message])
}

/// One received message.
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// For a message of a netfilter subsystem: its address family.
    pub(crate) fn family(&self) -> Option<u8> {
        self.payload.first().copied()
    }

    /// What follows the header of netlink.
    pub(crate) const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// For a message about an object: its attributes; none for other messages.
    pub(crate) fn object(self, subsystem: u8) -> Option<Attributes<'a>> {
        (self.kind >> 8 == u16::from(subsystem))
            .then(|| Attributes(self.payload.get(NFGEN_HEADER..).unwrap_or_default()))
    }

    /// For an error message, and the end of a dump: zero for an acknowledgement, else the negative error number.
    pub(crate) fn error_code(&self) -> i32 {
        self.payload
            .first_chunk()
            .copied()
            .map_or(0, i32::from_ne_bytes)
    }

    /// For an error message: the kernel's text, if any.
    pub(crate) fn error_text(&self) -> Option<&'a str> {
        self.error_attributes()?.text(NLMSGERR_ATTR_MSG)
    }

    /// For an error message: the offset in the refused message of the attribute that caused the error, if the kernel reports
    /// it.
    pub(crate) fn error_offset(&self) -> Option<usize> {
        let offset = self
            .error_attributes()?
            .get(NLMSGERR_ATTR_OFFS)?
            .try_into()
            .ok()?;
        usize::try_from(u32::from_ne_bytes(offset)).ok()
    }

    fn error_attributes(&self) -> Option<Attributes<'a>> {
        // The code is followed by the header of the refused message; its content is not requested.
        let attributes = self.payload.get(size_of::<i32>() + MESSAGE_HEADER..)?;
        (self.flags & NLM_F_ACK_TLVS != 0).then_some(Attributes(attributes))
    }
}

/// True if these bytes are messages, each of them complete.
pub(crate) fn has_complete_messages(bytes: &[u8]) -> bool {
    let length: usize = messages(bytes)
        .map(|message| (MESSAGE_HEADER + message.payload.len()).next_multiple_of(4))
        .sum();
    // The last one may be unpadded.
    !bytes.is_empty() && length == bytes.len().next_multiple_of(4)
}

/// Splits received bytes into messages. Ends at the first one that is malformed.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let header = bytes.first_chunk::<MESSAGE_HEADER>()?;
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let message = Message {
            kind: u16::from_ne_bytes([header[4], header[5]]),
            flags: u16::from_ne_bytes([header[6], header[7]]),
            sequence: u32::from_ne_bytes([header[8], header[9], header[10], header[11]]),
            payload: bytes.get(MESSAGE_HEADER..length)?,
        };
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message with this payload, unpadded.
    fn message(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        begin_message(&mut bytes, kind, flags, sequence, 0, 0);
        bytes.truncate(MESSAGE_HEADER);
        bytes.extend_from_slice(payload);
        end_message(&mut bytes, 0);
        bytes
    }

    #[test]
    fn messages_are_complete_if_the_last_one_is() {
        let (padded, odd) = (
            message(NLMSG_DONE, 0, 1, &[0; 4]),
            message(NLMSG_DONE, 0, 2, &[0; 5]),
        );
        let both = [&padded[..], &odd].concat();
        assert!(has_complete_messages(&padded));
        assert!(has_complete_messages(&both), "the last one is unpadded");
        assert!(
            has_complete_messages(&[&both[..], &[0; 3]].concat()),
            "and padded"
        );
        for end in [
            0,
            1,
            MESSAGE_HEADER - 1,
            MESSAGE_HEADER,
            padded.len() - 1,
            padded.len() + 3,
            both.len() - 1,
        ] {
            assert!(
                !has_complete_messages(&both[..end]) || end == padded.len(),
                "cut off after {end}"
            );
        }
        let sequences: Vec<u32> = messages(&both).map(|message| message.sequence).collect();
        assert_eq!(sequences, [1, 2]);
    }

    #[test]
    fn message_of_wrong_length_ends_the_others() {
        let mut bytes = [
            message(NLMSG_DONE, 0, 1, &[0; 4]),
            message(NLMSG_DONE, 0, 2, &[0; 4]),
        ]
        .concat();
        for length in [0, 15, 21] {
            bytes[20..24].copy_from_slice(&u32::to_ne_bytes(length));
            assert_eq!(messages(&bytes).count(), 1, "of length {length}");
            assert!(!has_complete_messages(&bytes), "of length {length}");
        }
    }

    #[test]
    fn error_has_its_code_and_where_it_is_details() {
        let mut payload = (-17_i32).to_ne_bytes().to_vec();
        payload.extend_from_slice(&[0; MESSAGE_HEADER]);
        let mut writer = super::super::attributes::Writer::new(&mut payload);
        writer.text(NLMSGERR_ATTR_MSG, "no room");
        writer.bytes(NLMSGERR_ATTR_OFFS, &28_u32.to_ne_bytes());
        for (flags, text, offset) in [
            (NLM_F_ACK_TLVS, Some("no room"), Some(28)),
            (NLM_F_ACK, None, None),
        ] {
            let bytes = message(NLMSG_ERROR, flags, 1, &payload);
            let error = messages(&bytes).next().unwrap();
            assert_eq!(
                (error.error_code(), error.error_text(), error.error_offset()),
                (-17, text, offset)
            );
        }
    }
}
