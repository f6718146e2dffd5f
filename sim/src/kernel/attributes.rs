//! Netlink attributes, as `lib/nlattr.c` reads and writes them.

use super::errno::{Errno, Result, refuse};

const HEADER_BYTES: usize = 4;
const F_NESTED: u16 = 1 << 15;
const TYPE_MASK: u16 = 0x3fff;

/// One attribute of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attribute<'a> {
    pub(crate) kind: u16,
    pub(crate) payload: &'a [u8],
    /// The byte of the message at which its header begins.
    pub(crate) at: usize,
}

/// A sequence of attributes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attributes<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Attributes<'a> {
    /// The attributes in `bytes`, which begin at byte `at` of the message.
    pub(crate) const fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// Each attribute, up to the first one that is malformed.
    pub(crate) fn iter(self) -> impl Iterator<Item = Attribute<'a>> {
        let Self { mut bytes, mut at } = self;
        std::iter::from_fn(move || {
            let [l0, l1, k0, k1] = *bytes.first_chunk::<HEADER_BYTES>()?;
            let length = usize::from(u16::from_ne_bytes([l0, l1]));
            let payload = bytes.get(HEADER_BYTES..length)?;
            let attribute = Attribute {
                kind: u16::from_ne_bytes([k0, k1]) & TYPE_MASK,
                payload,
                at,
            };
            let step = length.next_multiple_of(4);
            bytes = bytes.get(step..).unwrap_or_default();
            at += step;
            Some(attribute)
        })
    }

    /// The attribute of this kind. The last one, if there are several.
    pub(crate) fn get(self, kind: u16) -> Option<Attribute<'a>> {
        self.iter()
            .filter(|attribute| attribute.kind == kind)
            .last()
    }

    pub(crate) fn has(self, kind: u16) -> bool {
        self.get(kind).is_some()
    }

    /// The offset of the attribute of this kind.
    pub(crate) fn at(self, kind: u16) -> Option<usize> {
        self.get(kind).map(|attribute| attribute.at)
    }

    pub(crate) fn u32(self, kind: u16) -> Result<Option<u32>> {
        self.get(kind).map(Attribute::u32).transpose()
    }

    pub(crate) fn u64(self, kind: u16) -> Result<Option<u64>> {
        self.get(kind).map(Attribute::u64).transpose()
    }

    pub(crate) fn text(self, kind: u16) -> Option<&'a str> {
        self.get(kind).and_then(Attribute::text)
    }

    pub(crate) fn nested(self, kind: u16) -> Option<Attributes<'a>> {
        self.get(kind).map(Attribute::nested)
    }
}

impl<'a> Attribute<'a> {
    pub(crate) const fn nested(self) -> Attributes<'a> {
        Attributes {
            bytes: self.payload,
            at: self.at + HEADER_BYTES,
        }
    }

    /// A number in network byte order. A longer attribute is truncated, a shorter one refused.
    pub(crate) fn u32(self) -> Result<u32> {
        match self.payload.first_chunk() {
            Some(bytes) => Ok(u32::from_be_bytes(*bytes)),
            None => refuse(Errno::ERANGE),
        }
    }

    pub(crate) fn u64(self) -> Result<u64> {
        match self.payload.first_chunk() {
            Some(bytes) => Ok(u64::from_be_bytes(*bytes)),
            None => refuse(Errno::ERANGE),
        }
    }

    pub(crate) fn u8(self) -> Result<u8> {
        self.payload.first().copied().ok_or(Errno::ERANGE.into())
    }

    /// Text up to its terminating zero.
    pub(crate) fn text(self) -> Option<&'a str> {
        let end = self
            .payload
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(self.payload.len());
        std::str::from_utf8(&self.payload[..end]).ok()
    }
}

/// Writes attributes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn bytes(&mut self, kind: u16, payload: &[u8]) {
        self.header(kind, payload.len());
        self.0.extend_from_slice(payload);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    pub(crate) fn text(&mut self, kind: u16, text: &str) {
        self.bytes(kind, &[text.as_bytes(), &[0]].concat());
    }

    pub(crate) fn u8(&mut self, kind: u16, value: u8) {
        self.bytes(kind, &[value]);
    }

    pub(crate) fn u32(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_be_bytes());
    }

    pub(crate) fn u64(&mut self, kind: u16, value: u64) {
        self.bytes(kind, &value.to_be_bytes());
    }

    pub(crate) fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let start = self.0.len();
        self.header(kind | F_NESTED, 0);
        fill(self);
        let length = u16::try_from(self.0.len() - start)
            .unwrap_or(u16::MAX)
            .to_ne_bytes();
        self.0[start..start + 2].copy_from_slice(&length);
    }

    fn header(&mut self, kind: u16, payload: usize) {
        let length = u16::try_from(HEADER_BYTES + payload).unwrap_or(u16::MAX);
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
    }
}
