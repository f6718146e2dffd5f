//! Messages about tables.

use super::transaction::{Transaction, unless_destroyed};
use crate::kernel::{
    errno::{Errno, Result, refuse, refuse_at},
    message::Message,
    notify::Notice,
    ruleset::{Table, Validation},
    uapi::{
        NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6, NFPROTO_UNSPEC, NLM_F_EXCL, NLM_F_NONREC,
        NLM_F_REPLACE, msg, table,
    },
};

impl Transaction<'_> {
    /// `nf_tables_newtable`
    pub(super) fn new_table(&mut self, message: &Message<'_>) -> Result<()> {
        if ![NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6].contains(&message.family()) {
            return refuse(Errno::EOPNOTSUPP);
        }
        let attributes = message.attributes();
        let flags = attributes.u32(table::FLAGS)?;
        let name = attributes.text(table::NAME);
        match self.find_table(message, name) {
            Ok(_) if message.has(NLM_F_EXCL) => {
                refuse_at(Errno::EEXIST, attributes.at(table::NAME))
            }
            Ok(_) if message.has(NLM_F_REPLACE) => refuse(Errno::EOPNOTSUPP),
            Ok(at) => flags.map_or(Ok(()), |flags| self.update_table(at, flags)),
            Err(refused) if refused.errno != Errno::ENOENT => Err(refused),
            Err(_) => {
                let flags = flags.unwrap_or_default();
                if flags & !table::F_MASK != 0 {
                    return refuse(Errno::EOPNOTSUPP);
                }
                self.next.last_table_handle += 1;
                let validation = if self.validates_new {
                    Validation::Do
                } else {
                    Validation::Skip
                };
                let made = Table {
                    family: message.family(),
                    name: name.unwrap_or_default().into(),
                    handle: self.next.last_table_handle,
                    flags,
                    owner: (flags & table::F_OWNER != 0).then_some(self.port),
                    userdata: attributes
                        .get(table::USERDATA)
                        .map_or(Vec::new(), |data| data.payload.to_vec()),
                    last_handle: 0,
                    chains: std::collections::BTreeMap::new(),
                    sets: std::collections::BTreeMap::new(),
                    validation,
                };
                self.notices.add(|| Notice::table(msg::NEWTABLE, &made));
                self.next.tables.push(made);
                Ok(())
            }
        }
    }

    /// `nf_tables_updtable`
    fn update_table(&mut self, at: usize, flags: u32) -> Result<()> {
        let port = self.port;
        let found = &self.next.tables[at];
        if flags & !table::F_MASK != 0 {
            return refuse(Errno::EOPNOTSUPP);
        }
        if flags == found.flags {
            return Ok(());
        }
        let (is_owned, was_owned) = (
            flags & table::F_OWNER != 0,
            found.flags & table::F_OWNER != 0,
        );
        // A table that outlived its owner has no owner, and can get a new one.
        let is_orphan = found.flags & (table::F_OWNER | table::F_PERSIST) == table::F_PERSIST;
        let changes_owner = was_owned && !is_owned || is_owned && !is_orphan;
        if changes_owner || (flags ^ found.flags) & table::F_PERSIST != 0 {
            return refuse(Errno::EOPNOTSUPP);
        }
        if self.updated.contains(&found.handle) || self.pending.contains(&found.handle) {
            return refuse(Errno::EINVAL);
        }
        let handle = found.handle;
        self.updated.insert(handle);
        let found = &mut self.next.tables[at];
        found.flags = flags;
        if is_owned && !was_owned {
            found.owner = Some(port);
        }
        self.notices.add(|| Notice::table(msg::NEWTABLE, found));
        Ok(())
    }

    /// `nf_tables_deltable`
    pub(super) fn delete_table(&mut self, message: &Message<'_>) -> Result<()> {
        let attributes = message.attributes();
        let (name, handle) = (attributes.text(table::NAME), attributes.u64(table::HANDLE)?);
        let family = message.family();
        if family == NFPROTO_UNSPEC || name.is_none() && handle.is_none() {
            self.flush_tables(family, name);
            return Ok(());
        }
        let (found, attribute) = match handle {
            Some(handle) => {
                let is_it = |table: &Table| table.handle == handle && table.family == family;
                let found = match self.next.tables.iter().position(is_it) {
                    Some(at) if self.next.tables[at].is_owned_by_other(self.port) => {
                        refuse(Errno::EPERM)
                    }
                    Some(at) => Ok(at),
                    None => refuse(Errno::ENOENT),
                };
                (found, table::HANDLE)
            }
            None => (self.find_table(message, name), table::NAME),
        };
        let found = found.map_err(|refused| refused.at_attribute(attributes.at(attribute)));
        let at = match found {
            Ok(at) => at,
            Err(refused) => {
                return unless_destroyed(message, msg::DESTROYTABLE, refused)
                    .map(|_: Option<()>| ());
            }
        };
        let table = &self.next.tables[at];
        let is_used = table.uses() > 0 || self.nameless.contains(&table.handle);
        if message.has(NLM_F_NONREC) && is_used {
            return refuse(Errno::EBUSY);
        }
        self.remove_table(at);
        Ok(())
    }

    /// `nft_flush`: all tables except those with another owner.
    fn flush_tables(&mut self, family: u8, name: Option<&str>) {
        let port = self.port;
        let goes = |table: &Table| {
            (family == NFPROTO_UNSPEC || table.family == family)
                && !table.is_owned_by_other(port)
                && name.is_none_or(|name| *table.name == *name)
        };
        while let Some(at) = self.next.tables.iter().position(goes) {
            self.remove_table(at);
        }
    }

    /// `nft_flush_table`: a table with all its objects.
    fn remove_table(&mut self, at: usize) {
        let gone = self.next.tables.remove(at);
        for chain in gone.chains.values() {
            for rule in &chain.rules {
                self.notices
                    .add(|| Notice::rule(msg::DELRULE, &gone, chain, rule));
            }
        }
        for set in gone.sets.values() {
            self.notices.add(|| Notice::set(msg::DELSET, &gone, set));
        }
        for chain in gone.chains.values() {
            self.notices
                .add(|| Notice::chain(msg::DELCHAIN, &gone, chain));
        }
        self.notices.add(|| Notice::table(msg::DELTABLE, &gone));
    }
}
