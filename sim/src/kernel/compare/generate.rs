//! Random batches: half of them are valid for the existing objects, the others have every kind of mistake that a program can
//! make.

use rand::{RngExt as _, SeedableRng, rngs::StdRng, seq::IndexedRandom};

use crate::kernel::{
    attributes::{Attributes, Writer},
    batch,
    caller::Caller,
    message::{self, Frame, Message},
    ruleset::{Ruleset, Table},
    set::Set,
    uapi::{
        BATCH_BEGIN, BATCH_END, BATCH_GENID, LIST_ELEM, NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6,
        NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, NLM_F_NONREC, NLM_F_REPLACE,
        NLM_F_REQUEST, SUBSYS_NFTABLES, chain, data, elem, expr, msg, rule, set, table, verdict,
    },
};

/// A batch, and its description.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) bytes: Vec<u8>,
    pub(super) lines: Vec<String>,
    /// It has messages about intervals.
    pub(super) is_about_intervals: bool,
}

/// A message of a batch.
#[derive(Clone)]
struct Part {
    kind: u8,
    flags: u16,
    family: u8,
    attributes: Writer,
    text: String,
}

impl Part {
    fn is_about_intervals(&self) -> bool {
        let is_of_elements =
            [msg::NEWSETELEM, msg::DELSETELEM, msg::DESTROYSETELEM].contains(&self.kind);
        is_of_elements
            && Attributes::new(&self.attributes.0, 0).text(elem::LIST_SET) == Some(RANGES)
    }
}

/// Generates batches.
#[derive(Debug)]
pub(super) struct Generator {
    random: StdRng,
    last_id: u32,
    /// Whether to use unknown names too. A kernel that loads modules repeats the batch after such a name, and so skips handles.
    tries_unknown: bool,
    /// The port of the socket that is connected to the model.
    port: u32,
}

/// The declaration of a set.
struct Shape {
    name: &'static str,
    flags: u32,
    key_len: usize,
    /// Type and length of the data.
    data: Option<(u32, u32)>,
    size: u32,
    fields: &'static [u32],
    counter: bool,
}

const PLAIN: Shape = Shape {
    name: "plain",
    flags: 0,
    key_len: 4,
    data: None,
    size: 0,
    fields: &[],
    counter: false,
};

const RANGES: &str = "ranges";
const NUMBERS: &str = "numbers";
const GOTO: &str = "goto";

/// Integer, of nft's types.
const INTEGER: u32 = 4;

static SHAPES: [Shape; 9] = [
    PLAIN,
    Shape {
        name: "bounded",
        size: 3,
        ..PLAIN
    },
    Shape {
        name: "verdicts",
        flags: set::F_MAP,
        key_len: 12,
        data: Some((data::TYPE_VERDICT, data::VERDICT_LEN)),
        counter: true,
        ..PLAIN
    },
    Shape {
        name: "values",
        flags: set::F_MAP,
        key_len: 4,
        data: Some((INTEGER, 8)),
        ..PLAIN
    },
    Shape {
        name: RANGES,
        flags: set::F_INTERVAL,
        ..PLAIN
    },
    Shape {
        name: "fields",
        flags: set::F_INTERVAL | set::F_CONCAT,
        key_len: 12,
        fields: &[4, 1, 2],
        ..PLAIN
    },
    Shape {
        name: "memory",
        flags: set::F_MAP | set::F_TIMEOUT | set::F_EVAL,
        data: Some((INTEGER, 8)),
        size: 65_535,
        ..PLAIN
    },
    Shape {
        name: GOTO,
        flags: set::F_MAP,
        data: Some((data::TYPE_VERDICT, data::VERDICT_LEN)),
        ..PLAIN
    },
    Shape {
        name: NUMBERS,
        flags: set::F_MAP,
        key_len: 12,
        data: Some((INTEGER, 4)),
        counter: true,
        ..PLAIN
    },
];

/// Timeouts of elements in milliseconds: longer than any comparison takes.
const TIMEOUTS: [u64; 3] = [0, 3_600_000, 7_200_000];

const TABLES: [&str; 2] = ["one", "two"];
const CHAINS: [&str; 6] = ["c0", "c1", "c2", "c3", "c4", "c5"];

/// Base chains: type, hook, priority.
const BASES: [(&str, &str, u32, i32); 7] = [
    ("b0", "filter", 0, 0),
    ("b1", "filter", 2, 0),
    ("b2", "nat", 0, -100),
    ("b3", "nat", 4, 100),
    ("b4", "nat", 3, -100),
    ("b5", "filter", 3, -10),
    ("b6", "route", 3, 0),
];

impl Generator {
    pub(super) fn new(seed: u64, tries_unknown: bool, port: u32) -> Self {
        Self {
            random: StdRng::seed_from_u64(seed),
            last_id: 0,
            tries_unknown,
            port,
        }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.random.random_range(0..100) < percent
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        from.choose(&mut self.random).cloned()
    }

    /// A batch that deletes all tables.
    pub(super) fn everything_away() -> Request {
        let all = Part {
            kind: msg::DELTABLE,
            flags: 0,
            family: 0,
            attributes: Writer::default(),
            text: "flush ruleset".to_owned(),
        };
        finish(vec![all], true, None)
    }

