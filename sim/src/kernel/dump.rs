//! Requests for objects of the ruleset: single ones, and dumps of all objects of a kind.

use super::{
    attributes::{Attributes, Writer},
    data::Handle,
    element::Element,
    errno::{Errno, Result, refuse},
    init::read_plain,
    message::{self, Frame, Message},
    process::{self, Process},
    ruleset::{Base, Chain, Rule, Ruleset, Table},
    set::Set,
    uapi::{
        LIST_ELEM, NFPROTO_UNSPEC, NLM_F_DUMP, NLM_F_MULTI, SUBSYS_NFTABLES, chain, data, elem,
        expr, msg, rule, set, table,
    },
};

/// The maximum size of a datagram of a dump.
const MAX_DATAGRAM_BYTES: usize = 16 << 10;

/// The lower half of the generation, which is in each message.
pub(super) const fn resource(generation: u32) -> u16 {
    (generation & 0xffff) as u16
}

/// The process and socket that send a request, and the time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Requester<'a> {
    pub(super) port: u32,
    pub(super) now: u64,
    pub(super) process: &'a Process,
}

/// The answer to a request: datagrams, each of one or more messages.
pub(super) fn answer(
    ruleset: &Ruleset,
    message: &Message<'_>,
    asker: Requester<'_>,
) -> Result<Vec<Vec<u8>>> {
    let is_dump = message.flags & NLM_F_DUMP == NLM_F_DUMP;
    let mut answer = Answer {
        message: *message,
        asker,
        generation: ruleset.generation,
        is_dump,
        all: Vec::new(),
    };
    match message.kind_in_subsystem() {
        msg::GETGEN => {
            let by = asker.process;
            answer.add(msg::NEWGEN, 0, |out| {
                process::write_generation(ruleset.generation, by, out);
            });
        }
        msg::GETTABLE => answer.tables(ruleset)?,
        msg::GETCHAIN => answer.chains(ruleset)?,
        msg::GETRULE => answer.rules(ruleset)?,
        msg::GETSET => answer.sets(ruleset)?,
        msg::GETSETELEM => answer.elements(ruleset)?,
        _ => return refuse(Errno::EINVAL),
    }
    Ok(answer.pieces())
}

struct Answer<'a> {
    message: Message<'a>,
    asker: Requester<'a>,
    generation: u32,
    is_dump: bool,
    all: Vec<Vec<u8>>,
}

