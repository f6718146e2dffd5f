//! Messages about chains.

use super::transaction::{Transaction, unless_destroyed};
use crate::kernel::{
    attributes::Attributes,
    data::Handle,
    errno::{Errno, Refusal, Result, refuse, refuse_at},
    message::Message,
    notify::Notice,
    ruleset::{Base, Chain, ChainType},
    uapi::{NLM_F_EXCL, NLM_F_NONREC, NLM_F_REPLACE, chain, msg, verdict},
};

/// `NF_IP_PRI_CONNTRACK`: addresses are translated only after connections are known.
const PRIORITY_CONNTRACK: i32 = -200;

impl Transaction<'_> {
    /// `nf_tables_newchain`
    pub(super) fn new_chain(&mut self, message: &Message<'_>) -> Result<()> {
        let attributes = message.attributes();
        let at = self.table_of(message, attributes, chain::TABLE)?;
        let (found, attribute) = match attributes.u64(chain::HANDLE)? {
            Some(handle) => match self.next.tables[at].chains.get(&handle) {
                Some(found) => (Some(found.handle), chain::HANDLE),
                None => return refuse_at(Errno::ENOENT, attributes.at(chain::HANDLE)),
            },
            None => match attributes.text(chain::NAME) {
                Some(name) => (
                    self.next.tables[at].chain(name).map(|found| found.handle),
                    chain::NAME,
                ),
                None => return refuse(Errno::EINVAL),
            },
        };
        let existing = found.and_then(|found| self.next.tables[at].chains.get(&found));
        let policy = match attributes.u32(chain::POLICY)? {
            None => None,
            Some(_) if existing.is_some_and(|existing| existing.base.is_none()) => {
                return refuse_at(Errno::EOPNOTSUPP, attributes.at(chain::POLICY));
            }
            Some(_) if existing.is_none() && !attributes.has(chain::HOOK) => {
                return refuse_at(Errno::EOPNOTSUPP, attributes.at(chain::POLICY));
            }
            // The kernel stores it in a byte.
            Some(policy) => match policy & 0xff {
                policy if [verdict::ACCEPT, verdict::DROP].contains(&policy.cast_signed()) => {
                    Some(policy)
                }
                _ => return refuse(Errno::EINVAL),
            },
        };
        let flags = match attributes.u32(chain::FLAGS)? {
            Some(flags) => flags,
            None => existing.map_or(0, |existing| existing.flags),
        };
        if flags & !chain::F_MASK != 0 {
            return refuse(Errno::EOPNOTSUPP);
        }
        match found {
            Some(_) if message.has(NLM_F_EXCL) => {
                refuse_at(Errno::EEXIST, attributes.at(attribute))
            }
            Some(_) if message.has(NLM_F_REPLACE) => refuse(Errno::EOPNOTSUPP),
            Some(found) => {
                self.update_chain(at, found, attributes, policy, attributes.at(attribute))
            }
            None => self.add_chain(at, attributes, policy, flags),
        }
    }

    /// `nf_tables_addchain`
    fn add_chain(
        &mut self,
        at: usize,
        attributes: Attributes<'_>,
        policy: Option<u32>,
        flags: u32,
    ) -> Result<()> {
        let base = match attributes.nested(chain::HOOK) {
            Some(_) if self.updated.contains(&self.next.tables[at].handle) => {
                return refuse(Errno::EINVAL);
            }
            Some(hook) => Some(self.base(attributes, hook, policy)?),
            None if flags & chain::F_BASE != 0 => return refuse(Errno::EINVAL),
            None => None,
        };
        let table = &mut self.next.tables[at];
        let handle = table.next_handle();
        let made = Chain {
            name: attributes.text(chain::NAME).unwrap_or_default().into(),
            handle,
            base,
            flags: flags | base.map_or(0, |_| chain::F_BASE),
            uses: 0,
            rules: Vec::new(),
        };
        self.notices
            .add(|| Notice::chain(msg::NEWCHAIN, table, &made));
        table.chains.insert(handle, made.into());
        Ok(())
    }

    /// `nft_chain_parse_hook`, for a new chain.
    fn base(
        &self,
        attributes: Attributes<'_>,
        hook: Attributes<'_>,
        policy: Option<u32>,
    ) -> Result<Base> {
        let (number, priority) = (hook.u32(chain::HOOK_NUM)?, hook.u32(chain::HOOK_PRIORITY)?);
        let (Some(hook), Some(priority)) = (number, priority) else {
            return refuse_at(Errno::ENOENT, attributes.at(chain::NAME));
        };
        let kind = match attributes.text(chain::TYPE) {
            None => ChainType::Filter,
            Some(name) => match ChainType::by_name(name).filter(|_| !self.is_missing(name)) {
                Some(kind) => kind,
                None => return refuse_at(Errno::ENOENT, attributes.at(chain::TYPE)),
            },
        };
        let priority = priority.cast_signed();
        let is_early = kind == ChainType::Nat && priority <= PRIORITY_CONNTRACK;
        if !kind.allows_hook(hook) || is_early {
            return refuse(Errno::EOPNOTSUPP);
        }
        Ok(Base {
            kind,
            hook,
            priority,
            policy: policy.unwrap_or(verdict::ACCEPT.cast_unsigned()),
        })
    }

    fn is_missing(&self, name: &str) -> bool {
        self.missing.iter().any(|missing| missing == name)
    }

    /// `nf_tables_updchain`
    fn update_chain(
        &mut self,
        at: usize,
        handle: Handle,
        attributes: Attributes<'_>,
        policy: Option<u32>,
        blame: Option<usize>,
    ) -> Result<()> {
        let table = &mut self.next.tables[at];
        let Some(found) = table.chains.get(&handle) else {
            return refuse(Errno::ENOENT);
        };
        if let Some(flags) = attributes.u32(chain::FLAGS)?
            && flags | found.flags & chain::F_BASE != found.flags
        {
            return refuse(Errno::EOPNOTSUPP);
        }
        if let Some(hook) = attributes.nested(chain::HOOK) {
            let Some(base) = found.base else {
                return refuse_at(Errno::EEXIST, blame);
            };
            let number = hook.u32(chain::HOOK_NUM)?;
            let priority = hook.u32(chain::HOOK_PRIORITY)?.map(u32::cast_signed);
            if number.is_some_and(|number| number != base.hook)
                || priority.is_some_and(|priority| priority != base.priority)
            {
                return refuse(Errno::EOPNOTSUPP);
            }
            let kind = match attributes.text(chain::TYPE) {
                None => base.kind,
                Some(name) => match ChainType::by_name(name) {
                    Some(kind) => kind,
                    None => return refuse_at(Errno::ENOENT, attributes.at(chain::TYPE)),
                },
            };
            let is_same = number.unwrap_or_default() == base.hook
                && priority.unwrap_or_default() == base.priority;
            if kind != base.kind || !is_same {
                return refuse_at(Errno::EEXIST, blame);
            }
        }
        let of_table = table.handle;
        if let (
            Some(policy),
            Some(Chain {
                base: Some(base), ..
            }),
        ) = (policy, table.chain_mut(handle))
        {
            base.policy = policy;
        }
        if let Some(found) = table.chains.get(&handle) {
            self.notices
                .add(|| Notice::chain(msg::NEWCHAIN, table, found));
        }
        self.pending.insert(of_table);
        Ok(())
    }

    /// `nf_tables_delchain`
    pub(super) fn delete_chain(&mut self, message: &Message<'_>) -> Result<()> {
        let attributes = message.attributes();
        let at = self.table_of(message, attributes, chain::TABLE)?;
        let table = &self.next.tables[at];
        let (found, attribute) = match attributes.u64(chain::HANDLE)? {
            Some(handle) => (table.chains.get(&handle), chain::HANDLE),
            None => match attributes.text(chain::NAME) {
                Some(name) => (table.chain(name), chain::NAME),
                None => return refuse(Errno::EINVAL),
            },
        };
        let Some(found) = found.map(|found| found.handle) else {
            let refused = Refusal {
                errno: Errno::ENOENT,
                at: attributes.at(attribute),
            };
            return unless_destroyed(message, msg::DESTROYCHAIN, refused).map(|_: Option<()>| ());
        };
        let has_uses = |table: &crate::kernel::ruleset::Table| {
            table.chains.get(&found).is_some_and(|chain| chain.uses > 0)
        };
        if message.has(NLM_F_NONREC) && has_uses(table) {
            return refuse(Errno::EBUSY);
        }
        // Counted before the rules are deleted: a rule that leads to its own chain prevents the deletion.
        let leads_here = table
            .chains
            .get(&found)
            .is_some_and(|chain| chain.uses > chain.rules.len());
        self.remove_rules(at, found);
        if leads_here {
            return refuse_at(Errno::EBUSY, attributes.at(attribute));
        }
        let table = &mut self.next.tables[at];
        let of_table = table.handle;
        let Some(gone) = table.chains.remove(&found) else {
            return Ok(());
        };
        self.notices
            .add(|| Notice::chain(msg::DELCHAIN, table, &gone));
        if gone.base.is_some() {
            self.pending.insert(of_table);
        }
        Ok(())
    }
}
