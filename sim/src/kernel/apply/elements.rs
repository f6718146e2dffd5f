//! Messages about elements.

use std::sync::Arc;

use super::transaction::{RefreshedElement, Transaction, unless_destroyed};
use crate::kernel::{
    attributes::{Attribute, Attributes},
    data::{Data, Handle},
    element::{Counter, Element, InsertConflict},
    errno::{Errno, Refusal, Result, refuse, refuse_at},
    init::{read_data, read_plain},
    message::Message,
    notify::Notice,
    set::Set,
    uapi::{NLM_F_EXCL, data, elem, expr, msg, set},
};

impl Transaction<'_> {
    /// `nf_tables_newsetelem`
    pub(super) fn new_elements(&mut self, message: &Message<'_>) -> Result<()> {
        let attributes = message.attributes();
        let Some(list) = attributes.get(elem::LIST_ELEMENTS) else {
            return refuse(Errno::EINVAL);
        };
        let at = self.table_of(message, attributes, elem::LIST_TABLE)?;
        let table = &self.next.tables[at];
        let named = attributes
            .text(elem::LIST_SET)
            .and_then(|name| table.set(name))
            .map(|set| set.handle);
        let handle = match (named, attributes.u32(elem::LIST_SET_ID)?) {
            (Some(handle), _) => Some(handle),
            (None, Some(id)) => {
                let ids = self.set_ids_of(at);
                let is_it =
                    |(known, set): &&(u32, Handle)| *known == id && table.sets.contains_key(set);
                ids.iter().rev().find(is_it).map(|(_, set)| *set)
            }
            (None, None) => None,
        };
        let Some(handle) = handle else {
            return refuse_at(Errno::ENOENT, attributes.at(elem::LIST_SET));
        };
        if table.sets.get(&handle).is_some_and(|set| set.is_sealed()) {
            return refuse(Errno::EBUSY);
        }
        for attribute in list.nested().iter() {
            let added = self.add_element(at, handle, attribute, message.has(NLM_F_EXCL));
            added.map_err(|refused| refused.at_attribute(Some(attribute.at)))?;
        }
        self.validate_now(at)
    }

    /// `nft_add_set_elem`
    fn add_element(
        &mut self,
        at: usize,
        handle: Handle,
        attribute: Attribute<'_>,
        excl: bool,
    ) -> Result<()> {
        let now = self.now;
        let table = &mut self.next.tables[at];
        let Some(found) = table.sets.get(&handle) else {
            return refuse(Errno::ENOENT);
        };
        let attributes = attribute.nested();
        let is_end = read_flags(attributes, found.has(set::F_INTERVAL))?;
        let Some(key) = attributes
            .get(elem::KEY)
            .filter(|_| has_valid_end(attributes, found, is_end))
        else {
            return refuse(Errno::EINVAL);
        };
        let value = attributes.get(elem::DATA);
        let is_map = found.has(set::F_MAP);
        if is_map && value.is_none() && !is_end
            || !is_map && value.is_some()
            || attributes.has(elem::OBJREF)
        {
            return refuse(Errno::EINVAL);
        }
        let of_whole = [
            elem::DATA,
            elem::TIMEOUT,
            elem::EXPIRATION,
            elem::USERDATA,
            elem::EXPR,
            elem::KEY_END,
            elem::EXPRESSIONS,
        ];
        if is_end && of_whole.iter().any(|kind| attributes.has(*kind)) {
            return refuse(Errno::EINVAL);
        }
        let (timeout, expiration) =
            lifetime(attributes, found.has(set::F_TIMEOUT), found.timeout, is_end)?;
        let counter = match attributes
            .nested(elem::EXPR)
            .map(|one| (one.text(expr::NAME), one))
        {
            Some((Some("counter"), one)) => Some(read_counter(one)?),
            Some(_) => return refuse(Errno::EOPNOTSUPP),
            None => (found.declaration.has_counter && !is_end).then(Counter::default),
        };
        let declaration = found.declaration.clone();
        let is_bound = found.bindings.iter().any(|binding| binding.is_map);
        let (size, is_anonymous) = (found.size, found.is_anonymous());
        let read_key = |attribute| read_plain(attribute, declaration.key_len, data::MAX_LEN);
        let key = read_key(key)?;
        let key_end = attributes.get(elem::KEY_END).map(read_key).transpose()?;
        let is_verdict = declaration.data_type == data::TYPE_VERDICT;
        let data = match value {
            None => None,
            // The kernel sets the length of a verdict.
            Some(value) => {
                let len = if is_verdict { 0 } else { declaration.data_len };
                Some(read_data(table, value, is_verdict, len, data::MAX_LEN)?)
            }
        };
        if is_bound && data.as_ref().and_then(Data::chain).is_some() {
            table.require_validation();
        }
        let element = Element {
            key,
            key_end,
            data: data.clone(),
            is_end,
            userdata: attributes
                .get(elem::USERDATA)
                .map_or(Vec::new(), |data| data.payload.to_vec()),
            counter,
            timeout,
            expires: expiration
                .or(timeout.filter(|timeout| *timeout != 0))
                .map(|length| now + length),
        };
        let Some(found) = table.set_mut(handle) else {
            return refuse(Errno::ENOENT);
        };
        let element = Arc::new(element);
        let inserted = match found
            .elements
            .insert(Arc::clone(&element), is_anonymous, now)
        {
            Ok(()) => {
                // The excess element stays until the whole transaction is aborted.
                let is_full = size > 0 && found.elements.len() > size as usize;
                if !is_anonymous {
                    let table = &self.next.tables[at];
                    self.notices
                        .add(|| Notice::element(msg::NEWSETELEM, table, handle, &element));
                }
                return if is_full {
                    refuse(Errno::ENFILE)
                } else {
                    Ok(())
                };
            }
            Err(InsertConflict::Same(same)) if same.data == element.data && !excl => {
                let has_changed = same.timeout.is_some() && same.timeout != element.timeout;
                if has_changed || same.timeout.is_some() && expiration.is_some() {
                    let Element {
                        key,
                        timeout,
                        expires,
                        ..
                    } = Arc::unwrap_or_clone(element);
                    let table = self.next.tables[at].handle;
                    self.refreshed.push(RefreshedElement {
                        table,
                        set: handle,
                        key,
                        timeout,
                        expires,
                    });
                }
                Ok(())
            }
            Err(InsertConflict::Same(_)) => refuse(Errno::EEXIST),
            Err(InsertConflict::Needless) => Ok(()),
            Err(InsertConflict::Refused(errno)) => refuse(errno),
        };
        if let Some(data) = &data {
            self.table(at).count_use(data, false);
        }
        inserted
    }

    /// `nf_tables_delsetelem`
    pub(super) fn delete_elements(&mut self, message: &Message<'_>) -> Result<()> {
        let attributes = message.attributes();
        let at = self.table_of(message, attributes, elem::LIST_TABLE)?;
        let Some(name) = attributes.text(elem::LIST_SET) else {
            return refuse(Errno::EINVAL);
        };
        let Some(found) = self.next.tables[at].set(name) else {
            return refuse_at(Errno::ENOENT, attributes.at(elem::LIST_SET));
        };
        if found.is_anonymous() {
            return refuse(Errno::EOPNOTSUPP);
        }
        if found.has(set::F_CONSTANT) && !found.bindings.is_empty() {
            return refuse(Errno::EBUSY);
        }
        let handle = found.handle;
        let Some(list) = attributes.get(elem::LIST_ELEMENTS) else {
            let gone = self
                .table(at)
                .set_mut(handle)
                .map(|set| set.elements.clear())
                .unwrap_or_default();
            for gone in &gone {
                self.removed(at, handle, gone);
            }
            return Ok(());
        };
        for attribute in list.nested().iter() {
            let removed = self.remove_element(at, handle, attribute);
            let removed = removed.map_err(|refused| refused.at_attribute(Some(attribute.at)));
            if let Err(refused) = removed {
                unless_destroyed(message, msg::DESTROYSETELEM, refused).map(|_: Option<()>| ())?;
            }
        }
        Ok(())
    }

    /// `nft_del_setelem`
    fn remove_element(
        &mut self,
        at: usize,
        handle: Handle,
        attribute: Attribute<'_>,
    ) -> Result<()> {
        let now = self.now;
        let Some(found) = self.table(at).set_mut(handle) else {
            return refuse(Errno::ENOENT);
        };
        let attributes = attribute.nested();
        let is_end = read_flags(attributes, found.has(set::F_INTERVAL))?;
        let Some(key) = attributes
            .get(elem::KEY)
            .filter(|_| has_valid_end(attributes, found, is_end))
        else {
            return refuse(Errno::EINVAL);
        };
        let len = found.declaration.key_len;
        let key = read_plain(key, len, data::MAX_LEN)?;
        if let Some(end) = attributes.get(elem::KEY_END) {
            read_plain(end, len, data::MAX_LEN)?;
        }
        found.expire(now);
        match found.elements.remove(&key, is_end) {
            Some(gone) => {
                self.removed(at, handle, &gone);
                Ok(())
            }
            None => Err(Refusal::from(Errno::ENOENT)),
        }
    }

    fn removed(&mut self, at: usize, handle: Handle, gone: &Element) {
        let of_table = self.next.tables[at].handle;
        self.refreshed
            .retain(|one| (one.table, one.set) != (of_table, handle) || one.key != gone.key);
        let table = &mut self.next.tables[at];
        if let Some(data) = &gone.data {
            table.count_use(data, false);
        }
        if let Some(set) = table.set_mut(handle) {
            set.deleted += 1;
        }
        self.notices
            .add(|| Notice::element(msg::DELSETELEM, table, handle, gone));
    }
}

