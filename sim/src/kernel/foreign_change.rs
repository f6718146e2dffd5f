//! Changes of a table by other programs, such as an administrator's `nft`.

use super::{
    attributes::Writer,
    errno::Errno,
    message::{self, Frame},
    model::ModelKernel,
    process::Process,
    uapi::{
        BATCH_BEGIN, BATCH_END, LIST_ELEM, NFPROTO_INET, NLM_F_ACK, NLM_F_CREATE, NLM_F_REQUEST,
        NLMSG_ERROR, SUBSYS_NFTABLES, chain, data, elem, expr, msg, rule, set, table, verdict,
    },
};

/// A change of a table of the family `inet` by another program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForeignChange {
    /// `nft flush ruleset`
    FlushRuleset,
    /// `nft delete table inet TABLE`
    DeleteTable,
    /// `nft flush table inet TABLE`: deletes all rules; chains and sets stay.
    FlushTable,
    /// Sets the table's flag `dormant`: none of its rules has effect.
    PutToSleep,
    /// `nft flush chain inet TABLE CHAIN`
    FlushChain(String),
    /// `nft delete chain inet TABLE CHAIN`
    DeleteChain(String),
    /// `nft insert rule inet TABLE CHAIN drop`
    DropAtFirst(String),
    /// `nft add chain inet TABLE CHAIN`
    AddChain(String),
    /// `nft flush set inet TABLE SET`
    FlushSet(String),
    /// Deletes the element with this index in the order of keys, if there are that many.
    DeleteElement {
        /// The name of the set.
        set: String,
        /// The index of the element.
        number: usize,
    },
    /// Sets the value of an element to all ones, or to `drop` in verdict maps, if there are that many.
    ReplaceValue {
        /// The name of the map.
        set: String,
        /// The index of the element.
        number: usize,
    },
    /// Adds an element whose key and value are all ones; its verdict is `drop` in verdict maps.
    AddElement {
        /// The name of the set.
        set: String,
    },
    /// Creates or deletes another table, which does not affect the agent.
    OtherTable,
}

/// A message of a batch: its kind, its flags, its attributes.
type Part = (u8, u16, Vec<u8>);

impl ModelKernel {
    /// Changes the table of this name and the family `inet`, as another program.
    ///
    /// # Errors
    /// The error of the kernel, such as `EPERM` where the table is owned by the agent.
    pub fn apply_foreign_change(&self, of: &str, what: &ForeignChange) -> Result<(), Errno> {
        let process = Process {
            name: "nft".to_owned(),
            pid: 4711,
        };
        let answers = self.ask_as(&process, &batch(&self.parts(of, what)));
        let errors = answers.iter().flat_map(|answer| message::messages(answer));
        let code = |message: message::Message<'_>| {
            (message.kind == NLMSG_ERROR)
                .then(|| {
                    message
                        .bytes
                        .get(message::HEADER..)?
                        .first_chunk()
                        .copied()
                        .map(i32::from_ne_bytes)
                })
                .flatten()
        };
        match errors.filter_map(code).find(|code| *code != 0) {
            Some(code) => Err(Errno(-code)),
            None => Ok(()),
        }
    }

    fn parts(&self, of: &str, what: &ForeignChange) -> Vec<Part> {
        let part = |kind, flags, fill: &dyn Fn(&mut Writer)| {
            let mut writer = Writer::default();
            fill(&mut writer);
            (kind, flags, writer.0)
        };
        let of_chain = |kind, flags, name: &str| {
            part(kind, flags, &|out| {
                out.text(chain::TABLE, of);
                out.text(
                    if kind == msg::DELRULE {
                        rule::CHAIN
                    } else {
                        chain::NAME
                    },
                    name,
                );
            })
        };
        match what {
            ForeignChange::FlushRuleset => vec![part(msg::DELTABLE, 0, &|_| ())],
            ForeignChange::DeleteTable => {
                vec![part(msg::DELTABLE, 0, &|out| out.text(table::NAME, of))]
            }
            ForeignChange::FlushTable => {
                vec![part(msg::DELRULE, 0, &|out| out.text(rule::TABLE, of))]
            }
            ForeignChange::PutToSleep => vec![part(msg::NEWTABLE, NLM_F_CREATE, &|out| {
                out.text(table::NAME, of);
                out.u32(table::FLAGS, table::F_DORMANT);
            })],
            ForeignChange::FlushChain(name) => vec![of_chain(msg::DELRULE, 0, name)],
            ForeignChange::DeleteChain(name) => vec![of_chain(msg::DELCHAIN, 0, name)],
            ForeignChange::AddChain(name) => vec![of_chain(msg::NEWCHAIN, NLM_F_CREATE, name)],
            ForeignChange::DropAtFirst(name) => vec![part(msg::NEWRULE, NLM_F_CREATE, &|out| {
                out.text(rule::TABLE, of);
                out.text(rule::CHAIN, name);
                out.nested(rule::EXPRESSIONS, |list| {
                    list.nested(LIST_ELEM, |out| {
                        out.text(expr::NAME, "immediate");
                        out.nested(expr::DATA, |out| {
                            out.u32(expr::IMMEDIATE_DREG, 0);
                            out.nested(expr::IMMEDIATE_DATA, write_drop);
                        });
                    });
                });
            })],
            ForeignChange::FlushSet(name) => vec![part(msg::DELSETELEM, 0, &|out| {
                out.text(elem::LIST_TABLE, of);
                out.text(elem::LIST_SET, name);
            })],
            ForeignChange::DeleteElement { set, number } => self
                .nth(of, set, *number)
                .map(|key| element(of, set, &key, Change::Delete))
                .into_iter()
                .collect(),
            ForeignChange::ReplaceValue { set, number } => match self.nth(of, set, *number) {
                Some(key) => {
                    let other = self.addition(of, set);
                    vec![
                        element(of, set, &key, Change::Delete),
                        element(of, set, &key, other),
                    ]
                }
                None => Vec::new(),
            },
            ForeignChange::AddElement { set } => {
                let change = self.addition(of, set);
                let state = self.0.lock();
                let found = state
                    .ruleset
                    .table(NFPROTO_INET, of)
                    .and_then(|table| table.set(set));
                let Some(found) = found else {
                    return Vec::new();
                };
                let key = (vec![u8::MAX; found.declaration.key_len as usize], None);
                vec![element(of, set, &key, change)]
            }
            ForeignChange::OtherTable => {
                let name = |out: &mut Writer| out.text(table::NAME, "other");
                let state = self.0.lock();
                match state.ruleset.table(NFPROTO_INET, "other") {
                    Some(_) => vec![part(msg::DELTABLE, 0, &name)],
                    None => vec![part(msg::NEWTABLE, NLM_F_CREATE, &name)],
                }
            }
        }
    }

    /// The message that adds an element with a value that the agent never writes.
    fn addition(&self, of: &str, set: &str) -> Change {
        let state = self.0.lock();
        match state
            .ruleset
            .table(NFPROTO_INET, of)
            .and_then(|table| table.set(set))
        {
            Some(found) if !found.has(set::F_MAP) => Change::Add,
            Some(found) if found.declaration.data_type != data::TYPE_VERDICT => {
                Change::Ones(found.declaration.data_len)
            }
            _ => Change::Drop,
        }
    }

    fn nth(&self, of: &str, set: &str, number: usize) -> Option<Key> {
        let state = self.0.lock();
        let set = state.ruleset.table(NFPROTO_INET, of)?.set(set)?;
        let element = set
            .elements
            .iter()
            .filter(|element| !element.is_end)
            .nth(number)?;
        Some((element.key.clone(), element.key_end.clone()))
    }
}