    /// The next batch for a ruleset with these tables.
    pub(super) fn batch(&mut self, ruleset: &Ruleset) -> Request {
        self.last_id = 0;
        let mut parts = Vec::new();
        // Some batches create a complete table.
        if ruleset.tables.is_empty() || self.chance(1) {
            self.whole_table(&mut parts);
            return finish(parts, true, None);
        }
        let most = if self.chance(10) { 30 } else { 5 };
        let count = self.random.random_range(1..=most);
        if self.chance(50) {
            return finish(self.sound(ruleset, count), true, None);
        }
        for _ in 0..count {
            self.message(ruleset, &mut parts);
        }
        let generation = match self.random.random_range(0..100) {
            0..3 => Some(ruleset.generation),
            3 => Some(ruleset.generation + 7),
            _ => None,
        };
        // The generations of kernel and model differ; only an invalid one is compared.
        let generation = generation
            .filter(|wanted| *wanted != ruleset.generation)
            .map(|wanted| wanted | 0x4000_0000);
        let ends = !self.chance(2);
        finish(parts, ends, generation)
    }

    /// A batch of at most this number of messages, without those that the model refuses.
    fn sound(&mut self, ruleset: &Ruleset, count: usize) -> Vec<Part> {
        let (mut parts, mut after) = (Vec::new(), ruleset.clone());
        for _ in 0..count {
            let mut more: Vec<Part> = parts.clone();
            self.message(&after, &mut more);
            let mut tried = ruleset.clone();
            if self.is_taken(&mut tried, &more) {
                (parts, after) = (more, tried);
            }
        }
        parts
    }

    /// Sends a batch to the model, and returns whether it is committed.
    fn is_taken(&self, ruleset: &mut Ruleset, parts: &[Part]) -> bool {
        let request = finish(parts.to_vec(), true, None);
        let Some((begin, rest)) = Message::first(&request.bytes) else {
            return false;
        };
        let caller = Caller {
            port: self.port,
            now: 0,
            missing: &[],
            is_heard: false,
        };
        batch::apply(ruleset, &begin, rest, caller, None)
            .committed
            .is_some()
    }

    fn whole_table(&mut self, parts: &mut Vec<Part>) {
        let name = self.pick(&TABLES).unwrap_or_default();
        let mut out = Writer::default();
        out.text(table::NAME, name);
        let text = format!("table {name}");
        parts.push(Part {
            kind: msg::NEWTABLE,
            flags: NLM_F_CREATE,
            family: NFPROTO_INET,
            attributes: out,
            text,
        });
        for (chain, kind, hook, priority) in BASES {
            if self.chance(60) {
                parts.push(base(name, chain, Some(kind), Some((hook, priority)), None));
            }
        }
        for chain in CHAINS {
            parts.push(plain_chain(name, chain));
        }
        for shape in &SHAPES {
            parts.push(self.set_part(name, shape, NLM_F_CREATE));
        }
    }

