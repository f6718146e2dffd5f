//! The rules of all nftables tables of a network namespace, as far as connections of IP pass them.
//!
//! Rules stay as the kernel encodes them until a packet reaches them: so reading many rules is quick.

mod expression;
mod legacy;
mod read;
mod rule_list;
#[cfg(test)]
pub(super) mod testing;
mod xt;

use std::{collections::BTreeMap, net::SocketAddr};

use self::rule_list::RuleList;
pub(super) use self::{
    expression::{Data, Verdict},
    legacy::{has_legacy_chain, legacy_tables},
    rule_list::Rule,
};
pub(super) use self::{
    expression::{
        Expression, Limit, LookupTarget, REGISTER_BYTES, Register, RegisterRange, decode_data,
        limits_of_element,
    },
    xt::{
        AddressTypes, ConntrackMatch, IpSetMatch, MarkMatch, MarkTransfer, NatRange, PortChoice,
        RecentList, XtMatch, XtTarget, address_like, conntrack_flag,
    },
};
use super::{ChainRef, Hook, RuleRef};
use crate::nftables::netlink::{
    Attributes,
    constants::{
        LIST_ELEM, NFPROTO_BRIDGE, NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6, NFPROTO_NETDEV, rule,
    },
};

/// The rules of all tables.
#[derive(Debug, Clone, Default)]
pub struct Ruleset {
    tables: Vec<Table>,
    chains: Vec<Chain>,
    /// The numbers of the base chains.
    bases: Vec<usize>,
    /// The number of each chain, by its table and its name.
    chain_numbers: BTreeMap<(usize, String), usize>,
    /// The expressions and user data of all rules.
    bytes: Vec<u8>,
    /// Families of iptables-legacy that have tables, with their names.
    legacy: Vec<(&'static str, String)>,
    /// A rule needs conntrack. Without one the kernel tracks no connection.
    pub(super) has_conntrack: bool,
    /// The generation that was read.
    pub(super) generation: u32,
}

/// A table.
#[derive(Debug, Clone)]
struct Table {
    family: u8,
    name: String,
    handle: u64,
    is_own: bool,
    /// Limits that are objects, by type and name.
    limits: BTreeMap<(u32, String), Limit>,
    /// Sets, by name.
    sets: BTreeMap<String, SetShape>,
}

/// What is to be known of a set to look something up.
#[derive(Debug, Clone)]
pub(super) struct SetShape {
    key_len: usize,
    /// The type of the objects, of a map to objects.
    object: Option<u32>,
    /// Its flags.
    pub(super) flags: u32,
    /// The milliseconds after which an element expires; 0 if it does not.
    pub(super) timeout: u64,
    /// It is a map to verdicts.
    pub(super) has_verdicts: bool,
    /// The lengths of the fields of a key, of a set whose keys are ranges of several fields.
    pub(super) fields: Vec<usize>,
    /// How many elements it may have, if its keys are plain numbers, as those of a map by a random number are.
    pub(super) numbers: Option<u32>,
    /// The handles of its table and its own: no other set ever has the same.
    pub(super) handles: (u64, u64),
}

/// A chain.
#[derive(Debug, Clone)]
struct Chain {
    table: usize,
    name: String,
    base: Option<Base>,
    rules: RuleList,
}

/// The type of a base chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChainKind {
    Filter,
    /// It sees the first packet of a connection only.
    Nat,
    /// A packet that it changes is routed again.
    Route,
}

/// What a base chain has beyond other chains.
#[derive(Debug, Clone)]
pub(super) struct Base {
    pub(super) kind: ChainKind,
    pub(super) hook: Hook,
    pub(super) priority: i32,
    pub(super) drops_by_policy: bool,
    /// The devices of a chain of a device.
    pub(super) devices: Vec<String>,
}

/// Names a set of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SetRef<'a> {
    /// The family of its table.
    pub(in crate::packet_path) family: u8,
    /// The name of its table.
    pub(in crate::packet_path) table: &'a str,
    /// Its name.
    pub(in crate::packet_path) set: &'a str,
    /// The length of its keys in bytes.
    pub(in crate::packet_path) key_len: usize,
}

impl Ruleset {
    /// The base chains at a hook that packets of a family pass: the numbers of the chains. A chain that the kernel calls first comes
    /// first, unless priorities are different. Chains of a device are those of `device`.
    pub(super) fn base_chains(&self, hook: Hook, is_v4: bool, device: Option<&str>) -> Vec<usize> {
        let is_device_hook = [Hook::Ingress, Hook::Egress].contains(&hook);
        let passes = |chain: &&usize| {
            let chain = &self.chains[**chain];
            let Some(base) = &chain.base else {
                return false;
            };
            let is_of_family = match self.tables[chain.table].family {
                NFPROTO_IPV4 => is_v4,
                NFPROTO_IPV6 => !is_v4,
                NFPROTO_INET => true,
                NFPROTO_NETDEV => is_device_hook,
                _ => false,
            };
            let is_of_device = !is_device_hook
                || device.is_some_and(|device| base.devices.iter().any(|name| name == device));
            base.hook == hook && is_of_family && is_of_device
        };
        // Of base chains with the same priority the kernel calls the one first that was added last.
        let mut chains: Vec<usize> = self.bases.iter().rev().filter(passes).copied().collect();
        chains.sort_by_key(|chain| self.base(*chain).map(|base| base.priority));
        chains
    }

