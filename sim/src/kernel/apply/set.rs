//! Messages about sets.

use super::transaction::{Transaction, unless_destroyed};
use crate::kernel::{
    attributes::Attributes,
    errno::{Errno, Refusal, Result, refuse, refuse_at},
    message::Message,
    notify::Notice,
    ruleset::Table,
    set::{Declaration, Set},
    uapi::{
        LIST_ELEM, NLM_F_CREATE, NLM_F_EXCL, NLM_F_NONREC, NLM_F_REPLACE, data, expr, msg, set,
    },
};

impl Transaction<'_> {
    /// `nf_tables_newset`
    pub(super) fn new_set(&mut self, message: &Message<'_>) -> Result<()> {
        let attributes = message.attributes();
        let needed = [set::TABLE, set::NAME, set::KEY_LEN, set::ID];
        if !needed.iter().all(|kind| attributes.has(*kind)) {
            return refuse(Errno::EINVAL);
        }
        let (mut declaration, size, timeout) = declaration(attributes)?;
        let at = self.table_of(message, attributes, set::TABLE)?;
        let name = attributes.text(set::NAME).unwrap_or_default();
        let has_counter = |this: &Self| match attributes
            .nested(set::EXPR)
            .map(|one| one.text(expr::NAME))
        {
            None => Ok(false),
            Some(Some("counter")) if !this.missing.iter().any(|missing| missing == "counter") => {
                Ok(true)
            }
            // No other expression is modelled here.
            Some(_) => refuse(Errno::ENOENT),
        };
        if let Some(found) = self.next.tables[at].set(name) {
            let handle = found.handle;
            if message.has(NLM_F_EXCL) {
                return refuse_at(Errno::EEXIST, attributes.at(set::NAME));
            }
            if message.has(NLM_F_REPLACE) || found.is_anonymous() {
                return refuse(Errno::EOPNOTSUPP);
            }
            declaration.has_counter = has_counter(self)?;
            if found.declaration != declaration {
                return refuse_at(Errno::EEXIST, attributes.at(set::NAME));
            }
            let table = &self.next.tables[at];
            self.declared.push((table.handle, handle, size, timeout));
            self.notices.add(|| Notice::set(msg::NEWSET, table, found));
            return Ok(());
        }
        if !message.has(NLM_F_CREATE) {
            return refuse(Errno::ENOENT);
        }
        if declaration.flags & set::F_INTERVAL != 0 && declaration.flags & set::F_EVAL != 0 {
            // No set type of the kernel supports both.
            return refuse(Errno::EOPNOTSUPP);
        }
        if is_too_large(&declaration, size) {
            return refuse(Errno::ENOMEM);
        }
        let name = free_name(&self.next.tables[at], name)?;
        declaration.has_counter = has_counter(self)?;
        let id = attributes.u32(set::ID)?.unwrap_or_default();
        let table = &mut self.next.tables[at];
        let handle = table.next_handle();
        let made = Set {
            name,
            handle,
            elements: declaration.elements(),
            declaration,
            size,
            timeout,
            userdata: attributes
                .get(set::USERDATA)
                .map_or(Vec::new(), |data| data.payload.to_vec()),
            bindings: Vec::new(),
            is_unbound: true,
            deleted: 0,
        };
        let is_anonymous = made.is_anonymous();
        if !is_anonymous {
            self.notices.add(|| Notice::set(msg::NEWSET, table, &made));
        }
        table.sets.insert(handle, made.into());
        let of_table = table.handle;
        self.set_ids.push((of_table, id, handle));
        if is_anonymous {
            self.nameless.push(of_table);
        }
        Ok(())
    }

    /// `nf_tables_delset`
    pub(super) fn delete_set(&mut self, message: &Message<'_>) -> Result<()> {
        let attributes = message.attributes();
        let at = self.table_of(message, attributes, set::TABLE)?;
        let table = &mut self.next.tables[at];
        let (found, attribute) = match attributes.u64(set::HANDLE)? {
            Some(handle) => (table.sets.get(&handle), set::HANDLE),
            None => match attributes.text(set::NAME) {
                Some(name) => (table.set(name), set::NAME),
                None => return refuse(Errno::EINVAL),
            },
        };
        let Some(found) = found else {
            let refused = Refusal {
                errno: Errno::ENOENT,
                at: attributes.at(attribute),
            };
            return unless_destroyed(message, msg::DESTROYSET, refused).map(|_: Option<()>| ());
        };
        if found.uses() > 0 || message.has(NLM_F_NONREC) && found.elements.len() + found.deleted > 0
        {
            return refuse_at(Errno::EBUSY, attributes.at(attribute));
        }
        let handle = found.handle;
        let Some(gone) = table.sets.remove(&handle) else {
            return Ok(());
        };
        let data: Vec<_> = gone
            .elements
            .iter()
            .filter_map(|element| element.data.clone())
            .collect();
        for data in &data {
            table.count_use(data, false);
        }
        self.notices.add(|| Notice::set(msg::DELSET, table, &gone));
        Ok(())
    }
}

