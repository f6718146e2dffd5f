//! One element of a set.

use super::{data::Data, errno::Errno};

/// An element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) key: Vec<u8>,
    /// The last key of an interval of a concatenation.
    pub(crate) key_end: Option<Vec<u8>>,
    pub(crate) data: Option<Data>,
    /// It is the end of an interval: `NFT_SET_ELEM_INTERVAL_END`.
    pub(crate) is_end: bool,
    pub(crate) userdata: Vec<u8>,
    /// The number of packets that matched it, if the set has counters.
    pub(crate) counter: Option<Counter>,
    /// Its timeout in milliseconds, 0 for none; none if its set has no timeouts.
    pub(crate) timeout: Option<u64>,
    /// When it expires, in milliseconds of the model's clock.
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

/// Why an element is not added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InsertConflict {
    /// This element exists already.
    Same(Box<Element>),
    /// It overlaps another one, or is invalid.
    Refused(Errno),
    /// It changes nothing, and is ignored.
    Needless,
}