    fn table_name(&mut self) -> &'static str {
        match self.random.random_range(0..100) {
            0..80 => TABLES[0],
            80..97 => TABLES[1],
            _ => "nope",
        }
    }

    fn chain_name(&mut self) -> String {
        match self.random.random_range(0..100) {
            0..65 => self.pick(&CHAINS).unwrap_or_default().to_owned(),
            65..97 => self
                .pick(&BASES)
                .map(|base| base.0)
                .unwrap_or_default()
                .to_owned(),
            _ => "nope".to_owned(),
        }
    }

    fn shape(&mut self) -> &'static Shape {
        SHAPES.choose(&mut self.random).unwrap_or(&SHAPES[0])
    }

    fn message(&mut self, ruleset: &Ruleset, parts: &mut Vec<Part>) {
        let name = self.table_name();
        let there = ruleset.table(NFPROTO_INET, name);
        match self.random.random_range(0..100) {
            0..3 => {
                let flags = self.creation();
                parts.push(self.table_part(msg::NEWTABLE, flags, name, None));
            }
            3..6 => {
                let flags = self.pick(&[0, 1, 2, 4, 6, 6, 8, 0x10]);
                parts.push(self.table_part(msg::NEWTABLE, NLM_F_CREATE, name, flags));
            }
            6..8 => {
                let kind = self.deletion(msg::DELTABLE, msg::DESTROYTABLE);
                let flags = if self.chance(20) { NLM_F_NONREC } else { 0 };
                parts.push(self.table_part(kind, flags, name, None));
            }
            8..16 => self.new_chain(name, parts),
            16..23 => self.delete_chain(name, there, parts),
            23..45 => {
                let chain = self.chain_name();
                self.rule(name, &chain, parts);
            }
            45..55 => self.delete_rule(name, there, parts),
            55..62 => {
                let shape = self.shape();
                let flags = self.creation();
                parts.push(self.set_part(name, shape, flags));
            }
            62..66 => self.odd_set(name, parts),
            66..71 => self.delete_set(name, there, parts),
            71..88 => {
                let shape = self.shape();
                self.elements(name, shape, None, parts);
            }
            88..97 => {
                let shape = self.shape();
                let known = there.and_then(|table| table.set(shape.name)).cloned();
                self.delete_elements(name, shape, known.as_deref(), parts);
            }
            97 => {
                let shape = self.shape();
                parts.push(list(msg::DELSETELEM, 0, name, shape.name, "flush", None));
            }
            _ => parts.push(Part {
                kind: self
                    .pick(&[msg::GETTABLE, msg::NEWGEN, 200, msg::MAX])
                    .unwrap_or_default(),
                flags: 0,
                family: NFPROTO_INET,
                attributes: Writer::default(),
                text: "a kind that has no place in a batch".to_owned(),
            }),
        }
    }

    fn creation(&mut self) -> u16 {
        match self.random.random_range(0..100) {
            0..75 => NLM_F_CREATE,
            75..88 => NLM_F_CREATE | NLM_F_EXCL,
            88..94 => NLM_F_CREATE | NLM_F_REPLACE,
            _ => 0,
        }
    }

    fn deletion(&mut self, delete: u8, destroy: u8) -> u8 {
        if self.chance(15) { destroy } else { delete }
    }

    fn table_part(&mut self, kind: u8, flags: u16, name: &str, of_table: Option<u32>) -> Part {
        let mut out = Writer::default();
        if !self.chance(1) {
            out.text(table::NAME, name);
        }
        if let Some(flags) = of_table {
            out.u32(table::FLAGS, flags);
        }
        let family = if kind == msg::NEWTABLE && self.chance(2) {
            99
        } else {
            NFPROTO_INET
        };
        Part {
            kind,
            flags,
            family,
            attributes: out,
            text: format!("table {kind} {name} flags {of_table:?}"),
        }
    }

    fn new_chain(&mut self, of: &str, parts: &mut Vec<Part>) {
        match self.random.random_range(0..100) {
            0..45 => {
                let name = self.pick(&CHAINS).unwrap_or_default();
                let mut part = plain_chain(of, name);
                part.flags = self.creation();
                parts.push(part);
            }
            45..80 => {
                let Some((name, kind, hook, priority)) = self.pick(&BASES) else {
                    return;
                };
                let policy = self
                    .pick(&[None, Some(0), Some(1), Some(1), Some(2)])
                    .flatten();
                let mut part = base(of, name, Some(kind), Some((hook, priority)), policy);
                part.flags = self.creation();
                parts.push(part);
            }
            _ => {
                // One property of it is made invalid.
                let name = self.chain_name();
                let kind = self
                    .pick(&[
                        None,
                        Some("filter"),
                        Some("nat"),
                        Some("route"),
                        Some("nonsense"),
                    ])
                    .flatten();
                let kind = kind.filter(|kind| *kind != "nonsense" || self.tries_unknown);
                let hook = self.random.random_range(0..5);
                let priority = self.pick(&[-300, -200, -199, 0, 50]).unwrap_or_default();
                let hook = (!self.chance(20)).then_some((hook, priority));
                let policy = self.pick(&[None, Some(0), Some(1), Some(7)]).flatten();
                parts.push(base(of, &name, kind, hook, policy));
            }
        }
    }

    fn delete_chain(&mut self, of: &str, there: Option<&Table>, parts: &mut Vec<Part>) {
        let kind = self.deletion(msg::DELCHAIN, msg::DESTROYCHAIN);
        let name = self.chain_name();
        let mut out = Writer::default();
        out.text(chain::TABLE, of);
        match there.filter(|_| self.chance(5)).map(|_| 4711) {
            Some(handle) => out.u64(chain::HANDLE, handle),
            None => out.text(chain::NAME, &name),
        }
        let flags = if self.chance(15) { NLM_F_NONREC } else { 0 };
        let text = format!("delete chain {of} {name} ({kind}) flags {flags:#x}");
        parts.push(Part {
            kind,
            flags,
            family: NFPROTO_INET,
            attributes: out,
            text,
        });
    }

    fn delete_rule(&mut self, of: &str, there: Option<&Table>, parts: &mut Vec<Part>) {
        let kind = self.deletion(msg::DELRULE, msg::DESTROYRULE);
        let name = self.chain_name();
        let mut out = Writer::default();
        out.text(rule::TABLE, of);
        let mut text = format!("delete rules ({kind}) of {of}");
        if !self.chance(10) {
            out.text(rule::CHAIN, &name);
            text.extend([" ", &name]);
            if let Some(handle) = there.and_then(|_| self.chance(20).then_some(4711)) {
                out.u64(rule::HANDLE, handle);
                text.push_str(" handle ");
                text.push_str(&handle.to_string());
            }
        }
        parts.push(Part {
            kind,
            flags: 0,
            family: NFPROTO_INET,
            attributes: out,
            text,
        });
    }

    fn delete_set(&mut self, of: &str, there: Option<&Table>, parts: &mut Vec<Part>) {
        let kind = self.deletion(msg::DELSET, msg::DESTROYSET);
        let known = there.and_then(|table| {
            let sets: Vec<&Set> = table.sets.values().map(|set| &**set).collect();
            sets.choose(&mut self.random)
                .map(|set| (set.name.to_string(), set.handle))
        });
        let (name, handle) = match known.filter(|_| self.chance(85)) {
            Some((name, _)) => (name, self.chance(3).then_some(4711)),
            None => ("nope".to_owned(), None),
        };
        let mut out = Writer::default();
        out.text(set::TABLE, of);
        match handle.filter(|_| self.chance(15)) {
            Some(handle) => out.u64(set::HANDLE, handle),
            None => out.text(set::NAME, &name),
        }
        let flags = if self.chance(20) { NLM_F_NONREC } else { 0 };
        let text = format!("delete set {of} {name} ({kind}) flags {flags:#x}");
        parts.push(Part {
            kind,
            flags,
            family: NFPROTO_INET,
            attributes: out,
            text,
        });
    }

    fn set_part(&mut self, of: &str, shape: &Shape, flags: u16) -> Part {
        self.last_id += 1;
        let part = set_part(of, shape, shape.name, self.last_id, flags);
        self.with_details(part, shape)
    }

    /// A set with optional properties.
    fn with_details(&mut self, mut part: Part, shape: &Shape) -> Part {
        if shape.flags & set::F_TIMEOUT != 0 && self.chance(50) || self.chance(1) {
            let timeout = self.pick(&TIMEOUTS).unwrap_or_default();
            part.attributes.u64(set::TIMEOUT, timeout);
            part.text.extend([" timeout ", &timeout.to_string()]);
        }
        if self.chance(10) {
            part.attributes.bytes(set::USERDATA, b"set");
        }
        part
    }

    /// A set with an invalid declaration, or one that differs from the existing set.
    fn odd_set(&mut self, of: &str, parts: &mut Vec<Part>) {
        self.last_id += 1;
        let shape = self.shape();
        let mut odd = Shape { ..*shape };
        match self.random.random_range(0..8) {
            0 => odd.flags ^= set::F_MAP,
            1 => odd.key_len = self.pick(&[0, 1, 8, 64, 65]).unwrap_or_default(),
            2 => odd.flags |= set::F_CONCAT,
            3 => odd.flags |= set::F_EVAL | set::F_INTERVAL,
            4 => odd.fields = &[4, 4],
            5 => {
                let flags = [
                    set::F_CONSTANT,
                    set::F_OBJECT,
                    set::F_TIMEOUT,
                    set::F_TIMEOUT,
                    0x400,
                ];
                odd.flags |= self.pick(&flags).unwrap_or_default();
            }
            6 => {
                odd.data = self
                    .pick(&[
                        None,
                        Some((INTEGER, 0)),
                        Some((INTEGER, 65)),
                        Some((0xffff_ff01, 4)),
                    ])
                    .flatten();
            }
            // The meaning of an interval set's size depends on the version of the kernel.
            _ if odd.flags & set::F_INTERVAL != 0 => odd.counter = !odd.counter,
            _ => odd.size = self.pick(&[1, 2, 5, 0x7fff_ffff]).unwrap_or_default(),
        }
        let name = self
            .pick(&[shape.name, shape.name, "odd", "x%d", "y%s", "%d%d"])
            .unwrap_or_default();
        let flags = self.creation();
        let part = set_part(of, &odd, name, self.last_id, flags);
        parts.push(self.with_details(part, &odd));
    }

    fn key(&mut self, shape: &Shape) -> Vec<u8> {
        let mut key = vec![10, 0, 0, self.random.random_range(0..10)];
        if shape.key_len == 12 {
            key.extend([self.random.random_range(6..8), 0, 0, 0]);
            key.extend([0, self.random.random_range(79..84), 0, 0]);
        }
        key
    }

    fn elements(&mut self, of: &str, shape: &Shape, id: Option<u32>, parts: &mut Vec<Part>) {
        let mut list_of = Writer::default();
        let mut text = Vec::new();
        for _ in 0..self.random.random_range(1..=3) {
            if shape.flags & (set::F_INTERVAL | set::F_CONCAT) == set::F_INTERVAL && self.chance(70)
            {
                self.range(shape, &mut list_of, &mut text);
            } else {
                self.element(shape, &mut list_of, &mut text);
            }
        }
        let flags = if self.chance(15) { NLM_F_EXCL } else { 0 }
            | if self.chance(90) { NLM_F_CREATE } else { 0 };
        let text = text.join(", ");
        parts.push(list(
            msg::NEWSETELEM,
            flags,
            of,
            shape.name,
            &text,
            Some((list_of, id)),
        ));
    }

    fn range(&mut self, shape: &Shape, list: &mut Writer, text: &mut Vec<String>) {
        if self.chance(4) {
            // nft writes an end element before the smallest key.
            write_element(
                list,
                &[0; 4],
                None,
                None,
                elem::F_INTERVAL_END,
                &Writer::default(),
            );
            text.push("the null end".to_owned());
        }
        let first = self.key(shape);
        let mut after = first.clone();
        after[3] += self.random.random_range(1..4);
        write_element(list, &first, None, None, 0, &Writer::default());
        write_element(
            list,
            &after,
            None,
            None,
            elem::F_INTERVAL_END,
            &Writer::default(),
        );
        text.push(format!("{first:?} to before {after:?}"));
    }

    fn element(&mut self, shape: &Shape, list: &mut Writer, text: &mut Vec<String>) {
        let mut key = self.key(shape);
        if self.chance(1) {
            key.push(1);
        }
        let end = (!shape.fields.is_empty() && self.chance(80) || self.chance(1)).then(|| {
            let mut end = key.clone();
            end[3] += self.random.random_range(0..3);
            if let Some(port) = end.get_mut(9) {
                *port += self.random.random_range(0..2);
            }
            end
        });
        let flags = match self.random.random_range(0..100) {
            0..2 => elem::F_INTERVAL_END,
            2 => 0x40,
            _ if shape.flags & set::F_INTERVAL != 0
                && shape.fields.is_empty()
                && self.chance(30) =>
            {
                elem::F_INTERVAL_END
            }
            _ => 0,
        };
        let value = match shape.data {
            _ if self.chance(2) => None,
            None => self.chance(1).then(|| value(&[1; 8])),
            Some((data::TYPE_VERDICT, _)) => Some(self.verdict()),
            Some((_, len)) => {
                let len = if self.chance(3) { 12 - len } else { len } as usize;
                let which = self.random.random_range(1..3);
                Some(value(&vec![which; len]))
            }
        };
        text.push(format!(
            "{key:?} to {end:?} flags {flags} : {:?}",
            value.as_ref().map(|(_, text)| text)
        ));
        let timeout = (shape.flags & set::F_TIMEOUT != 0 && self.chance(30) || self.chance(1))
            .then(|| self.pick(&TIMEOUTS).unwrap_or_default());
        let userdata = self.chance(10);
        let counter = (shape.counter && self.chance(20)).then(|| self.random.random_range(0..3));
        let mut more = Writer::default();
        if let Some(timeout) = timeout {
            more.u64(elem::TIMEOUT, timeout);
        }
        if userdata {
            more.bytes(elem::USERDATA, b"element");
        }
        if let Some(counter) = counter {
            more.nested(elem::EXPR, |out| {
                out.text(expr::NAME, "counter");
                out.nested(expr::DATA, |out| {
                    out.u64(expr::COUNTER_BYTES, 100 * counter);
                    out.u64(expr::COUNTER_PACKETS, counter);
                });
            });
        }
        text.push(format!(
            "timeout {timeout:?} userdata {userdata} counter {counter:?}"
        ));
        write_element(
            list,
            &key,
            end.as_deref(),
            value.map(|(value, _)| value),
            flags,
            &more,
        );
    }

    /// A verdict, usually one that leads to a chain.
    fn verdict(&mut self) -> (Writer, String) {
        let (code, chain) = match self.random.random_range(0..100) {
            0..60 => {
                let code = self
                    .pick(&[verdict::GOTO, verdict::JUMP])
                    .unwrap_or_default();
                (code, Some(self.chain_name()))
            }
            60..75 => (verdict::ACCEPT, None),
            75..90 => (verdict::DROP, None),
            90..95 => (verdict::RETURN, None),
            95..98 => (verdict::GOTO, None),
            _ => (-77, None),
        };
        let mut out = Writer::default();
        out.nested(data::VERDICT, |out| {
            out.u32(data::VERDICT_CODE, code.cast_unsigned());
            if let Some(chain) = &chain {
                out.text(data::VERDICT_CHAIN, chain);
            }
        });
        (out, format!("verdict {code} {chain:?}"))
    }

    fn delete_elements(
        &mut self,
        of: &str,
        shape: &Shape,
        known: Option<&Set>,
        parts: &mut Vec<Part>,
    ) {
        let kind = self.deletion(msg::DELSETELEM, msg::DESTROYSETELEM);
        let mut list_of = Writer::default();
        let mut text = Vec::new();
        for _ in 0..self.random.random_range(1..=2) {
            let there: Vec<_> = known
                .map(|set| set.elements.iter().collect())
                .unwrap_or_default();
            let (key, end, is_end) = match there
                .choose(&mut self.random)
                .filter(|_| self.random.random_bool(0.8))
            {
                Some(element) => (element.key.clone(), element.key_end.clone(), element.is_end),
                None => (self.key(shape), None, false),
            };
            let flags = if is_end { elem::F_INTERVAL_END } else { 0 };
            write_element(
                &mut list_of,
                &key,
                end.as_deref(),
                None,
                flags,
                &Writer::default(),
            );
            text.push(format!("{key:?} flags {flags}"));
        }
        parts.push(list(
            kind,
            0,
            of,
            shape.name,
            &text.join(", "),
            Some((list_of, None)),
        ));
    }

    /// A rule, with its anonymous set, if any.
    fn rule(&mut self, of: &str, chain: &str, parts: &mut Vec<Part>) {
        let mut out = Writer::default();
        let mut words = Vec::new();
        self.expressions(of, &mut out, &mut words, parts);
        let mut attributes = Writer::default();
        attributes.text(rule::TABLE, of);
        attributes.text(rule::CHAIN, chain);
        attributes.nested(rule::EXPRESSIONS, |list| list.0.extend_from_slice(&out.0));
        if self.chance(10) {
            attributes.bytes(rule::USERDATA, b"rule");
        }
        let flags = match self.random.random_range(0..100) {
            0..70 => NLM_F_CREATE | NLM_F_APPEND,
            70..95 => NLM_F_CREATE,
            95..98 => NLM_F_CREATE | NLM_F_REPLACE,
            _ => 0,
        };
        let text = format!(
            "rule of {of} {chain} flags {flags:#x}: {}",
            words.join(", ")
        );
        parts.push(Part {
            kind: msg::NEWRULE,
            flags,
            family: NFPROTO_INET,
            attributes,
            text,
        });
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each kind of expression")]
    fn expressions(
        &mut self,
        of: &str,
        out: &mut Writer,
        words: &mut Vec<String>,
        parts: &mut Vec<Part>,
    ) {
        match self.random.random_range(0..100) {
            0..6 => say(words, out, "counter", &|_| ()),
            6..8 => {
                let flags = self.pick(&[None, Some(0x10), Some(0x80)]).flatten();
                let family = self
                    .pick(&[NFPROTO_IPV4, NFPROTO_IPV6, NFPROTO_INET])
                    .unwrap_or_default();
                say(words, out, "meta", &|out| {
                    out.u32(expr::META_KEY, expr::META_OIFNAME);
                    out.u32(expr::META_DREG, 1);
                });
                say(words, out, "nat", &|out| {
                    snat(out, u32::from(family), flags);
                });
                words.push(format!("source, family {family}, flags {flags:?}"));
            }
            8..35 => {
                let (verdict, text) = self.verdict();
                say(words, out, "immediate", &|out| {
                    out.u32(expr::IMMEDIATE_DREG, 0);
                    out.nested(expr::IMMEDIATE_DATA, |out| {
                        out.0.extend_from_slice(&verdict.0);
                    });
                });
                words.push(text);
            }
            35..60 => {
                let shape = self.shape();
                // The key, which is sometimes omitted.
                let len = u32::try_from(shape.key_len).unwrap_or_default();
                if !self.chance(4) {
                    say(words, out, "payload", &|out| payload(out, len));
                }
                let invert = self.chance(15);
                let to = match shape.data {
                    None => self.chance(3).then_some(0),
                    Some((data::TYPE_VERDICT, _)) => {
                        self.pick(&[Some(0), Some(0), Some(0), Some(1)]).flatten()
                    }
                    Some(_) => self.pick(&[Some(1), Some(1), Some(0)]).flatten(),
                };
                say(words, out, "lookup", &|out| {
                    out.text(expr::LOOKUP_SET, shape.name);
                    out.u32(expr::LOOKUP_SREG, 1);
                    if let Some(to) = to {
                        out.u32(expr::LOOKUP_DREG, to);
                    }
                    if invert && to.is_none() {
                        out.u32(expr::LOOKUP_FLAGS, 1);
                    }
                });
                words.push(format!("in {} to {to:?} invert {invert}", shape.name));
                if shape.name == "values" && self.chance(50) {
                    say(words, out, "nat", &|out| nat(out, u32::from(NFPROTO_IPV4)));
                }
            }
            60..66 => say(words, out, "masq", &|out| out.u32(expr::MASQ_FLAGS, 0x10)),
            66..71 => {
                let (kind, code) = self
                    .pick(&[(1, 0), (2, 1), (2, 9), (7, 0), (0, 3)])
                    .unwrap_or_default();
                say(words, out, "reject", &|out| {
                    out.u32(expr::REJECT_TYPE, kind);
                    out.u8(expr::REJECT_ICMP_CODE, code);
                });
                words.push(format!("{kind} {code}"));
            }
            71..75 => say(words, out, "redir", &|_| ()),
            75..80 => {
                let modulus = self.pick(&[0, 1, 2, 1000]).unwrap_or_default();
                say(words, out, "numgen", &|out| {
                    out.u32(expr::NUMGEN_DREG, 9);
                    out.u32(expr::NUMGEN_MODULUS, modulus);
                    out.u32(expr::NUMGEN_TYPE, 1);
                    out.u32(expr::NUMGEN_OFFSET, 0);
                });
                say(words, out, "payload", &|out| payload(out, 4));
                say(words, out, "hash", &|out| {
                    out.u32(expr::HASH_SREG, 1);
                    out.u32(expr::HASH_DREG, 10);
                    out.u32(expr::HASH_LEN, 4);
                    out.u32(expr::HASH_MODULUS, modulus);
                    out.u32(expr::HASH_SEED, 7);
                    out.u32(expr::HASH_TYPE, 0);
                });
                words.push(format!("mod {modulus}"));
            }
            80..86 => {
                say(words, out, "ct", &|out| {
                    out.u32(expr::CT_KEY, expr::CT_STATE);
                    out.u32(expr::CT_DREG, 1);
                });
                say(words, out, "bitwise", &|out| {
                    out.u32(expr::BITWISE_SREG, 1);
                    out.u32(expr::BITWISE_DREG, 1);
                    out.u32(expr::BITWISE_LEN, 4);
                    out.nested(expr::BITWISE_MASK, |out| {
                        out.bytes(data::VALUE, &8_u32.to_ne_bytes());
                    });
                    out.nested(expr::BITWISE_XOR, |out| out.bytes(data::VALUE, &[0; 4]));
                });
                say(words, out, "cmp", &|out| compare(out, 1, &[0; 4]));
                say(words, out, "fib", &|out| {
                    out.u32(expr::FIB_FLAGS, expr::FIB_F_SADDR);
                    out.u32(expr::FIB_RESULT, expr::FIB_RESULT_ADDRTYPE);
                    out.u32(expr::FIB_DREG, 1);
                });
                say(words, out, "cmp", &|out| {
                    compare(out, 0, &2_u32.to_ne_bytes());
                });
            }
            86..91 => {
                let of_memory = self.chance(70);
                let name = if of_memory {
                    "memory"
                } else {
                    self.shape().name
                };
                say(words, out, "payload", &|out| payload(out, 12));
                say(words, out, "dynset", &|out| {
                    out.u32(expr::DYNSET_SREG_KEY, 1);
                    out.u32(expr::DYNSET_SREG_DATA, 9);
                    out.u32(expr::DYNSET_OP, 1);
                    out.u64(expr::DYNSET_TIMEOUT, 5000);
                    out.text(expr::DYNSET_SET_NAME, name);
                });
                words.push(format!("of {name}"));
            }
            91..97 => self.anonymous(of, out, words, parts),
            97 if self.tries_unknown => say(words, out, "nonsense", &|_| ()),
            97 | 98 => self.numbered(out, words),
            _ => {
                say(words, out, "meta", &|out| {
                    out.u32(expr::META_KEY, expr::META_L4PROTO);
                    out.u32(expr::META_DREG, 1);
                });
                say(words, out, "cmp", &|out| compare(out, 0, &[6]));
                say(words, out, "reject", &|out| {
                    out.u32(expr::REJECT_TYPE, 1);
                    out.u8(expr::REJECT_ICMP_CODE, 0);
                });
            }
        }
    }

    /// A rule that writes the value of one map to the packet, and reads it as the key of another; with all mistakes.
    fn numbered(&mut self, out: &mut Writer, words: &mut Vec<String>) {
        let key = self
            .pick(&[expr::META_PRIORITY, expr::META_PRIORITY, expr::META_MARK, 4])
            .unwrap_or_default();
        if !self.chance(5) {
            say(words, out, "payload", &|out| payload(out, 12));
            say(words, out, "lookup", &|out| {
                out.text(expr::LOOKUP_SET, NUMBERS);
                out.u32(expr::LOOKUP_SREG, 1);
                out.u32(expr::LOOKUP_DREG, 1);
            });
        }
        let both = self.chance(5);
        say(words, out, "meta", &|out| {
            out.u32(expr::META_KEY, key);
            out.u32(expr::META_SREG, 1);
            if both {
                out.u32(expr::META_DREG, 1);
            }
        });
        say(words, out, "meta", &|out| {
            out.u32(expr::META_KEY, expr::META_PRIORITY);
            out.u32(expr::META_DREG, 1);
        });
        say(words, out, "lookup", &|out| {
            out.text(expr::LOOKUP_SET, GOTO);
            out.u32(expr::LOOKUP_SREG, 1);
            out.u32(expr::LOOKUP_DREG, 0);
        });
        words.push(format!("by meta {key}, both {both}"));
    }

    /// A lookup in an anonymous set that is created just before; with all mistakes.
    fn anonymous(
        &mut self,
        of: &str,
        out: &mut Writer,
        words: &mut Vec<String>,
        parts: &mut Vec<Part>,
    ) {
        self.last_id += 1;
        let id = self.last_id;
        let is_verdicts = self.chance(30);
        let shape = if is_verdicts {
            Shape {
                flags: set::F_MAP | set::F_ANONYMOUS | set::F_CONSTANT,
                ..SHAPES[7]
            }
        } else {
            let intervals = if self.chance(30) { set::F_INTERVAL } else { 0 };
            Shape {
                flags: set::F_ANONYMOUS | set::F_CONSTANT | intervals,
                ..PLAIN
            }
        };
        let shape = Shape {
            name: "__set%d",
            ..shape
        };
        if !self.chance(5) {
            parts.push(set_part(of, &shape, shape.name, id, NLM_F_CREATE));
            self.elements(of, &shape, Some(id), parts);
        }
        if self.chance(5) {
            // No rule uses it.
            return;
        }
        expression(out, "payload", &|out| payload(out, 4));
        for _ in 0..if self.chance(5) { 2 } else { 1 } {
            expression(out, "lookup", &|out| {
                out.text(expr::LOOKUP_SET, shape.name);
                out.u32(expr::LOOKUP_SET_ID, id);
                out.u32(expr::LOOKUP_SREG, 1);
                if is_verdicts {
                    out.u32(expr::LOOKUP_DREG, 0);
                }
            });
        }
        words.push(format!("in set {id} without a name"));
    }
}