/// Whether the hash table for this number of elements exceeds the kernel's maximum allocation: `nft_hash_privsize`.
fn is_too_large(declaration: &Declaration, size: u32) -> bool {
    const POINTER: u64 = 8;
    let is_resizable =
        declaration.flags & (set::F_INTERVAL | set::F_TIMEOUT | set::F_EVAL) != 0 || size == 0;
    let buckets = u64::from(size.wrapping_mul(4) / 3).next_power_of_two();
    !is_resizable && buckets * POINTER > i32::MAX.unsigned_abs().into()
}

/// The declaration of a set, its size, and the timeout of its elements.
fn declaration(attributes: Attributes<'_>) -> Result<(Declaration, u32, u64)> {
    let is_reserved = |kind: u32| kind & data::TYPE_RESERVED == data::TYPE_RESERVED;
    let mut declaration = Declaration::default();
    let number = |kind| attributes.u32(kind).map(Option::unwrap_or_default);
    declaration.key_type = number(set::KEY_TYPE)?;
    if is_reserved(declaration.key_type) {
        return refuse(Errno::EINVAL);
    }
    declaration.key_len = number(set::KEY_LEN)?;
    let is_length = |len: u32| (1..=data::MAX_LEN).contains(&(len as usize));
    if !is_length(declaration.key_len) {
        return refuse(Errno::EINVAL);
    }
    declaration.flags = number(set::FLAGS)?;
    let flags = declaration.flags;
    let has = |all: u32| flags & all == all;
    if flags & !set::F_MASK != 0
        || has(set::F_MAP | set::F_OBJECT)
        || has(set::F_EVAL | set::F_OBJECT)
        || has(set::F_ANONYMOUS | set::F_TIMEOUT) && !has(set::F_EVAL)
        || has(set::F_CONSTANT | set::F_TIMEOUT)
    {
        return refuse(Errno::EOPNOTSUPP);
    }
    match attributes.u32(set::DATA_TYPE)? {
        Some(_) if !has(set::F_MAP) => return refuse(Errno::EINVAL),
        Some(data::TYPE_VERDICT) => {
            (declaration.data_type, declaration.data_len) = (data::TYPE_VERDICT, data::VERDICT_LEN);
        }
        Some(kind) if is_reserved(kind) => return refuse(Errno::EINVAL),
        Some(kind) => {
            let len = number(set::DATA_LEN)?;
            if !is_length(len) {
                return refuse(Errno::EINVAL);
            }
            (declaration.data_type, declaration.data_len) = (kind, len);
        }
        None if has(set::F_MAP) => return refuse(Errno::EINVAL),
        None => {}
    }
    if has(set::F_OBJECT) {
        return refuse(Errno::EINVAL);
    }
    let timeout = attributes.u64(set::TIMEOUT)?;
    if timeout.is_some() && !has(set::F_TIMEOUT) {
        return refuse(Errno::EINVAL);
    }
    if timeout.is_some() && has(set::F_ANONYMOUS) {
        return refuse(Errno::EOPNOTSUPP);
    }
    let mut size = 0;
    if let Some(desc) = attributes.nested(set::DESC) {
        size = desc.u32(set::DESC_SIZE)?.unwrap_or_default();
        if let Some(fields) = desc.nested(set::DESC_CONCAT) {
            declaration.fields = read_fields(fields, declaration.key_len)?;
        }
    }
    if (declaration.fields.len() > 1) != has(set::F_CONCAT) {
        return refuse(Errno::EINVAL);
    }
    Ok((declaration, size, timeout.unwrap_or_default()))
}

/// `nft_set_desc_concat`
fn read_fields(list: Attributes<'_>, key_len: u32) -> Result<Vec<u32>> {
    const MAX_FIELDS: usize = 16;
    let mut fields = Vec::new();
    for field in list.iter() {
        if field.kind != LIST_ELEM {
            return refuse(Errno::EINVAL);
        }
        if fields.len() >= MAX_FIELDS {
            return refuse(Errno::E2BIG);
        }
        match field.nested().u32(set::FIELD_LEN)? {
            Some(len) if (1..=u32::from(u8::MAX)).contains(&len) => fields.push(len),
            _ => return refuse(Errno::EINVAL),
        }
    }
    let registers = |len: u32| len.div_ceil(4);
    if fields.iter().map(|len| registers(*len)).sum::<u32>() != registers(key_len) {
        return refuse(Errno::EINVAL);
    }
    Ok(fields)
}

/// `nf_tables_set_alloc_name`: a `%d` becomes the first free number.
fn free_name(table: &Table, name: &str) -> Result<Box<str>> {
    let Some((before, after)) = name.split_once('%') else {
        return Ok(name.into());
    };
    let Some(after) = after.strip_prefix('d').filter(|after| !after.contains('%')) else {
        return refuse(Errno::EINVAL);
    };
    if name.len() >= set::MAX_ANONYMOUS_NAME {
        return refuse(Errno::EINVAL);
    }
    let numbered = (0_u32..).map(|number| format!("{before}{number}{after}"));
    let mut free = numbered.filter(|name| table.set(name).is_none());
    free.next().map(Into::into).ok_or(Errno::ENFILE.into())
}