impl Answer<'_> {
    fn add(&mut self, kind: u8, family: u8, fill: impl FnOnce(&mut Writer)) {
        let frame = Frame {
            subsystem: SUBSYS_NFTABLES,
            kind,
            flags: if self.is_dump { NLM_F_MULTI } else { 0 },
            sequence: self.message.sequence,
            port: self.asker.port,
            family,
            resource: resource(self.generation),
        };
        self.all.push(frame.write(fill));
    }

    fn pieces(self) -> Vec<Vec<u8>> {
        let mut pieces: Vec<Vec<u8>> = Vec::new();
        for one in self.all {
            match pieces.last_mut() {
                Some(last) if last.len() + one.len() <= MAX_DATAGRAM_BYTES => {
                    last.extend_from_slice(&one);
                }
                _ => pieces.push(one),
            }
        }
        if self.is_dump {
            let done = message::done(NLM_F_MULTI, self.message.sequence, self.asker.port);
            match pieces.last_mut() {
                Some(last) => last.extend_from_slice(&done),
                None => pieces.push(done),
            }
        }
        pieces
    }

    /// The tables of the requested family.
    fn requested_tables<'r>(
        &self,
        ruleset: &'r Ruleset,
    ) -> impl Iterator<Item = &'r Table> + use<'r> {
        let family = self.message.family();
        ruleset
            .tables
            .iter()
            .filter(move |table| family == NFPROTO_UNSPEC || table.family == family)
    }

    /// The named table, with any owner.
    fn table<'r>(&self, ruleset: &'r Ruleset, kind: u16) -> Result<&'r Table> {
        let Some(name) = self.message.attributes().text(kind) else {
            return refuse(Errno::EINVAL);
        };
        ruleset
            .table(self.message.family(), name)
            .ok_or(Errno::ENOENT.into())
    }

    fn tables(&mut self, ruleset: &Ruleset) -> Result<()> {
        if self.is_dump {
            for found in self.requested_tables(ruleset) {
                self.add(msg::NEWTABLE, found.family, |out| write_table(found, out));
            }
        } else {
            let found = self.table(ruleset, table::NAME)?;
            self.add(msg::NEWTABLE, found.family, |out| write_table(found, out));
        }
        Ok(())
    }

    fn chains(&mut self, ruleset: &Ruleset) -> Result<()> {
        if self.is_dump {
            for table in self.requested_tables(ruleset) {
                for found in table.chains.values() {
                    self.add(msg::NEWCHAIN, table.family, |out| {
                        write_chain(table, found, out);
                    });
                }
            }
            return Ok(());
        }
        let table = self.table(ruleset, chain::TABLE)?;
        let name = self.message.attributes().text(chain::NAME);
        let Some(name) = name else {
            return refuse(Errno::EINVAL);
        };
        let Some(found) = table.chain(name) else {
            return refuse(Errno::ENOENT);
        };
        self.add(msg::NEWCHAIN, table.family, |out| {
            write_chain(table, found, out);
        });
        Ok(())
    }

    fn rules(&mut self, ruleset: &Ruleset) -> Result<()> {
        if !self.is_dump {
            return refuse(Errno::EOPNOTSUPP);
        }
        let attributes = self.message.attributes();
        let (of_table, of_chain) = (attributes.text(rule::TABLE), attributes.text(rule::CHAIN));
        for table in self
            .requested_tables(ruleset)
            .filter(|table| of_table.is_none_or(|name| *table.name == *name))
        {
            for chain in table
                .chains
                .values()
                .filter(|chain| of_chain.is_none_or(|name| *chain.name == *name))
            {
                let mut before = None;
                for found in &chain.rules {
                    self.add(msg::NEWRULE, table.family, |out| {
                        write_rule(table, chain, found, before, out);
                    });
                    before = Some(found.handle);
                }
            }
        }
        Ok(())
    }

    fn sets(&mut self, ruleset: &Ruleset) -> Result<()> {
        let attributes = self.message.attributes();
        if self.is_dump {
            let of_table = attributes.text(set::TABLE);
            if of_table.is_some() {
                self.table(ruleset, set::TABLE)?;
            }
            for table in self
                .requested_tables(ruleset)
                .filter(|table| of_table.is_none_or(|name| *table.name == *name))
            {
                for found in table.sets.values() {
                    self.add(msg::NEWSET, table.family, |out| {
                        write_set(table, found, out);
                    });
                }
            }
            return Ok(());
        }
        let table = self.table(ruleset, set::TABLE)?;
        let Some(name) = attributes.text(set::NAME) else {
            return refuse(Errno::EINVAL);
        };
        let Some(found) = table.set(name) else {
            return refuse(Errno::ENOENT);
        };
        self.add(msg::NEWSET, table.family, |out| {
            write_set(table, found, out);
        });
        Ok(())
    }

    fn elements(&mut self, ruleset: &Ruleset) -> Result<()> {
        const PER_MESSAGE: usize = 64;
        let attributes = self.message.attributes();
        let table = self.table(ruleset, elem::LIST_TABLE)?;
        let Some(name) = attributes.text(elem::LIST_SET) else {
            return refuse(Errno::EINVAL);
        };
        let Some(found) = table.set(name) else {
            return refuse(Errno::ENOENT);
        };
        let now = self.asker.now;
        if !self.is_dump {
            return self.element(table, found, attributes);
        }
        let live: Vec<&Element> = found
            .elements
            .iter()
            .filter(|element| !element.is_expired(now))
            .collect();
        // The dump of an empty set has one message, without elements.
        let chunks = live.chunks(PER_MESSAGE).map(<[&Element]>::to_vec);
        let chunks: Vec<Vec<&Element>> = if live.is_empty() {
            vec![Vec::new()]
        } else {
            chunks.collect()
        };
        for chunk in chunks {
            self.add(msg::NEWSETELEM, table.family, |out| {
                write_elements(table, found, &chunk, now, out);
            });
        }
        Ok(())
    }

    /// The requested elements: for each key the element that contains it.
    fn element(&mut self, table: &Table, found: &Set, attributes: Attributes<'_>) -> Result<()> {
        let now = self.asker.now;
        let Some(list) = attributes.nested(elem::LIST_ELEMENTS) else {
            return refuse(Errno::EINVAL);
        };
        for attribute in list.iter() {
            let Some(key) = attribute.nested().get(elem::KEY) else {
                return refuse(Errno::EINVAL);
            };
            let key = read_plain(key, found.declaration.key_len, data::MAX_LEN)?;
            let Some(element) = found.elements.find(&key, now) else {
                return refuse(Errno::ENOENT);
            };
            self.add(msg::NEWSETELEM, table.family, |out| {
                write_elements(table, found, &[element], now, out);
            });
        }
        Ok(())
    }
}

pub(super) fn write_table(found: &Table, out: &mut Writer) {
    out.text(table::NAME, &found.name);
    out.u32(table::USE, number(found.uses()));
    out.u64(table::HANDLE, found.handle);
    out.u32(table::FLAGS, found.flags);
    if let Some(owner) = found.owner.filter(|_| found.flags & table::F_OWNER != 0) {
        out.u32(table::OWNER, owner);
    }
    if !found.userdata.is_empty() {
        out.bytes(table::USERDATA, &found.userdata);
    }
}