/// Adds an expression, and its name to the description of the batch.
fn say(words: &mut Vec<String>, out: &mut Writer, name: &str, fill: &dyn Fn(&mut Writer)) {
    words.push(name.to_owned());
    expression(out, name, fill);
}

fn expression(out: &mut Writer, name: &str, fill: &dyn Fn(&mut Writer)) {
    out.nested(LIST_ELEM, |out| {
        out.text(expr::NAME, name);
        out.nested(expr::DATA, fill);
    });
}

fn payload(out: &mut Writer, len: u32) {
    out.u32(expr::PAYLOAD_DREG, 1);
    out.u32(expr::PAYLOAD_BASE, 1);
    out.u32(expr::PAYLOAD_OFFSET, 12);
    out.u32(expr::PAYLOAD_LEN, len);
}

fn compare(out: &mut Writer, operator: u32, value: &[u8]) {
    out.u32(expr::CMP_SREG, 1);
    out.u32(expr::CMP_OP, operator);
    out.nested(expr::CMP_DATA, |out| out.bytes(data::VALUE, value));
}

fn nat(out: &mut Writer, family: u32) {
    out.u32(expr::NAT_TYPE, expr::NAT_DNAT);
    out.u32(expr::NAT_FAMILY, family);
    out.u32(expr::NAT_REG_ADDR_MIN, 1);
    out.u32(expr::NAT_REG_PROTO_MIN, 9);
}

