//! The registers of a rule, with the bits of each that are known.

use std::collections::BTreeMap;

use super::ruleset::{REGISTER_BYTES, Register};

/// A value, some of whose bits may be unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bits {
    /// The bytes; an unknown bit is 0.
    pub(super) bytes: Vec<u8>,
    /// The known bits of each byte.
    pub(super) known: Vec<u8>,
    /// Why the others are unknown; empty if none is.
    pub(super) reason: String,
}

/// Whether something is so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Yes,
    No,
    /// With the reason.
    Unknown(String),
}

impl From<bool> for Answer {
    fn from(is_so: bool) -> Self {
        if is_so { Self::Yes } else { Self::No }
    }
}

impl Answer {
    /// The opposite, if `is_inverted`.
    pub(super) fn inverted_if(self, is_inverted: bool) -> Self {
        match (self, is_inverted) {
            (Self::Yes, true) => Self::No,
            (Self::No, true) => Self::Yes,
            (answer, _) => answer,
        }
    }

    /// Whether both are so.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::No, _) | (_, Self::No) => Self::No,
            (Self::Unknown(reason), _) | (_, Self::Unknown(reason)) => Self::Unknown(reason),
            _ => Self::Yes,
        }
    }
}

impl Bits {
    /// A value that is known.
    pub(super) fn known(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.to_vec(),
            known: vec![u8::MAX; bytes.len()],
            reason: String::new(),
        }
    }

    /// A value of this length that is not known.
    pub(super) fn unknown(len: usize, reason: &str) -> Self {
        Self {
            bytes: vec![0; len],
            known: vec![0; len],
            reason: reason.to_owned(),
        }
    }

    /// A number in the order of the machine, of which some bits are unknown.
    pub(super) fn number(value: u32, unknown: u32, reason: &str) -> Self {
        Self {
            bytes: (value & !unknown).to_ne_bytes().to_vec(),
            known: (!unknown).to_ne_bytes().to_vec(),
            reason: if unknown == 0 {
                String::new()
            } else {
                reason.to_owned()
            },
        }
    }

    /// Whether all bits are known.
    pub(super) fn is_known(&self) -> bool {
        self.known.iter().all(|known| *known == u8::MAX)
    }

    /// Whether it is equal to a value.
    pub(super) fn is_equal(&self, value: &[u8]) -> Answer {
        let differs = (self.bytes.iter().zip(&self.known).zip(value))
            .any(|((byte, known), value)| (byte ^ value) & known != 0);
        if differs || self.bytes.len() != value.len() {
            Answer::No
        } else if self.is_known() {
            Answer::Yes
        } else {
            Answer::Unknown(self.reason.clone())
        }
    }

    /// Whether `compare` holds between it and a value, byte by byte.
    pub(super) fn compares(
        &self,
        value: &[u8],
        compare: impl FnOnce(&[u8], &[u8]) -> bool,
    ) -> Answer {
        if self.is_known() {
            compare(&self.bytes, value).into()
        } else {
            Answer::Unknown(self.reason.clone())
        }
    }

    /// A part; none if it is not all there.
    pub(super) fn part(&self, offset: usize, len: usize) -> Option<Self> {
        let range = offset..offset.checked_add(len)?;
        Some(Self {
            bytes: self.bytes.get(range.clone())?.to_vec(),
            known: self.known.get(range)?.to_vec(),
            reason: self.reason.clone(),
        })
    }

    /// Masked, and then combined with exclusive or. Bits that the mask clears are known.
    pub(super) fn masked(mut self, mask: &[u8], xor: &[u8]) -> Self {
        let places = self.bytes.iter_mut().zip(&mut self.known);
        for ((byte, known), (mask, xor)) in places.zip(mask.iter().zip(xor)) {
            *known |= !mask;
            *byte = (*byte & mask ^ xor) & *known;
        }
        self
    }

    /// Shifted as the kernel does it, by less than 32 bits: words of four bytes in the order of the machine, with a carry.
    pub(super) fn shifted(mut self, is_left: bool, bits: u32) -> Self {
        shift(&mut self.bytes, is_left, bits);
        // What is shifted in is 0, and known.
        self.known.iter_mut().for_each(|known| *known = !*known);
        shift(&mut self.known, is_left, bits);
        self.known.iter_mut().for_each(|known| *known = !*known);
        self
    }

    /// Each number of this size in the other order; on machines whose order is the network's, in the same.
    pub(super) fn swapped(mut self, size: usize) -> Self {
        if cfg!(target_endian = "little") {
            for bytes in [&mut self.bytes, &mut self.known] {
                bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
            }
        }
        self
    }

    /// The number in the order of the machine, and its unknown bits.
    pub(super) fn as_number(&self) -> (u32, u32) {
        let number = |bytes: &[u8]| bytes.first_chunk().copied().map_or(0, u32::from_ne_bytes);
        (number(&self.bytes), !number(&self.known))
    }
}