pub(super) fn write_chain(table: &Table, found: &Chain, out: &mut Writer) {
    out.text(chain::TABLE, &table.name);
    out.text(chain::NAME, &found.name);
    out.u64(chain::HANDLE, found.handle);
    if let Some(Base {
        kind,
        hook,
        priority,
        policy,
    }) = found.base
    {
        out.nested(chain::HOOK, |out| {
            out.u32(chain::HOOK_NUM, hook);
            out.u32(chain::HOOK_PRIORITY, priority.cast_unsigned());
        });
        out.u32(chain::POLICY, policy);
        out.text(chain::TYPE, kind.name());
    }
    if found.flags != 0 {
        out.u32(chain::FLAGS, found.flags);
    }
    out.u32(chain::USE, number(found.uses));
}

/// `before` is the rule before it.
pub(super) fn write_rule(
    table: &Table,
    chain: &Chain,
    found: &Rule,
    before: Option<Handle>,
    out: &mut Writer,
) {
    out.text(rule::TABLE, &table.name);
    out.text(rule::CHAIN, &chain.name);
    out.u64(rule::HANDLE, found.handle);
    if let Some(before) = before {
        out.u64(rule::POSITION, before);
    }
    out.nested(rule::EXPRESSIONS, |list| {
        for expression in &found.expressions {
            list.nested(LIST_ELEM, |out| expression.write(table, out));
        }
    });
    if !found.userdata.is_empty() {
        out.bytes(rule::USERDATA, &found.userdata);
    }
}

pub(super) fn write_set(table: &Table, found: &Set, out: &mut Writer) {
    let declaration = &found.declaration;
    out.text(set::TABLE, &table.name);
    out.text(set::NAME, &found.name);
    out.u64(set::HANDLE, found.handle);
    if declaration.flags != 0 {
        out.u32(set::FLAGS, declaration.flags);
    }
    out.u32(set::KEY_TYPE, declaration.key_type);
    out.u32(set::KEY_LEN, declaration.key_len);
    if found.has(set::F_MAP) {
        out.u32(set::DATA_TYPE, declaration.data_type);
        out.u32(set::DATA_LEN, declaration.data_len);
    }
    if found.timeout != 0 {
        out.u64(set::TIMEOUT, found.timeout);
    }
    if !found.userdata.is_empty() {
        out.bytes(set::USERDATA, &found.userdata);
    }
    out.nested(set::DESC, |out| {
        if found.size != 0 {
            out.u32(set::DESC_SIZE, found.size);
        }
        if declaration.fields.len() > 1 {
            out.nested(set::DESC_CONCAT, |out| {
                for field in &declaration.fields {
                    out.nested(LIST_ELEM, |out| out.u32(set::FIELD_LEN, *field));
                }
            });
        }
    });
    if declaration.has_counter {
        out.nested(set::EXPR, |out| write_counter([0, 0], out));
    }
}

fn write_elements(table: &Table, found: &Set, elements: &[&Element], now: u64, out: &mut Writer) {
    out.text(elem::LIST_TABLE, &table.name);
    out.text(elem::LIST_SET, &found.name);
    out.nested(elem::LIST_ELEMENTS, |list| {
        for element in elements {
            list.nested(LIST_ELEM, |out| {
                write_element(table, element, found.timeout, now, out);
            });
        }
    });
}

/// `of_set` is the default timeout of the set.
pub(super) fn write_element(
    table: &Table,
    element: &Element,
    of_set: u64,
    now: u64,
    out: &mut Writer,
) {
    out.nested(elem::KEY, |out| out.bytes(data::VALUE, &element.key));
    if let Some(end) = &element.key_end {
        out.nested(elem::KEY_END, |out| out.bytes(data::VALUE, end));
    }
    if let Some(data) = &element.data {
        out.nested(elem::DATA, |out| data.write(table, out));
    }
    if let Some(counter) = element.counter {
        out.nested(elem::EXPR, |out| {
            write_counter([counter.bytes, counter.packets], out);
        });
    }
    if element.is_end {
        out.u32(elem::FLAGS, elem::F_INTERVAL_END);
    }
    if let Some(timeout) = element.timeout.filter(|timeout| *timeout != of_set) {
        out.u64(elem::TIMEOUT, timeout);
    }
    if let Some(expires) = element.expires {
        out.u64(elem::EXPIRATION, expires.saturating_sub(now));
    }
    if !element.userdata.is_empty() {
        out.bytes(elem::USERDATA, &element.userdata);
    }
}

fn write_counter([bytes, packets]: [u64; 2], out: &mut Writer) {
    out.text(expr::NAME, "counter");
    out.nested(expr::DATA, |out| {
        out.u64(expr::COUNTER_BYTES, bytes);
        out.u64(expr::COUNTER_PACKETS, packets);
    });
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