/// Translation of the source to an address in the first register, with or without flags.
fn snat(out: &mut Writer, family: u32, flags: Option<u32>) {
    out.u32(expr::NAT_TYPE, expr::NAT_SNAT);
    out.u32(expr::NAT_FAMILY, family);
    out.u32(expr::NAT_REG_ADDR_MIN, 1);
    if let Some(flags) = flags {
        out.u32(expr::NAT_FLAGS, flags);
    }
}

fn value(bytes: &[u8]) -> (Writer, String) {
    let mut out = Writer::default();
    out.bytes(data::VALUE, bytes);
    (out, format!("{bytes:?}"))
}

fn plain_chain(of: &str, name: &str) -> Part {
    let mut out = Writer::default();
    out.text(chain::TABLE, of);
    out.text(chain::NAME, name);
    let text = format!("chain {of} {name}");
    Part {
        kind: msg::NEWCHAIN,
        flags: NLM_F_CREATE,
        family: NFPROTO_INET,
        attributes: out,
        text,
    }
}

fn base(
    of: &str,
    name: &str,
    kind: Option<&str>,
    hook: Option<(u32, i32)>,
    policy: Option<u32>,
) -> Part {
    let mut part = plain_chain(of, name);
    if let Some(kind) = kind {
        part.attributes.text(chain::TYPE, kind);
    }
    if let Some(policy) = policy {
        part.attributes.u32(chain::POLICY, policy);
    }
    if let Some((hook, priority)) = hook {
        part.attributes.nested(chain::HOOK, |out| {
            out.u32(chain::HOOK_NUM, hook);
            out.u32(chain::HOOK_PRIORITY, priority.cast_unsigned());
        });
    }
    part.text = format!(
        "{} type {kind:?} hook {hook:?} policy {policy:?}",
        part.text
    );
    part
}