/// Whether it is the end of an interval: `nft_setelem_parse_flags`.
fn read_flags(attributes: Attributes<'_>, has_intervals: bool) -> Result<bool> {
    let flags = attributes.u32(elem::FLAGS)?.unwrap_or_default();
    let is_end = flags & elem::F_INTERVAL_END != 0;
    if flags & !elem::F_INTERVAL_END & !elem::F_CATCHALL != 0 || flags & elem::F_CATCHALL != 0 {
        return refuse(Errno::EOPNOTSUPP);
    }
    if is_end && !has_intervals {
        refuse(Errno::EINVAL)
    } else {
        Ok(is_end)
    }
}

/// Only intervals of concatenations have a last key, and no separate end elements: `nft_setelem_valid_key_end`.
fn has_valid_end(attributes: Attributes<'_>, set: &Set, is_end: bool) -> bool {
    let is_of_fields = set.has(set::F_INTERVAL) && set.has(set::F_CONCAT);
    if is_of_fields {
        !is_end
    } else {
        !attributes.has(elem::KEY_END)
    }
}

/// The timeout of an element and its remaining time, in milliseconds.
fn lifetime(
    attributes: Attributes<'_>,
    has_timeout: bool,
    of_set: u64,
    is_end: bool,
) -> Result<(Option<u64>, Option<u64>)> {
    let (timeout, expiration) = (
        attributes.u64(elem::TIMEOUT)?,
        attributes.u64(elem::EXPIRATION)?,
    );
    if !has_timeout {
        let is_given = timeout.is_some() || expiration.is_some();
        return if is_given {
            refuse(Errno::EINVAL)
        } else {
            Ok((None, None))
        };
    }
    let timeout = timeout.unwrap_or(if is_end { 0 } else { of_set });
    match expiration {
        Some(_) if timeout == 0 => refuse(Errno::EOPNOTSUPP),
        Some(expiration) if expiration > timeout => refuse(Errno::ERANGE),
        _ => Ok((
            Some(timeout),
            expiration.filter(|expiration| *expiration != 0),
        )),
    }
}

fn read_counter(expression: Attributes<'_>) -> Result<Counter> {
    let Some(given) = expression.nested(expr::DATA) else {
        return Ok(Counter::default());
    };
    let number = |kind| given.u64(kind).map(Option::unwrap_or_default);
    Ok(Counter {
        packets: number(expr::COUNTER_PACKETS)?,
        bytes: number(expr::COUNTER_BYTES)?,
    })
}
