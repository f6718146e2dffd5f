//! Notifications of a transaction to listeners: a message for each created or deleted object, and a last one with the new
//! generation and the process.

use super::{
    attributes::Writer,
    data::Handle,
    dump,
    element::Element,
    message::Frame,
    process::{self, Process},
    ruleset::{Chain, Rule, Table},
    set::Set,
    uapi::{LIST_ELEM, NLM_F_APPEND, NLM_F_CREATE, SUBSYS_NFTABLES, elem, msg},
};

/// A created or deleted object.
#[derive(Debug, Clone)]
pub(super) struct Notice {
    kind: u8,
    family: u8,
    attributes: Vec<u8>,
}

/// The notices of a transaction, in the order of its changes. There are none if no other process listens: writing them is a large
/// part of a transaction.
#[derive(Debug)]
pub(super) struct Notices {
    is_heard: bool,
    all: Vec<Notice>,
}

impl Notices {
    pub(super) const fn new(is_heard: bool) -> Self {
        let all = Vec::new();
        Self { is_heard, all }
    }

    pub(super) fn add(&mut self, notice: impl FnOnce() -> Notice) {
        if self.is_heard {
            self.all.push(notice());
        }
    }

    pub(super) fn into_all(self) -> Vec<Notice> {
        self.all
    }
}

impl Notice {
    fn new(kind: u8, table: &Table, fill: impl FnOnce(&mut Writer)) -> Self {
        let mut writer = Writer::default();
        fill(&mut writer);
        Self {
            kind,
            family: table.family,
            attributes: writer.0,
        }
    }

    pub(super) fn table(kind: u8, table: &Table) -> Self {
        Self::new(kind, table, |out| dump::write_table(table, out))
    }

    pub(super) fn chain(kind: u8, table: &Table, chain: &Chain) -> Self {
        Self::new(kind, table, |out| dump::write_chain(table, chain, out))
    }

    pub(super) fn rule(kind: u8, table: &Table, chain: &Chain, rule: &Rule) -> Self {
        Self::new(kind, table, |out| {
            dump::write_rule(table, chain, rule, None, out);
        })
    }

    pub(super) fn set(kind: u8, table: &Table, set: &Set) -> Self {
        Self::new(kind, table, |out| dump::write_set(table, set, out))
    }

    pub(super) fn element(kind: u8, table: &Table, set: Handle, element: &Element) -> Self {
        let set = table.sets.get(&set);
        let (name, of_set) = set.map_or(("", 0), |set| (&*set.name, set.timeout));
        Self::new(kind, table, |out| {
            out.text(elem::LIST_TABLE, &table.name);
            out.text(elem::LIST_SET, name);
            out.nested(elem::LIST_ELEMENTS, |list| {
                list.nested(LIST_ELEM, |out| {
                    dump::write_element(table, element, of_set, 0, out);
                });
            });
        })
    }

    /// The message for a transaction that creates this generation.
    pub(super) fn write(&self, generation: u32, port: u32, sequence: u32) -> Vec<u8> {
        let is_new = [
            msg::NEWTABLE,
            msg::NEWCHAIN,
            msg::NEWRULE,
            msg::NEWSET,
            msg::NEWSETELEM,
        ];
        let frame = Frame {
            subsystem: SUBSYS_NFTABLES,
            kind: self.kind,
            flags: if is_new.contains(&self.kind) {
                NLM_F_CREATE | NLM_F_APPEND
            } else {
                0
            },
            sequence,
            port,
            family: self.family,
            resource: dump::resource(generation),
        };
        frame.write(|out| out.0.extend_from_slice(&self.attributes))
    }
}

/// The message that ends a transaction.
pub(super) fn write_generation(generation: u32, by: &Process, port: u32, sequence: u32) -> Vec<u8> {
    let frame = Frame {
        subsystem: SUBSYS_NFTABLES,
        kind: msg::NEWGEN,
        flags: 0,
        sequence,
        port,
        family: 0,
        resource: dump::resource(generation),
    };
    frame.write(|out| process::write_generation(generation, by, out))
}