fn set_part(of: &str, shape: &Shape, name: &str, id: u32, flags: u16) -> Part {
    let Shape {
        flags: of_set,
        key_len,
        data,
        size,
        fields,
        counter,
        ..
    } = *shape;
    let mut out = Writer::default();
    out.text(set::TABLE, of);
    out.text(set::NAME, name);
    out.u32(set::FLAGS, of_set);
    out.u32(set::KEY_TYPE, INTEGER);
    out.u32(set::KEY_LEN, u32::try_from(key_len).unwrap_or_default());
    if let Some((kind, len)) = data {
        out.u32(set::DATA_TYPE, kind);
        out.u32(set::DATA_LEN, len);
    }
    out.u32(set::ID, id);
    if size != 0 || !fields.is_empty() {
        out.nested(set::DESC, |out| {
            if size != 0 {
                out.u32(set::DESC_SIZE, size);
            }
            if !fields.is_empty() {
                out.nested(set::DESC_CONCAT, |out| {
                    for field in fields {
                        out.nested(LIST_ELEM, |out| out.u32(set::FIELD_LEN, *field));
                    }
                });
            }
        });
    }
    if counter {
        out.nested(set::EXPR, |out| {
            out.text(expr::NAME, "counter");
            out.nested(expr::DATA, |_| ());
        });
    }
    let text = format!(
        "set {of} {name} id {id} flags {of_set:#x} key {key_len} data {data:?} size {size} fields {fields:?}, {flags:#x}"
    );
    Part {
        kind: msg::NEWSET,
        flags,
        family: NFPROTO_INET,
        attributes: out,
        text,
    }
}

