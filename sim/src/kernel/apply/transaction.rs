//! The state of a transaction.

use std::collections::BTreeSet;

use crate::kernel::{
    attributes::Attributes,
    caller::Caller,
    data::Handle,
    errno::{Errno, Refusal, Result, refuse, refuse_at},
    message::Message,
    notify::{Notice, Notices},
    ruleset::{Ruleset, Table, Validation},
    set::Set,
    validate,
};

/// An existing element that a message wrote again.
#[derive(Debug)]
pub(super) struct RefreshedElement {
    pub(super) table: u64,
    pub(super) set: Handle,
    pub(super) key: Vec<u8>,
    pub(super) timeout: Option<u64>,
    pub(super) expires: Option<u64>,
}

/// The changes made by the messages of a batch so far.
#[derive(Debug)]
pub(in crate::kernel) struct Transaction<'a> {
    pub(in crate::kernel) next: Ruleset,
    /// The port of the sending socket.
    pub(super) port: u32,
    /// The time in milliseconds.
    pub(super) now: u64,
    /// Expressions and chain types whose modules the kernel lacks.
    pub(super) missing: &'a [String],
    /// Created sets, by table and by their id in the batch.
    pub(super) set_ids: Vec<(u64, u32, Handle)>,
    /// The tables of created anonymous sets: such a set uses its table until the commit, even if it is deleted before.
    pub(super) nameless: Vec<u64>,
    /// Tables with a changed or deleted base chain.
    pub(super) pending: BTreeSet<u64>,
    /// Tables whose flags were changed.
    pub(super) updated: BTreeSet<u64>,
    /// Sets that were declared again: their size and timeout change at the commit.
    pub(super) declared: Vec<(u64, Handle, u32, u64)>,
    /// Elements that were written again: their timeouts change at the commit.
    pub(super) refreshed: Vec<RefreshedElement>,
    pub(super) notices: Notices,
    /// Created tables are validated after each message.
    pub(super) validates_new: bool,
}

impl<'a> Transaction<'a> {
    pub(in crate::kernel) fn new(
        before: &Ruleset,
        caller: Caller<'a>,
        validates_new: bool,
    ) -> Self {
        let Caller {
            port,
            now,
            missing,
            is_heard,
        } = caller;
        Self {
            next: before.clone(),
            port,
            now,
            missing,
            set_ids: Vec::new(),
            nameless: Vec::new(),
            pending: BTreeSet::new(),
            updated: BTreeSet::new(),
            declared: Vec::new(),
            refreshed: Vec::new(),
            notices: Notices::new(is_heard),
            validates_new,
        }
    }

    /// Validates all tables that need it. False if one is invalid: then the batch is repeated with a validation after each
    /// message.
    pub(in crate::kernel) fn is_valid(&mut self) -> bool {
        for table in &mut self.next.tables {
            if table.validation == Validation::Skip {
                continue;
            }
            table.validation = Validation::Do;
            if validate::table(table).is_err() {
                return false;
            }
            table.validation = Validation::Skip;
        }
        true
    }

    /// An anonymous set without a rule must not remain.
    pub(in crate::kernel) fn check_bindings(&self) -> Result<()> {
        let is_left = |(table, _, set): &(u64, u32, Handle)| {
            let table = self.next.tables.iter().find(|found| found.handle == *table);
            let set = table.and_then(|table| table.sets.get(set));
            set.is_some_and(|set| set.is_anonymous() && set.is_unbound)
        };
        if self.set_ids.iter().any(is_left) {
            refuse(Errno::EINVAL)
        } else {
            Ok(())
        }
    }

    /// The target of a verdict.
    pub(in crate::kernel) fn commit(mut self) -> (Ruleset, Vec<Notice>) {
        for (table, set, size, timeout) in std::mem::take(&mut self.declared) {
            let table = self
                .next
                .tables
                .iter_mut()
                .find(|found| found.handle == table);
            if let Some(set) = table.and_then(|table| table.set_mut(set)) {
                if size != 0 {
                    set.size = size;
                }
                set.timeout = timeout;
            }
        }
        for RefreshedElement {
            table,
            set,
            key,
            timeout,
            expires,
        } in std::mem::take(&mut self.refreshed)
        {
            let table = self
                .next
                .tables
                .iter_mut()
                .find(|found| found.handle == table);
            let set = table.and_then(|table| table.set_mut(set));
            if let Some(element) = set.and_then(|set| set.elements.get_mut(&key)) {
                (element.timeout, element.expires) = (timeout, expires);
            }
        }
        for table in &mut self.next.tables {
            for set in table.sets.values_mut() {
                let is_settled = |set: &Set| {
                    let is_bound_by_gone = set.bindings.iter().any(|binding| binding.is_gone);
                    set.elements.is_committed() && set.deleted == 0 && !is_bound_by_gone
                };
                if !is_settled(set) {
                    let set = std::sync::Arc::make_mut(set);
                    set.elements.commit();
                    set.deleted = 0;
                    set.bindings.retain(|binding| !binding.is_gone);
                }
            }
        }
        self.next.generation += 1;
        (self.next, self.notices.into_all())
    }

    /// Aborts the transaction. Handles stay used, since they are never given twice.
    /// `tries_again`: invalid tables will be validated after each message.
    pub(in crate::kernel) fn abort(self, before: &mut Ruleset, tries_again: bool) {
        before.last_table_handle = self.next.last_table_handle;
        for table in &mut before.tables {
            if let Some(tried) = self
                .next
                .tables
                .iter()
                .find(|tried| tried.handle == table.handle)
            {
                table.last_handle = tried.last_handle;
                table.validation = if tries_again {
                    tried.validation
                } else {
                    Validation::Skip
                };
            }
        }
    }

    /// `nft_table_lookup`: the index of a table.
    pub(super) fn find_table(&self, message: &Message<'_>, name: Option<&str>) -> Result<usize> {
        let Some(name) = name else {
            return refuse(Errno::EINVAL);
        };
        let family = message.family();
        let is_it = |table: &Table| table.family == family && *table.name == *name;
        match self.next.tables.iter().position(is_it) {
            Some(at) if self.next.tables[at].is_owned_by_other(self.port) => refuse(Errno::EPERM),
            Some(at) => Ok(at),
            None => refuse(Errno::ENOENT),
        }
    }

    /// The table that a message names in an attribute of this kind.
    pub(super) fn table_of(
        &self,
        message: &Message<'_>,
        attributes: Attributes<'_>,
        kind: u16,
    ) -> Result<usize> {
        let found = self.find_table(message, attributes.text(kind));
        found.map_err(|refused| refused.at_attribute(attributes.at(kind)))
    }

    pub(super) fn table(&mut self, at: usize) -> &mut Table {
        &mut self.next.tables[at]
    }

    /// Validates a table after a message, if each message must be validated.
    pub(super) fn validate_now(&self, at: usize) -> Result<()> {
        let table = &self.next.tables[at];
        if table.validation == Validation::Do {
            validate::table(table)
        } else {
            Ok(())
        }
    }
}

/// Ignores a missing object for a message that only ensures its absence.
pub(super) fn unless_destroyed<T>(
    message: &Message<'_>,
    destroy: u8,
    refused: Refusal,
) -> Result<Option<T>> {
    if refused.errno == Errno::ENOENT && message.kind_in_subsystem() == destroy {
        return Ok(None);
    }
    refuse_at(refused.errno, refused.at)
}
