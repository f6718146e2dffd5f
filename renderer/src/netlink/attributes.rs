//! Netlink attributes: writer and reader. Source: the kernel's `include/uapi/linux/netlink.h` and `lib/nlattr.c`.

/// Marks an attribute whose payload is attributes again.
const NLA_F_NESTED: u16 = 1 << 15;
const NLA_TYPE_MASK: u16 = 0x3fff;
const HEADER_BYTES: usize = 4;

/// Appends attributes to a message.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    bytes: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(bytes: &'a mut Vec<u8>) -> Self {
        Self { bytes }
    }

    /// Raw bytes, padded to four.
    pub(crate) fn bytes(&mut self, kind: u16, payload: &[u8]) {
        self.header(kind, payload.len());
        self.bytes.extend_from_slice(payload);
        self.pad();
    }

    /// Adds an attribute whose payload `fill` writes in place.
    pub(crate) fn payload(&mut self, kind: u16, fill: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        self.header(kind, 0);
        fill(self.bytes);
        self.end(start);
        self.pad();
    }

    /// Text with a terminating zero, as the kernel expects names.
    pub(crate) fn text(&mut self, kind: u16, text: &str) {
        self.header(kind, text.len() + 1);
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(0);
        self.pad();
    }

    /// A number in network order, as nf_tables expects all numbers.
    pub(crate) fn u32(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_be_bytes());
    }

    pub(crate) fn u8(&mut self, kind: u16, value: u8) {
        self.bytes(kind, &[value]);
    }

    /// A nested attribute. The payload must stay below 64 KiB: the length field has 16 bits.
    pub(crate) fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Writer<'_>)) {
        let start = self.bytes.len();
        self.header(kind | NLA_F_NESTED, 0);
        fill(self);
        self.end(start);
    }

    /// Fills in the length of the attribute that begins at `start`.
    fn end(&mut self, start: usize) {
        let length = self.bytes.len() - start;
        debug_assert!(
            u16::try_from(length).is_ok(),
            "an attribute of {length} bytes does not fit its length field"
        );
        #[allow(clippy::cast_possible_truncation)]
        let length = (length as u16).to_ne_bytes();
        self.bytes[start..start + 2].copy_from_slice(&length);
    }

    fn header(&mut self, kind: u16, payload: usize) {
        #[allow(clippy::cast_possible_truncation)]
        let length = (HEADER_BYTES + payload) as u16;
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// The attributes of a received message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attributes<'a>(pub(crate) &'a [u8]);

impl<'a> Attributes<'a> {
    /// Type and payload of each attribute. Ends at the first one that is malformed.
    pub(crate) fn iter(self) -> impl Iterator<Item = (u16, &'a [u8])> {
        self.marked().map(|(kind, _, payload)| (kind, payload))
    }

    /// Type, whether it is marked as nested, and payload of each attribute. [`Writer`] marks them, the kernel may not.
    pub(crate) fn marked(self) -> impl Iterator<Item = (u16, bool, &'a [u8])> {
        let mut bytes = self.0;
        std::iter::from_fn(move || {
            let header = bytes.first_chunk::<HEADER_BYTES>()?;
            let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
            let kind = u16::from_ne_bytes([header[2], header[3]]);
            let payload = bytes.get(HEADER_BYTES..length)?;
            bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
            Some((kind & NLA_TYPE_MASK, kind & NLA_F_NESTED != 0, payload))
        })
    }

    /// The payload of the first attribute of this type.
    pub(crate) fn get(self, kind: u16) -> Option<&'a [u8]> {
        self.iter()
            .find(|(found, _)| *found == kind)
            .map(|(_, payload)| payload)
    }

    /// The attributes inside the first attribute of this type.
    pub(crate) fn nested(self, kind: u16) -> Option<Attributes<'a>> {
        self.get(kind).map(Attributes)
    }

    /// Text up to its terminating zero.
    pub(crate) fn text(self, kind: u16) -> Option<&'a str> {
        let payload = self.get(kind)?;
        let end = payload
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(payload.len());
        std::str::from_utf8(&payload[..end]).ok()
    }

    /// A number in network order.
    pub(crate) fn u32(self, kind: u16) -> Option<u32> {
        self.get(kind)?.try_into().ok().map(u32::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_written_read_back() {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.text(1, "contiv");
        writer.nested(2, |inner| {
            inner.u32(1, 0x0102_0304);
            inner.u8(2, 7);
        });
        writer.bytes(3, &[1, 2, 3, 4, 5]);

        let attributes = Attributes(&bytes);
        assert_eq!(attributes.text(1), Some("contiv"));
        let inner = attributes.nested(2).unwrap();
        assert_eq!(
            (inner.u32(1), inner.get(2)),
            (Some(0x0102_0304), Some(&[7][..]))
        );
        assert_eq!(attributes.get(3), Some(&[1, 2, 3, 4, 5][..]));
        assert_eq!(attributes.get(4), None);
    }

    #[test]
    fn length_beyond_end_or_below_header_ends_list() {
        assert_eq!(Attributes(&[12, 0, 1, 0, 1, 2]).iter().next(), None);
        assert_eq!(Attributes(&[3, 0, 1, 0, 1, 2]).iter().next(), None);
        assert_eq!(Attributes(&[4, 0]).iter().next(), None);
    }
}