    /// What a chain has if it is a base chain.
    pub(super) fn base(&self, chain: usize) -> Option<&Base> {
        self.chains[chain].base.as_ref()
    }

    /// Whether a chain is in a table of the agent, which is not evaluated.
    pub(super) fn is_own(&self, chain: usize) -> bool {
        self.tables[self.chains[chain].table].is_own
    }

    /// Whether a chain is in the agent's table that translates connections.
    pub(super) fn is_own_translation(&self, chain: usize) -> bool {
        let Chain { table, base, .. } = &self.chains[chain];
        let is_nat = base
            .as_ref()
            .is_some_and(|base| base.kind == ChainKind::Nat);
        is_nat && self.tables[*table].is_own && self.tables[*table].name == crate::nftables::TABLE
    }

    /// The rules of a chain.
    pub(super) fn rules(&self, chain: usize) -> &[Rule] {
        self.chains[chain].rules.as_slice()
    }

    /// The first rule of a chain, from this number on, that may match a packet to this destination, with its number.
    pub(super) fn next_rule(
        &self,
        chain: usize,
        from: usize,
        to: SocketAddr,
    ) -> Option<(usize, &Rule)> {
        self.chains[chain].rules.next(from, to)
    }

    /// The chain of this name in the table of another chain.
    pub(super) fn chain_beside(&self, chain: usize, name: &str) -> Option<usize> {
        let table = self.chains[chain].table;
        self.chain_numbers.get(&(table, name.to_owned())).copied()
    }

    /// Whether the table of a chain is of the family ip.
    pub(super) fn is_of_v4(&self, chain: usize) -> bool {
        self.tables[self.chains[chain].table].family == NFPROTO_IPV4
    }

    /// The set of this name in the table of a chain.
    pub(super) fn set_beside<'a>(&'a self, chain: usize, name: &'a str) -> Option<SetRef<'a>> {
        let table = &self.tables[self.chains[chain].table];
        Some(SetRef {
            family: table.family,
            table: &table.name,
            set: name,
            key_len: table.sets.get(name)?.key_len,
        })
    }

    /// The type of the objects of a map to objects in the table of a chain.
    pub(super) fn objects_of_set(&self, chain: usize, name: &str) -> Option<u32> {
        self.tables[self.chains[chain].table].sets.get(name)?.object
    }

    /// The limit that an object in the table of a chain is.
    pub(super) fn limit_beside(&self, chain: usize, kind: u32, name: &str) -> Option<Limit> {
        let limits = &self.tables[self.chains[chain].table].limits;
        limits.get(&(kind, name.to_owned())).copied()
    }

    /// All sets, with their shapes.
    pub(super) fn sets(&self) -> impl Iterator<Item = (SetRef<'_>, &SetShape)> {
        self.tables.iter().flat_map(|table| {
            table.sets.iter().map(|(name, shape)| {
                let set = SetRef {
                    family: table.family,
                    table: &table.name,
                    set: name,
                    key_len: shape.key_len,
                };
                (set, shape)
            })
        })
    }

    /// Keeps the rules of chains whose name has this prefix, and of the others those that lead to such a chain. No policy drops any more.
    pub(super) fn keep_chains(&mut self, prefix: &str) {
        let leads_there = |rule: &Rule| {
            let to_it = |expression| match expression {
                Expression::Verdict(Verdict::Jump(to) | Verdict::Goto(to)) => {
                    to.starts_with(prefix)
                }
                _ => false,
            };
            self.expressions(rule).any(to_it)
        };
        let kept: Vec<Option<RuleList>> = self
            .chains
            .iter()
            .map(|chain| {
                let is_other = !chain.name.starts_with(prefix);
                let rules = chain
                    .rules
                    .as_slice()
                    .iter()
                    .filter(|rule| leads_there(rule));
                is_other.then(|| rules.cloned().collect())
            })
            .collect();
        for (chain, kept) in self.chains.iter_mut().zip(kept) {
            if let Some(base) = &mut chain.base {
                base.drops_by_policy = false;
            }
            chain.rules = kept.unwrap_or_else(|| std::mem::take(&mut chain.rules));
        }
    }

    /// The families and names of the tables.
    pub(super) fn tables(&self) -> impl Iterator<Item = (u8, &str)> {
        self.tables.iter().map(|table| (table.family, &*table.name))
    }

    /// Whether a chain has a name that begins so.
    pub(super) fn has_chain_of(&self, prefix: &str) -> bool {
        let mut names = self.chain_numbers.keys();
        names.any(|(_, name)| name.starts_with(prefix))
    }

    /// All chains: the families of their tables, their names and their numbers.
    pub(super) fn chains(&self) -> impl Iterator<Item = (u8, &str, usize)> {
        let chains = self.chain_numbers.iter();
        chains.map(|((table, name), number)| (self.tables[*table].family, &**name, *number))
    }