/// The key of an element, and its last key if it is a range of a concatenation.
type Key = (Vec<u8>, Option<Vec<u8>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Delete,
    Add,
    /// Adds a verdict.
    Drop,
    /// Adds a value of this number of bytes.
    Ones(u32),
}

fn element(of: &str, set: &str, (key, end): &Key, change: Change) -> Part {
    let mut writer = Writer::default();
    writer.text(elem::LIST_TABLE, of);
    writer.text(elem::LIST_SET, set);
    writer.nested(elem::LIST_ELEMENTS, |list| {
        list.nested(LIST_ELEM, |out| {
            out.nested(elem::KEY, |out| out.bytes(data::VALUE, key));
            if let Some(end) = end {
                out.nested(elem::KEY_END, |out| out.bytes(data::VALUE, end));
            }
            match change {
                Change::Delete | Change::Add => {}
                Change::Drop => out.nested(elem::DATA, write_drop),
                Change::Ones(len) => out.nested(elem::DATA, |out| {
                    out.bytes(data::VALUE, &vec![u8::MAX; len as usize]);
                }),
            }
        });
    });
    match change {
        Change::Delete => (msg::DELSETELEM, 0, writer.0),
        Change::Add | Change::Drop | Change::Ones(_) => (msg::NEWSETELEM, NLM_F_CREATE, writer.0),
    }
}

fn write_drop(out: &mut Writer) {
    out.nested(data::VERDICT, |out| {
        out.u32(data::VERDICT_CODE, verdict::DROP.cast_unsigned());
    });
}

/// A batch of messages of the family `inet`, each of which is acknowledged.
pub(crate) fn batch(parts: &[Part]) -> Vec<u8> {
    let bound = |kind, sequence| {
        let payload = [0, 0, 0, SUBSYS_NFTABLES];
        message::raw(kind, NLM_F_REQUEST, sequence, 0, &payload)
    };
    let mut bytes = bound(BATCH_BEGIN, 0);
    let mut sequence = 0;
    for (kind, flags, attributes) in parts {
        sequence += 1;
        let frame = Frame {
            subsystem: SUBSYS_NFTABLES,
            kind: *kind,
            flags: NLM_F_REQUEST | NLM_F_ACK | flags,
            sequence,
            port: 0,
            family: if *kind == msg::DELTABLE && attributes.is_empty() {
                0
            } else {
                NFPROTO_INET
            },
            resource: 0,
        };
        bytes.extend_from_slice(&frame.write(|out| out.0.extend_from_slice(attributes)));
    }
    bytes.extend_from_slice(&bound(BATCH_END, sequence + 1));
    bytes
}
