//! Reads the kernel's table by the types that the kernel stores with each set. Independent of the desired content.

use std::collections::{BTreeMap, BTreeSet};

use super::datum;
use crate::nftables::{
    kernel::read::{interval_bound, intervals},
    layout::hook_name::hook_name,
    netlink::{
        Attributes, NetlinkError, Socket,
        constants::{LIST_ELEM, chain, data, elem, msg, set, table, verdict},
    },
};

/// A table of the family inet.
#[derive(Debug, Default)]
pub(super) struct KernelTable {
    pub(super) flags: u32,
    /// The hook of each chain; empty for one that others jump to.
    pub(super) chains: BTreeMap<String, String>,
    /// The named sets and maps.
    pub(super) sets: BTreeMap<String, KernelSet>,
}

impl KernelTable {
    /// True if an element leads to the chain.
    pub(super) fn leads_to(&self, chain: &str) -> bool {
        let verdict = format!("goto {chain}");
        let mut entries = self
            .sets
            .values()
            .flat_map(|set| set.elements.values())
            .flatten();
        entries.any(|(_, value)| *value == verdict)
    }
}

/// A set or map.
#[derive(Debug, Default)]
pub(super) struct KernelSet {
    /// Flags, type and length of the key, type and length of the data.
    pub(super) declaration: [u32; 5],
    pub(super) elements: BTreeMap<String, BTreeSet<StoredEntry>>,
}

/// The content of a key: the slot if it has slots, and the value, empty if it has none.
pub(super) type StoredEntry = (Option<u32>, String);

/// How many elements are read between two reports of progress.
const PROGRESS_INTERVAL: usize = 4096;

/// The table with this name; none if it does not exist. Reports the number of elements read from time to time.
pub(super) fn read(
    socket: &mut Socket,
    name: &str,
    tell: &mut dyn FnMut(usize),
) -> Result<Option<KernelTable>, NetlinkError> {
    let mut found = None;
    socket.pass(
        msg::GETTABLE,
        |_| (),
        |object| {
            if object.text(table::NAME) == Some(name) {
                let flags = object.u32(table::FLAGS).unwrap_or_default();
                found = Some(KernelTable {
                    flags,
                    ..KernelTable::default()
                });
            }
        },
    )?;
    let Some(mut read) = found else {
        return Ok(None);
    };
    socket.pass(
        msg::GETCHAIN,
        |_| (),
        |object| {
            if let (Some(of), Some(chain)) = (object.text(chain::TABLE), object.text(chain::NAME))
                && of == name
            {
                read.chains.insert(chain.to_owned(), hook(object));
            }
        },
    )?;
    socket.pass(
        msg::GETSET,
        |message| message.text(set::TABLE, name),
        |object| {
            let flags = object.u32(set::FLAGS).unwrap_or_default();
            if let Some(of) = object
                .text(set::NAME)
                .filter(|_| flags & set::FLAG_ANONYMOUS == 0)
            {
                let number = |kind| object.u32(kind).unwrap_or_default();
                let [key, data] = [
                    [set::KEY_TYPE, set::KEY_LEN],
                    [set::DATA_TYPE, set::DATA_LEN],
                ];
                let declaration = [
                    flags,
                    number(key[0]),
                    number(key[1]),
                    number(data[0]),
                    number(data[1]),
                ];
                read.sets.insert(
                    of.to_owned(),
                    KernelSet {
                        declaration,
                        ..KernelSet::default()
                    },
                );
            }
        },
    )?;
    let mut count = 0;
    for (of, set) in &mut read.sets {
        read_elements(socket, name, of, set, &mut || {
            count += 1;
            if count % PROGRESS_INTERVAL == 0 {
                tell(count);
            }
        })?;
    }
    Ok(Some(read))
}

