//! Registers: 16 of four bytes, or four of sixteen bytes in the same memory, and one for the verdict.

use crate::kernel::{
    attributes::Attribute,
    errno::{Errno, Result, refuse},
};

/// A register, by the index of its first four bytes. The first 16 bytes are the verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Register(u32);

/// Four-byte parts of a register of sixteen bytes.
const PARTS_PER_REGISTER: u32 = 4;
/// All four-byte parts, including those of the verdict.
const TOTAL_PARTS: u32 = 20;
/// The number of the first four-byte register: `NFT_REG32_00`.
const FIRST_SMALL: u32 = 8;

impl Register {
    pub(crate) const VERDICT: Self = Self(0);

    /// `nft_parse_register`
    pub(crate) fn read(attribute: Attribute<'_>) -> Result<Self> {
        match attribute.u32()? {
            number @ 0..=4 => Ok(Self(number * PARTS_PER_REGISTER)),
            number @ FIRST_SMALL..=23 => Ok(Self(number - FIRST_SMALL + PARTS_PER_REGISTER)),
            _ => refuse(Errno::ERANGE),
        }
    }

    /// `nft_dump_register`
    pub(crate) const fn number(self) -> u32 {
        if self.0.is_multiple_of(PARTS_PER_REGISTER) {
            self.0 / PARTS_PER_REGISTER
        } else {
            self.0 - PARTS_PER_REGISTER + FIRST_SMALL
        }
    }

    /// The offset of its bytes in those of all registers except the verdict.
    pub(crate) const fn offset(self) -> usize {
        (self.0.saturating_sub(PARTS_PER_REGISTER) * 4) as usize
    }
}

/// The registers that the expressions of a rule have written so far.
#[derive(Debug, Default)]
pub(crate) struct Registers {
    /// One bit for each four-byte part.
    written: u32,
}

impl Registers {
    /// `nft_parse_register_load`
    pub(crate) fn load(&self, attribute: Option<Attribute<'_>>, len: u32) -> Result<Register> {
        let register = Self::checked(attribute, len)?;
        let parts = mask(register, len);
        if self.written & parts == parts {
            Ok(register)
        } else {
            refuse(Errno::ENODATA)
        }
    }

    /// `nft_parse_register_store`, of a value.
    pub(crate) fn store(&mut self, attribute: Option<Attribute<'_>>, len: u32) -> Result<Register> {
        let register = Self::checked(attribute, len)?;
        self.written |= mask(register, len);
        Ok(register)
    }

    fn checked(attribute: Option<Attribute<'_>>, len: u32) -> Result<Register> {
        let Some(attribute) = attribute else {
            return refuse(Errno::EINVAL);
        };
        let register = Register::read(attribute)?;
        if register.0 < PARTS_PER_REGISTER || len == 0 {
            return refuse(Errno::EINVAL);
        }
        if register.0 * 4 + len > TOTAL_PARTS * 4 {
            return refuse(Errno::ERANGE);
        }
        Ok(register)
    }
}

/// The bits of the four-byte parts that a value of this length fills.
fn mask(register: Register, len: u32) -> u32 {
    (0..len.div_ceil(4))
        .map(|part| 1 << (register.0 + part))
        .sum()
}
