//! The expressions of rules.

pub(crate) mod register;

use self::register::Register;
use super::data::{Data, Handle};

/// One expression of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expression {
    Immediate {
        to: Register,
        data: Data,
    },
    Bitwise {
        from: Register,
        to: Register,
        mask: Vec<u8>,
        xor: Vec<u8>,
    },
    Compare {
        from: Register,
        operator: u32,
        value: Vec<u8>,
    },
    Lookup {
        set: Handle,
        key: Register,
        /// The destination register of the found data.
        to: Option<Register>,
        invert: bool,
    },
    Dynset {
        set: Handle,
        operation: u32,
        key: Register,
        data: Option<Register>,
        /// In milliseconds.
        timeout: u64,
    },
    Payload {
        base: u32,
        offset: u32,
        len: u32,
        to: Register,
    },
    Meta {
        key: u32,
        to: Register,
    },
    /// Changes the packet.
    MetaSet {
        key: u32,
        from: Register,
    },
    Conntrack {
        key: u32,
        direction: Option<u8>,
        to: Register,
    },
    Hash {
        from: Register,
        len: u32,
        to: Register,
        modulus: u32,
        seed: Option<u32>,
        offset: u32,
    },
    Numgen {
        to: Register,
        modulus: u32,
        kind: u32,
        offset: u32,
    },
    Fib {
        to: Register,
        result: u32,
        flags: u32,
    },
    Nat {
        kind: u32,
        family: u32,
        address: Option<[Register; 2]>,
        port: Option<[Register; 2]>,
        flags: u32,
    },
    Masquerade {
        flags: u32,
    },
    Redirect {
        port: Option<[Register; 2]>,
        flags: u32,
    },
    Reject {
        kind: u32,
        code: u8,
    },
    Counter {
        bytes: u64,
        packets: u64,
    },
}

impl Expression {
    /// The set that it refers to.
    pub(crate) const fn set(&self) -> Option<Handle> {
        match self {
            Self::Lookup { set, .. } | Self::Dynset { set, .. } => Some(*set),
            _ => None,
        }
    }
}