    /// The chains with this name: their numbers, and the families of their tables.
    pub(super) fn chains_named(&self, name: &str) -> impl Iterator<Item = (u8, usize)> {
        let chain = |(number, table): (usize, &Table)| {
            let chain = self.chain_numbers.get(&(number, name.to_owned()))?;
            Some((table.family, *chain))
        };
        self.tables.iter().enumerate().filter_map(chain)
    }

    /// The expressions of a rule.
    pub(super) fn expressions<'a>(
        &'a self,
        rule: &Rule,
    ) -> impl Iterator<Item = Expression> + use<'a> {
        let bytes = self.bytes.get(rule.expressions.clone());
        Attributes(bytes.unwrap_or_default())
            .iter()
            .filter(|(kind, _)| *kind == LIST_ELEM)
            .map(|(_, expression)| Expression::decode(Attributes(expression)))
    }

    /// Names a base chain.
    pub(super) fn chain_ref(&self, chain: usize) -> ChainRef {
        let Chain {
            table, name, base, ..
        } = &self.chains[chain];
        let Table {
            family,
            name: table,
            ..
        } = &self.tables[*table];
        ChainRef {
            table: format!("{} {table}", family_name(*family)),
            chain: name.clone(),
            hook: base.as_ref().map_or(Hook::Prerouting, |base| base.hook),
            priority: base.as_ref().map_or(0, |base| base.priority),
        }
    }

    /// Names a rule that was reached from a base chain; without one, the policy of the base chain.
    pub(super) fn rule_ref(&self, base: usize, chain: usize, rule: Option<&Rule>) -> RuleRef {
        RuleRef {
            base: self.chain_ref(base),
            chain: self.chains[chain].name.clone(),
            handle: rule.map(|rule| rule.handle),
            comment: rule.map_or_else(String::new, |rule| self.comment(rule)),
        }
    }

    /// The comment of a rule, as nft or as iptables stores it.
    pub(super) fn comment(&self, rule: &Rule) -> String {
        let userdata = self.bytes.get(rule.userdata.clone()).unwrap_or_default();
        let of_nft = user_data(userdata)
            .find(|(kind, _)| *kind == rule::USERDATA_COMMENT)
            .and_then(|(_, text)| text.split(|byte| *byte == 0).next());
        if let Some(text) = of_nft {
            return String::from_utf8_lossy(text).into_owned();
        }
        let of_iptables = self
            .expressions(rule)
            .find_map(|expression| match expression {
                Expression::Match(XtMatch::Comment(comment)) => Some(comment),
                _ => None,
            });
        of_iptables.unwrap_or_default()
    }

    /// Base chains of bridges, of tables with rules: whether one of these may stop a packet.
    pub(super) fn bridge_chains(&self) -> impl Iterator<Item = (usize, bool)> {
        let is_of_bridge =
            |(_, chain): &(usize, &Chain)| self.tables[chain.table].family == NFPROTO_BRIDGE;
        let chains = self
            .bases
            .iter()
            .map(|number| (*number, &self.chains[*number]));
        let chains = chains.filter(is_of_bridge);
        let with_rules = chains.filter(|(_, chain)| {
            let mut of_table = self.chains_of(chain.table);
            of_table.any(|chain| !chain.rules.as_slice().is_empty())
        });
        with_rules.map(|(number, chain)| {
            let mut of_table = self.chains_of(chain.table);
            (number, of_table.any(|chain| self.may_stop(chain)))
        })
    }

    fn chains_of(&self, table: usize) -> impl Iterator<Item = &Chain> {
        self.chains.iter().filter(move |chain| chain.table == table)
    }

    /// Whether a chain has something that may stop a packet.
    fn may_stop(&self, chain: &Chain) -> bool {
        let stops = |expression| {
            matches!(
                expression,
                Expression::Verdict(Verdict::Drop)
                    | Expression::Reject
                    | Expression::Lookup { to: Some(_), .. }
                    | Expression::Target(_)
            )
        };
        let drops_by_policy = (chain.base.as_ref()).is_some_and(|base| base.drops_by_policy);
        drops_by_policy
            || (chain.rules.as_slice().iter()).any(|rule| self.expressions(rule).any(stops))
    }

    /// Tables of iptables-legacy, whose rules cannot be read: family and names.
    pub(super) fn legacy(&self) -> &[(&'static str, String)] {
        &self.legacy
    }
}

/// The parts of the user data of a rule: one byte for the kind, one for the length.
pub(super) fn user_data(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let [kind, len] = *bytes.first_chunk()?;
        let text = bytes.get(2..2 + usize::from(len))?;
        bytes = &bytes[2 + usize::from(len)..];
        Some((kind, text))
    })
}

fn family_name(family: u8) -> &'static str {
    match family {
        NFPROTO_IPV4 => "ip",
        NFPROTO_IPV6 => "ip6",
        NFPROTO_INET => "inet",
        NFPROTO_NETDEV => "netdev",
        NFPROTO_BRIDGE => "bridge",
        _ => "other",
    }
}
