//! A batch: messages that the kernel applies atomically.

use std::fmt;

use super::constants::{
    NFNL_MSG_BATCH_BEGIN, NFNL_MSG_BATCH_END, NFNL_SUBSYS_NFTABLES, NFPROTO_INET,
};
use crate::netlink::{
    Writer,
    message::{NLM_F_ACK, NLM_F_REQUEST, begin_message, end_message, kind_of},
};

const NLM_F_CREATE: u16 = 0x400;
const NLM_F_APPEND: u16 = 0x800;

/// The messages of a transaction under construction.
pub(crate) struct Batch {
    bytes: Vec<u8>,
    /// Describes each message, formatted only for errors; the message with sequence number `i + 1` is at `i`.
    subjects: Vec<Box<dyn fmt::Display + Send>>,
    /// The start of the last message.
    last: usize,
    /// The last id of a set.
    last_set_id: u32,
}

impl Batch {
    pub(crate) fn new() -> Self {
        let mut bytes = Vec::with_capacity(4096);
        let nfgen = u16::from(NFNL_SUBSYS_NFTABLES);
        begin_message(&mut bytes, NFNL_MSG_BATCH_BEGIN, NLM_F_REQUEST, 0, 0, nfgen);
        end_message(&mut bytes, 0);
        Self {
            bytes,
            subjects: Vec::new(),
            last: 0,
            last_set_id: 0,
        }
    }

    /// Adds a message that creates an object; nothing happens if it exists already in the same form.
    pub(crate) fn create(
        &mut self,
        kind: u8,
        subject: impl fmt::Display + Send + 'static,
        fill: impl FnOnce(&mut Writer<'_>),
    ) {
        self.message(kind, NLM_F_CREATE, subject, fill);
    }

    /// Adds a message that appends an object, such as a rule to its chain.
    pub(crate) fn append(
        &mut self,
        kind: u8,
        subject: impl fmt::Display + Send + 'static,
        fill: impl FnOnce(&mut Writer<'_>),
    ) {
        self.message(kind, NLM_F_CREATE | NLM_F_APPEND, subject, fill);
    }

    /// Adds a message that deletes an object.
    pub(crate) fn delete(
        &mut self,
        kind: u8,
        subject: impl fmt::Display + Send + 'static,
        fill: impl FnOnce(&mut Writer<'_>),
    ) {
        self.message(kind, 0, subject, fill);
    }

    /// An id that is unique in this batch: a rule refers to an anonymous set by it before the kernel has named the set.
    pub(crate) fn new_set_id(&mut self) -> u32 {
        self.last_set_id += 1;
        self.last_set_id
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.subjects.is_empty()
    }

    /// Bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Reserves space for so many more bytes.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    /// The message with this sequence number.
    pub(super) fn message_bytes(&self, sequence: u32) -> Option<&[u8]> {
        let mut rest = self.bytes.as_slice();
        // The first one only begins the batch.
        for _ in 0..sequence {
            let length = u32::from_ne_bytes(*rest.first_chunk()?) as usize;
            rest = rest.get(length..)?;
        }
        let length = u32::from_ne_bytes(*rest.first_chunk()?) as usize;
        rest.get(..length)
    }

    /// The description of the message with this sequence number.
    pub(super) fn subject(&self, sequence: u32) -> Option<String> {
        self.subjects
            .get(sequence.checked_sub(1)? as usize)
            .map(ToString::to_string)
    }

    /// The finished bytes, and the sequence number of the last message, which the kernel acknowledges.
    pub(crate) fn finish(&mut self) -> (&[u8], u32) {
        #[allow(clippy::cast_possible_truncation)]
        let sequence = self.subjects.len() as u32;
        let flags = &mut self.bytes[self.last + 6..self.last + 8];
        flags
            .copy_from_slice(&(u16::from_ne_bytes([flags[0], flags[1]]) | NLM_F_ACK).to_ne_bytes());
        let start = self.bytes.len();
        let nfgen = u16::from(NFNL_SUBSYS_NFTABLES);
        begin_message(
            &mut self.bytes,
            NFNL_MSG_BATCH_END,
            NLM_F_REQUEST,
            sequence + 1,
            0,
            nfgen,
        );
        end_message(&mut self.bytes, start);
        (&self.bytes, sequence)
    }

    fn message(
        &mut self,
        kind: u8,
        flags: u16,
        subject: impl fmt::Display + Send + 'static,
        fill: impl FnOnce(&mut Writer<'_>),
    ) {
        self.subjects.push(Box::new(subject));
        #[allow(clippy::cast_possible_truncation)]
        let sequence = self.subjects.len() as u32;
        self.last = self.bytes.len();
        let kind = kind_of(NFNL_SUBSYS_NFTABLES, kind);
        begin_message(
            &mut self.bytes,
            kind,
            NLM_F_REQUEST | flags,
            sequence,
            NFPROTO_INET,
            0,
        );
        fill(&mut Writer::new(&mut self.bytes));
        end_message(&mut self.bytes, self.last);
    }
}
