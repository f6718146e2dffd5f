//! Tables with their chains, rules and sets. Objects refer to each other by handles, which are numbered in each table.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    data::{Data, Handle},
    expression::Expression,
    set::Set,
    uapi,
};

/// All tables of a network namespace.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ruleset {
    /// In the order of their creation.
    pub(crate) tables: Vec<Table>,
    /// The last handle given to a table.
    pub(crate) last_table_handle: u64,
    /// Incremented by each transaction.
    pub(crate) generation: u32,
}

/// Whether a table must be validated, that is, searched for loops and for expressions in wrong hooks: the kernel's
/// `NFT_VALIDATE_SKIP`, `_NEED` and `_DO`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Validation {
    /// Nothing has changed that could make it invalid.
    #[default]
    Skip,
    /// It must be validated before the commit.
    Need,
    /// It must be validated after each message, since the transaction as a whole is invalid.
    Do,
}

#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) family: u8,
    pub(crate) name: Box<str>,
    pub(crate) handle: u64,
    pub(crate) flags: u32,
    /// The netlink port of the socket that owns it.
    pub(crate) owner: Option<u32>,
    pub(crate) userdata: Vec<u8>,
    /// The last handle given to an object in it.
    pub(crate) last_handle: Handle,
    pub(crate) chains: BTreeMap<Handle, Arc<Chain>>,
    pub(crate) sets: BTreeMap<Handle, Arc<Set>>,
    pub(crate) validation: Validation,
}

#[derive(Debug, Clone)]
pub(crate) struct Chain {
    pub(crate) name: Box<str>,
    pub(crate) handle: Handle,
    pub(crate) base: Option<Base>,
    pub(crate) flags: u32,
    /// The use count: its rules, and the verdicts that lead to it.
    pub(crate) uses: usize,
    pub(crate) rules: Vec<Arc<Rule>>,
}

/// The hook of a base chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Base {
    pub(crate) kind: ChainType,
    pub(crate) hook: u32,
    pub(crate) priority: i32,
    /// The verdict on packets that its rules do not decide on.
    pub(crate) policy: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChainType {
    Filter,
    Nat,
    Route,
}

/// `NF_INET_PRE_ROUTING` and so on.
pub(crate) mod hook {
    pub(crate) const PREROUTING: u32 = 0;
    pub(crate) const INPUT: u32 = 1;
    pub(crate) const FORWARD: u32 = 2;
    pub(crate) const OUTPUT: u32 = 3;
    pub(crate) const POSTROUTING: u32 = 4;
}

impl ChainType {
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "filter" => Self::Filter,
            "nat" => Self::Nat,
            "route" => Self::Route,
            _ => return None,
        })
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Nat => "nat",
            Self::Route => "route",
        }
    }

    /// Whether a chain of this type may have this hook.
    pub(crate) const fn allows_hook(self, hook: u32) -> bool {
        match self {
            Self::Filter => hook <= hook::POSTROUTING,
            Self::Nat => hook <= hook::POSTROUTING && hook != hook::FORWARD,
            Self::Route => hook == hook::OUTPUT,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(crate) handle: Handle,
    pub(crate) expressions: Vec<Expression>,
    pub(crate) userdata: Vec<u8>,
}

impl Ruleset {
    pub(crate) fn table(&self, family: u8, name: &str) -> Option<&Table> {
        self.tables
            .iter()
            .find(|table| table.family == family && *table.name == *name)
    }
}

impl Table {
    pub(crate) fn next_handle(&mut self) -> Handle {
        self.last_handle += 1;
        self.last_handle
    }

    pub(crate) fn chain(&self, name: &str) -> Option<&Arc<Chain>> {
        self.chains.values().find(|chain| *chain.name == *name)
    }

    pub(crate) fn set(&self, name: &str) -> Option<&Arc<Set>> {
        self.sets.values().find(|set| *set.name == *name)
    }

    pub(crate) fn chain_mut(&mut self, handle: Handle) -> Option<&mut Chain> {
        self.chains.get_mut(&handle).map(Arc::make_mut)
    }

    pub(crate) fn set_mut(&mut self, handle: Handle) -> Option<&mut Set> {
        self.sets.get_mut(&handle).map(Arc::make_mut)
    }

    pub(crate) const fn is_owned_by_other(&self, port: u32) -> bool {
        match self.owner {
            Some(owner) => self.flags & uapi::table::F_OWNER != 0 && owner != port,
            None => false,
        }
    }

    /// Increments or decrements the use count of the target chain of this data.
    pub(crate) fn count_use(&mut self, data: &Data, is_added: bool) {
        if let Some(chain) = data.chain().and_then(|chain| self.chain_mut(chain)) {
            if is_added {
                chain.uses += 1;
            } else {
                chain.uses = chain.uses.saturating_sub(1);
            }
        }
    }

    /// Marks the table for validation, since a transaction may have made it invalid.
    pub(crate) fn require_validation(&mut self) {
        if self.validation == Validation::Skip {
            self.validation = Validation::Need;
        }
    }

    /// The use count: its chains and its named sets. Anonymous sets belong to rules.
    pub(crate) fn uses(&self) -> usize {
        self.chains.len() + self.sets.values().filter(|set| !set.is_anonymous()).count()
    }
}

impl Rule {
    /// The data of its immediate expressions. Those that are verdicts may lead to other chains.
    pub(crate) fn immediate_data(&self) -> impl Iterator<Item = &Data> {
        self.expressions
            .iter()
            .filter_map(|expression| match expression {
                Expression::Immediate { data, .. } => Some(data),
                _ => None,
            })
    }

    /// The sets that it reads or updates.
    pub(crate) fn sets(&self) -> impl Iterator<Item = Handle> {
        self.expressions.iter().filter_map(Expression::set)
    }
}