fn hook(chain: Attributes<'_>) -> String {
    let Some(hook) = chain.nested(chain::HOOK) else {
        return String::new();
    };
    let kind = chain.text(chain::TYPE).unwrap_or_default();
    let priority = hook
        .u32(chain::HOOK_PRIORITY)
        .unwrap_or_default()
        .cast_signed();
    let policy = chain.u32(chain::POLICY).unwrap_or_default();
    hook_text(
        kind,
        hook.u32(chain::HOOK_HOOKNUM).unwrap_or_default(),
        priority,
        policy,
    )
}

/// In a format that can be compared and read.
pub(super) fn hook_text(kind: &str, hook: u32, priority: i32, policy: u32) -> String {
    let name = hook_name(hook);
    let policy = if policy == chain::POLICY_ACCEPT {
        "accept"
    } else {
        "drop"
    };
    format!("type {kind} hook {name} priority {priority} policy {policy}")
}

fn read_elements(
    socket: &mut Socket,
    table: &str,
    name: &str,
    set: &mut KernelSet,
    count: &mut dyn FnMut(),
) -> Result<(), NetlinkError> {
    let [flags, ..] = set.declaration;
    // Unless it is a concatenation, an interval is listed as two elements: its first key, and the key after its last.
    let is_cut = flags & set::FLAG_INTERVAL != 0 && flags & set::FLAG_CONCAT == 0;
    let mut bounds = BTreeSet::new();
    let question = |message: &mut crate::netlink::Writer<'_>| {
        message.text(elem::LIST_TABLE, table);
        message.text(elem::LIST_SET, name);
    };
    socket.pass(msg::GETSETELEM, question, |object| {
        let list = object
            .nested(elem::LIST_ELEMENTS)
            .into_iter()
            .flat_map(Attributes::iter);
        for (_, element) in list.filter(|(kind, _)| *kind == LIST_ELEM) {
            count();
            let element = Attributes(element);
            let Some(first) = key(element, elem::KEY) else {
                continue;
            };
            if is_cut {
                bounds.extend(interval_bound(element));
            } else {
                set.insert_element(first, element);
            }
        }
    })?;
    for (first, last) in intervals(bounds) {
        set.insert(&first, &last, None);
    }
    Ok(())
}

fn key(element: Attributes<'_>, kind: u16) -> Option<&[u8]> {
    element.nested(kind)?.get(data::VALUE)
}

impl KernelSet {
    /// Adds an element that is listed as a single one.
    pub(super) fn insert_element(&mut self, first: &[u8], element: Attributes<'_>) {
        let [flags, ..] = self.declaration;
        let last = key(element, elem::KEY_END).filter(|_| flags & set::FLAG_CONCAT != 0);
        let data = element
            .nested(elem::DATA)
            .filter(|_| flags & set::FLAG_MAP != 0);
        self.insert(first, last.unwrap_or(first), data);
    }

    fn insert(&mut self, first: &[u8], last: &[u8], data: Option<Attributes<'_>>) {
        let [_, key_type, _, data_type, _] = self.declaration;
        let (key, slot) = datum::text(key_type, first, last);
        let value =
            data.map(
                |data| match (data_type, data.nested(data::VERDICT), data.get(data::VALUE)) {
                    (verdict::DATA_TYPE, Some(verdict), _) => verdict_text(verdict),
                    (_, _, Some(value)) => datum::text(data_type, value, value).0,
                    _ => "?".to_owned(),
                },
            );
        self.elements
            .entry(key)
            .or_default()
            .insert((slot, value.unwrap_or_default()));
    }
}

fn verdict_text(attributes: Attributes<'_>) -> String {
    let code = attributes
        .u32(data::VERDICT_CODE)
        .unwrap_or_default()
        .cast_signed();
    let word = match code {
        verdict::ACCEPT => "accept".to_owned(),
        verdict::DROP => "drop".to_owned(),
        verdict::GOTO => "goto".to_owned(),
        verdict::JUMP => "jump".to_owned(),
        other => format!("verdict {other}"),
    };
    let chain = attributes
        .text(data::VERDICT_CHAIN)
        .map(|chain| format!(" {}", chain.escape_debug()));
    word + &chain.unwrap_or_default()
}
