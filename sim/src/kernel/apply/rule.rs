//! Messages about rules.

use std::sync::Arc;

use super::transaction::{Transaction, unless_destroyed};
use crate::kernel::{
    attributes::Attribute,
    data::Handle,
    errno::{Errno, Refusal, Result, refuse, refuse_at},
    expression::{Expression, register::Registers},
    init::{self, Parsed, Scope},
    message::Message,
    notify::Notice,
    ruleset::{Rule, Table},
    uapi::{LIST_ELEM, NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, msg, rule},
};

impl Transaction<'_> {
    /// `nf_tables_newrule`
    pub(super) fn new_rule(&mut self, message: &Message<'_>) -> Result<()> {
        let attributes = message.attributes();
        let at = self.table_of(message, attributes, rule::TABLE)?;
        let Some(name) = attributes.text(rule::CHAIN) else {
            return refuse(Errno::EINVAL);
        };
        let Some(chain) = self.next.tables[at].chain(name).map(|chain| chain.handle) else {
            return refuse_at(Errno::ENOENT, attributes.at(rule::CHAIN));
        };
        let (handle, neighbour, replaces) = match attributes.u64(rule::HANDLE)? {
            Some(handle) => {
                let blame = attributes.at(rule::HANDLE);
                if !self.has_rule(at, chain, handle) {
                    return refuse_at(Errno::ENOENT, blame);
                }
                if message.has(NLM_F_EXCL) {
                    return refuse_at(Errno::EEXIST, blame);
                }
                if !message.has(NLM_F_REPLACE) {
                    return refuse(Errno::EOPNOTSUPP);
                }
                (handle, Some(handle), true)
            }
            None if !message.has(NLM_F_CREATE) || message.has(NLM_F_REPLACE) => {
                return refuse(Errno::EINVAL);
            }
            None => {
                let handle = self.table(at).next_handle();
                let position = attributes.u64(rule::POSITION)?;
                if position.is_some_and(|position| !self.has_rule(at, chain, position)) {
                    return refuse_at(Errno::ENOENT, attributes.at(rule::POSITION));
                }
                (handle, position, false)
            }
        };
        let parsed = self.parse_all(attributes.get(rule::EXPRESSIONS))?;
        let userdata = attributes
            .get(rule::USERDATA)
            .map_or(Vec::new(), |data| data.payload.to_vec());
        let expressions = self.init_all(at, chain, handle, parsed)?;
        let made = Arc::new(Rule {
            handle,
            expressions,
            userdata,
        });
        let place = match neighbour {
            Some(neighbour) => {
                let rules = self.next.tables[at]
                    .chains
                    .get(&chain)
                    .map(|chain| &chain.rules);
                let found =
                    rules.and_then(|rules| rules.iter().position(|rule| rule.handle == neighbour));
                found.map(|found| {
                    if message.has(NLM_F_APPEND) || replaces {
                        found + 1
                    } else {
                        found
                    }
                })
            }
            None => None,
        };
        if let Some(chain) = self.table(at).chain_mut(chain) {
            chain.uses += 1;
            let end = if message.has(NLM_F_APPEND) {
                chain.rules.len()
            } else {
                0
            };
            chain.rules.insert(place.unwrap_or(end), Arc::clone(&made));
        }
        if replaces {
            let old = place.and_then(|place| place.checked_sub(1));
            if let Some(old) = old {
                self.remove_rule(at, chain, old);
            }
        }
        let table = &self.next.tables[at];
        if let Some(chain) = table.chains.get(&chain) {
            self.notices
                .add(|| Notice::rule(msg::NEWRULE, table, chain, &made));
        }
        self.validate_now(at)
    }

    fn has_rule(&self, at: usize, chain: Handle, handle: Handle) -> bool {
        let chain = self.next.tables[at].chains.get(&chain);
        chain.is_some_and(|chain| chain.rules.iter().any(|rule| rule.handle == handle))
    }

    fn parse_all<'a>(&self, list: Option<Attribute<'a>>) -> Result<Vec<Parsed<'a>>> {
        let mut parsed = Vec::new();
        for attribute in list.into_iter().flat_map(|list| list.nested().iter()) {
            if attribute.kind != LIST_ELEM || parsed.len() == rule::MAX_EXPRESSIONS {
                return refuse(Errno::EINVAL);
            }
            let one = init::parse(attribute, self.missing);
            parsed.push(one.map_err(|refused| refused.at_attribute(Some(attribute.at)))?);
        }
        Ok(parsed)
    }

    fn init_all(
        &mut self,
        at: usize,
        chain: Handle,
        rule: Handle,
        parsed: Vec<Parsed<'_>>,
    ) -> Result<Vec<Expression>> {
        let set_ids = self.set_ids_of(at);
        let table = &mut self.next.tables[at];
        let mut registers = Registers::default();
        let mut expressions = Vec::new();
        for one in parsed {
            let mut scope = Scope {
                table,
                chain,
                rule,
                set_ids: &set_ids,
                registers: &mut registers,
            };
            match one.init(&mut scope) {
                Ok(expression) => expressions.push(expression),
                Err(refused) => {
                    release(
                        table,
                        &Rule {
                            handle: rule,
                            expressions,
                            userdata: Vec::new(),
                        },
                    );
                    return Err(refused.at_attribute(Some(one.at)));
                }
            }
            table.require_validation();
        }
        Ok(expressions)
    }

    /// The sets made in this batch in a table.
    pub(super) fn set_ids_of(&self, at: usize) -> Vec<(u32, Handle)> {
        let table = self.next.tables[at].handle;
        let of_table = self.set_ids.iter().filter(|(of, ..)| *of == table);
        of_table.map(|(_, id, set)| (*id, *set)).collect()
    }

    /// `nf_tables_delrule`
    pub(super) fn delete_rule(&mut self, message: &Message<'_>) -> Result<()> {
        let attributes = message.attributes();
        let at = self.table_of(message, attributes, rule::TABLE)?;
        let Some(name) = attributes.text(rule::CHAIN) else {
            let chains: Vec<Handle> = self.next.tables[at].chains.keys().copied().collect();
            for chain in chains {
                self.remove_rules(at, chain);
            }
            return Ok(());
        };
        let missing = |kind| {
            let refused = Refusal {
                errno: Errno::ENOENT,
                at: attributes.at(kind),
            };
            unless_destroyed(message, msg::DESTROYRULE, refused).map(|_: Option<()>| ())
        };
        let Some(chain) = self.next.tables[at].chain(name) else {
            return missing(rule::CHAIN);
        };
        let handle = chain.handle;
        let Some(of) = attributes.u64(rule::HANDLE)? else {
            self.remove_rules(at, handle);
            return Ok(());
        };
        match chain.rules.iter().position(|rule| rule.handle == of) {
            Some(place) => {
                self.remove_rule(at, handle, place);
                Ok(())
            }
            None => missing(rule::HANDLE),
        }
    }

    /// All rules of a chain.
    pub(super) fn remove_rules(&mut self, at: usize, chain: Handle) {
        while self.next.tables[at]
            .chains
            .get(&chain)
            .is_some_and(|chain| !chain.rules.is_empty())
        {
            self.remove_rule(at, chain, 0);
        }
    }

    fn remove_rule(&mut self, at: usize, chain: Handle, place: usize) {
        let table = &mut self.next.tables[at];
        let Some(found) = table.chain_mut(chain) else {
            return;
        };
        if place >= found.rules.len() {
            return;
        }
        let gone = found.rules.remove(place);
        found.uses = found.uses.saturating_sub(1);
        if let Some(chain) = table.chains.get(&chain) {
            self.notices
                .add(|| Notice::rule(msg::DELRULE, table, chain, &gone));
        }
        release(table, &gone);
    }
}

/// Drops the references of a rule (use counts of sets and chains). An anonymous set goes with its rule.
fn release(table: &mut Table, rule: &Rule) {
    let all_data: Vec<_> = rule.immediate_data().cloned().collect();
    for data in &all_data {
        table.count_use(data, false);
    }
    for handle in rule.sets() {
        let Some(set) = table.set_mut(handle) else {
            continue;
        };
        if set.is_anonymous() {
            if let Some(gone) = table.sets.remove(&handle) {
                let data: Vec<_> = gone
                    .elements
                    .iter()
                    .filter_map(|element| element.data.clone())
                    .collect();
                for data in &data {
                    table.count_use(data, false);
                }
            }
            continue;
        }
        for binding in set
            .bindings
            .iter_mut()
            .filter(|binding| binding.rule == rule.handle)
        {
            binding.is_gone = true;
        }
    }
}