/// `more` are further attributes.
fn write_element(
    list: &mut Writer,
    key: &[u8],
    end: Option<&[u8]>,
    value: Option<Writer>,
    flags: u32,
    more: &Writer,
) {
    list.nested(LIST_ELEM, |out| {
        if flags != 0 {
            out.u32(elem::FLAGS, flags);
        }
        out.nested(elem::KEY, |out| out.bytes(data::VALUE, key));
        if let Some(end) = end {
            out.nested(elem::KEY_END, |out| out.bytes(data::VALUE, end));
        }
        if let Some(value) = value {
            out.nested(elem::DATA, |out| out.0.extend_from_slice(&value.0));
        }
        out.0.extend_from_slice(&more.0);
    });
}

/// A message about elements of a set, which may be one of this batch.
fn list(
    kind: u8,
    flags: u16,
    of: &str,
    set: &str,
    text: &str,
    elements: Option<(Writer, Option<u32>)>,
) -> Part {
    let mut out = Writer::default();
    out.text(elem::LIST_TABLE, of);
    out.text(elem::LIST_SET, set);
    if let Some((elements, id)) = elements {
        if let Some(id) = id {
            out.u32(elem::LIST_SET_ID, id);
        }
        out.nested(elem::LIST_ELEMENTS, |list| {
            list.0.extend_from_slice(&elements.0);
        });
    }
    let text = format!("elements ({kind}) of {of} {set} flags {flags:#x}: {text}");
    Part {
        kind,
        flags,
        family: NFPROTO_INET,
        attributes: out,
        text,
    }
}

