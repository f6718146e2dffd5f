//! One element of a set.

use super::{data::Data, errno::Errno};

/// An element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) key: Vec<u8>,
    /// The last key of an interval of a concatenation.
    pub(crate) key_end: Option<Vec<u8>>,
    pub(crate) data: Option<Data>,
    /// It ends the interval before it: `NFT_SET_ELEM_INTERVAL_END`.
    pub(crate) is_end: bool,
    pub(crate) userdata: Vec<u8>,
    /// How often packets have found it, where that is counted.
    pub(crate) counter: Option<Counter>,
    /// How long it lives after it was last written, in milliseconds, and 0 for ever; none where its set has no time limits.
    pub(crate) timeout: Option<u64>,
    /// When it ends, in milliseconds of the model's clock.
    pub(crate) expires: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counter {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

impl Element {
    pub(crate) fn is_expired(&self, now: u64) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

/// Why an element does not go in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Clash {
    /// This one has its place.
    Same(Box<Element>),
    /// It overlaps another one, or makes no sense.
    Refused(Errno),
    /// It says nothing that is not so already.
    Needless,
}