/// Shifts words of four bytes in the order of the machine: to the left from the last word on, to the right from the first.
fn shift(bytes: &mut [u8], is_left: bool, bits: u32) {
    let mut carry = 0;
    let mut shift_word = |word: &mut [u8; 4]| {
        let value = u64::from(u32::from_ne_bytes(*word));
        let (shifted, next) = if is_left {
            let wide = value << bits;
            (wide, wide >> 32)
        } else {
            let wide = (value << 32) >> bits;
            (wide >> 32, wide & u64::from(u32::MAX))
        };
        let word_bits = u32::try_from(shifted & u64::from(u32::MAX)).unwrap_or_default();
        *word = (word_bits | carry).to_ne_bytes();
        carry = u32::try_from(next).unwrap_or_default();
    };
    let words = bytes.as_chunks_mut().0;
    if is_left {
        words.iter_mut().rev().for_each(&mut shift_word);
    } else {
        words.iter_mut().for_each(&mut shift_word);
    }
}

/// The registers.
#[derive(Debug, Clone)]
pub(super) struct Registers {
    bytes: [u8; REGISTER_BYTES],
    known: [u8; REGISTER_BYTES],
    /// Why bits are unknown, for each four bytes with such bits.
    reasons: BTreeMap<usize, String>,
}

impl Registers {
    pub(super) fn new() -> Self {
        Self {
            bytes: [0; REGISTER_BYTES],
            known: [u8::MAX; REGISTER_BYTES],
            reasons: BTreeMap::new(),
        }
    }

    /// Reads a value. What is beyond the last register is missing.
    pub(super) fn read(&self, Register(start): Register, len: usize) -> Bits {
        let end = start.saturating_add(len).min(REGISTER_BYTES);
        let range = start.min(end)..end;
        let mut reasons = self.reasons.range(range.start / 4..end.div_ceil(4));
        Bits {
            bytes: self.bytes[range.clone()].to_vec(),
            known: self.known[range].to_vec(),
            reason: reasons
                .next()
                .map_or_else(String::new, |(_, reason)| reason.clone()),
        }
    }

    /// Writes a value, padded with zeros to a multiple of four bytes.
    pub(super) fn write(&mut self, Register(start): Register, value: &Bits) {
        let end = (start + value.bytes.len().next_multiple_of(4)).min(REGISTER_BYTES);
        self.bytes[start..end].fill(0);
        self.known[start..end].fill(u8::MAX);
        let values = value.bytes.iter().zip(&value.known);
        for (place, (byte, known)) in (start..end).zip(values) {
            self.bytes[place] = byte & known;
            self.known[place] = *known;
        }
        for place in start / 4..end / 4 {
            let is_known = self.known[place * 4..place * 4 + 4]
                .iter()
                .all(|known| *known == u8::MAX);
            if is_known {
                self.reasons.remove(&place);
            } else {
                self.reasons.insert(place, value.reason.clone());
            }
        }
    }
}