fn finish(parts: Vec<Part>, ends: bool, generation: Option<u32>) -> Request {
    let bound = |kind, sequence, generation: Option<u32>| {
        let mut payload = Writer(vec![0, 0, 0, SUBSYS_NFTABLES]);
        if let Some(generation) = generation {
            payload.u32(BATCH_GENID, generation);
        }
        message::raw(kind, NLM_F_REQUEST, sequence, 0, &payload.0)
    };
    let mut bytes = bound(BATCH_BEGIN, 0, generation);
    let is_about_intervals = parts.iter().any(Part::is_about_intervals);
    let mut lines = Vec::new();
    let mut sequence = 0;
    for Part {
        kind,
        flags,
        family,
        attributes,
        text,
    } in parts
    {
        sequence += 1;
        let flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        let frame = Frame {
            subsystem: SUBSYS_NFTABLES,
            kind,
            flags,
            sequence,
            port: 0,
            family,
            resource: 0,
        };
        bytes.extend_from_slice(&frame.write(|out| out.0.extend_from_slice(&attributes.0)));
        lines.push(format!("{sequence}: {text}"));
    }
    if ends {
        bytes.extend_from_slice(&bound(BATCH_END, sequence + 1, None));
    } else {
        lines.push("without an end".to_owned());
    }
    lines.extend(generation.map(|generation| format!("for generation {generation}")));
    Request {
        bytes,
        lines,
        is_about_intervals,
    }
}
