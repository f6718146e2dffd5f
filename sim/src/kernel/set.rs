//! Sets and maps.

use super::{
    data::Handle,
    elements::{Elements, Fields, Sorted, Tree},
    uapi::set::{F_ANONYMOUS, F_CONSTANT, F_EVAL, F_INTERVAL, F_MAP, F_TIMEOUT},
};

#[derive(Debug, Clone)]
pub(crate) struct Set {
    pub(crate) name: Box<str>,
    pub(crate) handle: Handle,
    pub(crate) declaration: Declaration,
    /// The maximum number of elements; 0 for no limit.
    pub(crate) size: u32,
    /// The default timeout of elements in milliseconds; 0 for none.
    pub(crate) timeout: u64,
    pub(crate) userdata: Vec<u8>,
    pub(crate) elements: Elements,
    /// The expressions that use it.
    pub(crate) bindings: Vec<Binding>,
    /// Created by the current transaction, and not used by a rule yet.
    pub(crate) is_unbound: bool,
    /// The number of elements that the current transaction has deleted: they count towards the size until its commit.
    pub(crate) deleted: usize,
}

/// The properties by which two declarations of a set are compared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Declaration {
    pub(crate) flags: u32,
    pub(crate) key_type: u32,
    pub(crate) key_len: u32,
    pub(crate) data_type: u32,
    pub(crate) data_len: u32,
    /// The bytes of each field of a concatenation.
    pub(crate) fields: Vec<u32>,
    /// Each element has a counter of matching packets.
    pub(crate) has_counter: bool,
}

/// An expression that uses a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Binding {
    pub(crate) chain: Handle,
    pub(crate) rule: Handle,
    pub(crate) is_map: bool,
    /// The rule was deleted by the current transaction.
    pub(crate) is_gone: bool,
}

impl Set {
    pub(crate) const fn has(&self, flag: u32) -> bool {
        self.declaration.flags & flag != 0
    }

    pub(crate) const fn is_anonymous(&self) -> bool {
        self.has(F_ANONYMOUS)
    }

    pub(crate) fn uses(&self) -> usize {
        self.bindings
            .iter()
            .filter(|binding| !binding.is_gone)
            .count()
    }

    /// No element can be added any more.
    pub(crate) fn is_sealed(&self) -> bool {
        !self.bindings.is_empty() && self.has(F_CONSTANT | F_ANONYMOUS)
    }

    /// Drops the elements that have expired, which only a set with timeouts has.
    pub(crate) fn expire(&mut self, now: u64) {
        if self.has(F_TIMEOUT) {
            self.elements.expire(now);
        }
    }

    /// Whether rules can write elements: packets can update the kernel's data structure of this set.
    pub(crate) fn can_be_updated(&self) -> bool {
        let is_bitmap = self.declaration.key_len <= 2 && !self.has(F_MAP | F_TIMEOUT | F_EVAL);
        !self.has(F_INTERVAL) && !is_bitmap && (self.size == 0 || self.has(F_TIMEOUT | F_EVAL))
    }
}

impl Declaration {
    /// The container of its elements.
    pub(crate) fn elements(&self) -> Elements {
        if self.flags & F_INTERVAL == 0 {
            Elements::Hash(Sorted::default())
        } else if self.fields.len() > 1 {
            let lengths = self.fields.iter().map(|length| *length as usize).collect();
            Elements::Fields(Fields::new(lengths))
        } else {
            Elements::Tree(Tree::default())
        }
    }
}
