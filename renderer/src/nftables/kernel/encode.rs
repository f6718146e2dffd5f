//! A transaction as netlink messages.

use std::{fmt, iter, net::IpAddr};

use crate::nftables::{
    desired::{
        element::{Element, FrontendKey, Key, Value},
        elements::of_chain,
        transaction::{BySet, Group, Transaction},
    },
    layout::{DemandChain, Family, Form, Set, TABLE, rewrite_rules, write_verdict},
    netlink::{
        Batch, Writer,
        constants::{LIST_ELEM, chain, data, elem, msg, verdict},
    },
};

/// Elements per message: limited by the 16-bit length of the list attribute.
const ELEMENTS_PER_MESSAGE: usize = 256;

/// The most bytes of a transaction's part that is encoded together. Its elements take several times the memory of their messages,
/// and a batch that replaces a table has millions of elements.
const PART_BYTES: usize = 1 << 20;

/// Bytes of a batch for the headers of its last messages, which the estimate of their elements does not contain.
const HEADER_BYTES: usize = 8 << 10;

/// Bytes of an interface name with its padding. Source: `if.h`.
const IFNAMSIZ: usize = 16;

/// The batches of a transaction with more groups after its own: several if they are larger than `limit` bytes. `first` is sent
/// ahead.
pub(crate) fn batches(
    first: Batch,
    transaction: Transaction,
    more: impl Iterator<Item = Group>,
    limit: usize,
) -> impl Iterator<Item = Batch> {
    // Removals and additions of a part follow those of earlier parts; no key is in two groups, so their order does not matter.
    let limit = limit.saturating_sub(HEADER_BYTES);
    let room = limit.saturating_sub(first.len());
    let mut parts = transaction.split(more, room.min(PART_BYTES)).peekable();
    let mut first = Some(first);
    let batches = iter::from_fn(move || {
        let part = parts.next()?;
        let mut batch = first.take().unwrap_or_else(Batch::new);
        write(&part, &mut batch);
        while let Some(part) = parts.next_if(|part| batch.len() + part.max_bytes() <= limit) {
            write(&part, &mut batch);
        }
        Some(batch)
    });
    batches.filter(|batch| !batch.is_empty())
}

/// Adds the messages of a transaction.
pub(crate) fn write(transaction: &Transaction, batch: &mut Batch) {
    for chain in &transaction.chains {
        chain.write(batch);
    }
    if let Some(pods) = transaction.pod_ranges {
        rewrite_rules(batch, pods);
    }
    for set in &transaction.flush {
        // A deletion without elements deletes them all.
        batch.delete(
            msg::DELSETELEM,
            format!("all elements of {}", set.name()),
            |message| {
                message.text(elem::LIST_TABLE, TABLE);
                message.text(elem::LIST_SET, &set.name());
            },
        );
    }
    let (remove, mut add) = transaction.elements();
    let verdicts: Vec<Element> = transaction
        .chains
        .iter()
        .filter_map(|chain| of_chain(*chain))
        .collect();
    for verdict in &verdicts {
        add.entry(verdict.set).or_default().push(verdict);
    }
    // Growing step by step would copy a large batch repeatedly.
    let size = |sets: &BySet<'_>| -> usize {
        sets.iter()
            .map(|(set, elements)| usual_bytes(set.family) * elements.len())
            .sum()
    };
    batch.reserve(size(&remove) + size(&add));
    for (set, elements) in messages(&remove) {
        let subject = Subject::new("remove", elements);
        batch.delete(msg::DELSETELEM, subject, |message| {
            write_elements(message, set, elements, false);
        });
    }
    for (set, elements) in messages(&add) {
        let subject = Subject::new("add", elements);
        batch.create(msg::NEWSETELEM, subject, |message| {
            write_elements(message, set, elements, true);
        });
    }
}

/// The usual size of an element of this family in a message.
const fn usual_bytes(family: Family) -> usize {
    match family {
        Family::V4 => 48,
        Family::V6 => 72,
    }
}

/// Adds the messages that delete a chain made on demand, and what leads to it.
pub(crate) fn write_removal(unused: DemandChain, batch: &mut Batch) {
    if let Some(verdict) = of_chain(unused) {
        let subject = Subject::new("remove", &[&verdict]);
        batch.delete(msg::DELSETELEM, subject, |message| {
            write_elements(message, verdict.set, &[&verdict], false);
        });
    }
    write_removal_of_chain(unused, batch);
}

/// Adds the message that deletes a chain made on demand that nothing leads to.
pub(crate) fn write_removal_of_chain(unused: DemandChain, batch: &mut Batch) {
    batch.delete(msg::DELCHAIN, format!("remove chain {unused}"), |message| {
        message.text(chain::TABLE, TABLE);
        message.text(chain::NAME, &unused.to_string());
    });
}

/// Splits elements into runs of one message each.
fn messages<'a>(sets: &'a BySet<'a>) -> impl Iterator<Item = (Set, &'a [&'a Element])> {
    sets.iter().flat_map(|(set, elements)| {
        elements
            .chunks(ELEMENTS_PER_MESSAGE)
            .map(|chunk| (*set, chunk))
    })
}

/// Describes a message about elements. Formatted only if the kernel refuses it.
struct Subject {
    verb: &'static str,
    first: Option<Element>,
    more: usize,
}

impl Subject {
    fn new(verb: &'static str, elements: &[&Element]) -> Self {
        Self {
            verb,
            first: elements.first().map(|first| **first),
            more: elements.len().saturating_sub(1),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.verb)?;
        if let Some(first) = &self.first {
            write!(f, " {} {{ {first} }}", first.set.name())?;
        }
        if self.more > 0 {
            write!(f, " and {} more", self.more)
        } else {
            Ok(())
        }
    }
}

fn write_elements(message: &mut Writer<'_>, set: Set, elements: &[&Element], with_values: bool) {
    message.text(elem::LIST_TABLE, TABLE);
    message.text(elem::LIST_SET, &set.name());
    let mut name = ChainName::default();
    message.nested(elem::LIST_ELEMENTS, |list| {
        for element in elements {
            write_element(list, element, with_values, &mut name);
        }
    });
}

/// A cache of the last chain's name. Most consecutive services have the same one, and formatting it costs more than the rest of
/// the element.
#[derive(Default)]
struct ChainName(Option<(DemandChain, String)>);

impl ChainName {
    fn of(&mut self, chain: DemandChain) -> &str {
        if self.0.as_ref().is_none_or(|(last, _)| *last != chain) {
            self.0 = Some((chain, chain.to_string()));
        }
        self.0.as_ref().map_or("", |(_, name)| name)
    }
}

fn write_element(list: &mut Writer<'_>, element: &Element, with_value: bool, name: &mut ChainName) {
    if let Some((first, after)) = interval(&element.key) {
        return write_interval(list, &first, after.as_deref());
    }
    list.nested(LIST_ELEM, |attributes| {
        attributes.nested(elem::KEY, |key| {
            key.payload(data::VALUE, |bytes| push_key(bytes, &element.key));
        });
        if let Key::Source(frontend, range) = element.key {
            let end = key_bytes(&Key::Client(frontend, range.broadcast()));
            attributes.nested(elem::KEY_END, |key| key.bytes(data::VALUE, &end));
        }
        if with_value && element.value != Value::None {
            attributes.nested(elem::DATA, |data| write_value(data, element, name));
        }
    });
}

/// Adds the attributes that query the element of a key. An address also finds the range that contains it, and a client its
/// source range.
pub(crate) fn write_question(set: Set, key: &Key, message: &mut Writer<'_>) {
    message.text(elem::LIST_TABLE, TABLE);
    message.text(elem::LIST_SET, &set.name());
    message.nested(elem::LIST_ELEMENTS, |list| {
        list.nested(LIST_ELEM, |attributes| {
            attributes.nested(elem::KEY, |attributes| {
                attributes.bytes(data::VALUE, &key_bytes(key));
            });
        });
    });
}

fn write_value(data: &mut Writer<'_>, element: &Element, name: &mut ChainName) {
    match &element.value {
        Value::None => (),
        Value::Backend(backend) => {
            data.payload(data::VALUE, |bytes| {
                push_address(bytes, &backend.address);
                push_port(bytes, backend.port);
            });
        }
        Value::Address(address) => data.payload(data::VALUE, |bytes| push_address(bytes, address)),
        Value::Goto(chain) => match (element.set.kind.form(), chain.number()) {
            (Form::Numbers { .. }, Some((_, number))) => {
                data.bytes(data::VALUE, &number.to_ne_bytes());
            }
            _ => write_verdict(data, verdict::GOTO, Some(name.of(*chain))),
        },
    }
}

/// The first key of an interval, and the key after its last; none if it is not an interval. An interval up to the highest key
/// has no end.
fn interval(key: &Key) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let last = match key {
        Key::Range(range) => key_bytes(&Key::Address(range.broadcast())),
        Key::Interface(pattern) if pattern.is_prefix() => {
            let mut last = pattern.stem().as_bytes().to_vec();
            last.resize(IFNAMSIZ, u8::MAX);
            last
        }
        Key::Interface(_) => key_bytes(key),
        _ => return None,
    };
    Some((key_bytes(key), after(last)))
}

/// The next larger value, as a number in network order; none after the largest.
fn after(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    for byte in bytes.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            return Some(bytes);
        }
    }
    None
}

/// An interval is two elements: its first key, and the key after its last, marked as an end.
fn write_interval(list: &mut Writer<'_>, first: &[u8], after: Option<&[u8]>) {
    list.nested(LIST_ELEM, |attributes| {
        attributes.nested(elem::KEY, |key| key.bytes(data::VALUE, first));
        if after.is_none() {
            attributes.bytes(elem::USERDATA, &elem::OPEN_INTERVAL);
        }
    });
    if let Some(after) = after {
        list.nested(LIST_ELEM, |attributes| {
            attributes.u32(elem::FLAGS, elem::FLAG_INTERVAL_END);
            attributes.nested(elem::KEY, |key| key.bytes(data::VALUE, after));
        });
    }
}

/// The kernel's form of the key: parts in network order padded to four bytes, slots and numbers of chains in host order.
fn push_key(bytes: &mut Vec<u8>, key: &Key) {
    match key {
        Key::Frontend(frontend) => push_frontend(bytes, frontend),
        Key::Slot(frontend, slot) => {
            push_frontend(bytes, frontend);
            bytes.extend_from_slice(&slot.to_ne_bytes());
        }
        Key::Number(number) => bytes.extend_from_slice(&number.to_ne_bytes()),
        Key::Address(address) => push_address(bytes, address),
        Key::Pair(address) => {
            push_address(bytes, address);
            push_address(bytes, address);
        }
        Key::Range(range) => push_address(bytes, &range.network()),
        Key::Interface(pattern) | Key::Output(pattern) => push_name(bytes, pattern.stem()),
        Key::Source(frontend, range) => {
            push_frontend(bytes, frontend);
            push_address(bytes, &range.network());
        }
        Key::Client(frontend, client) => {
            push_frontend(bytes, frontend);
            push_address(bytes, client);
        }
    }
}

fn key_bytes(key: &Key) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_key(&mut bytes, key);
    bytes
}

fn push_frontend(bytes: &mut Vec<u8>, frontend: &FrontendKey) {
    push_address(bytes, &frontend.address);
    bytes.extend_from_slice(&[frontend.protocol.number(), 0, 0, 0]);
    push_port(bytes, frontend.port);
}

fn push_address(bytes: &mut Vec<u8>, address: &IpAddr) {
    match address {
        IpAddr::V4(address) => bytes.extend_from_slice(&address.octets()),
        IpAddr::V6(address) => bytes.extend_from_slice(&address.octets()),
    }
}

fn push_name(bytes: &mut Vec<u8>, name: &str) {
    let end = bytes.len() + IFNAMSIZ;
    bytes.extend_from_slice(name.as_bytes());
    bytes.resize(end, 0);
}

fn push_port(bytes: &mut Vec<u8>, port: u16) {
    bytes.extend_from_slice(&port.to_be_bytes());
    bytes.extend_from_slice(&[0, 0]);
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::{
        netlink::message::{kind_of, messages},
        nftables::{
            desired::shared_address::SharedAddress,
            kernel::read,
            netlink::{Attributes, constants::NFNL_SUBSYS_NFTABLES},
        },
    };

    /// The elements that a batch adds, as they were written.
    fn added(batch: &mut Batch) -> Vec<Element> {
        let (bytes, _) = batch.finish();
        let objects = messages(bytes).filter_map(|message| {
            let is_addition = message.kind == kind_of(NFNL_SUBSYS_NFTABLES, msg::NEWSETELEM);
            message.object(NFNL_SUBSYS_NFTABLES).filter(|_| is_addition)
        });
        let elements = objects.flat_map(|object| {
            let set = object.text(elem::LIST_SET).and_then(Set::by_name).unwrap();
            let list = object.nested(elem::LIST_ELEMENTS).unwrap();
            let parse = |(_, element)| read::parse_element(set, Attributes(element)).unwrap();
            list.iter().map(parse).collect::<Vec<_>>()
        });
        elements.collect()
    }

    #[test]
    fn batches_have_every_element_once_within_their_limit() {
        let elements: Vec<Element> = (0..30_000)
            .map(|number| {
                SharedAddress::cluster_ip(Ipv4Addr::from_bits(0x0a60_0000 + number).into())
                    .element()
            })
            .collect();
        for (limit, expected) in [
            (usize::MAX, 1..=1),
            (PART_BYTES, 2..=3),
            (PART_BYTES / 8, 10..=30),
        ] {
            let more = Group::additions(elements.iter().copied());
            let batches = super::batches(Batch::new(), Transaction::default(), more, limit);
            let mut batches: Vec<Batch> = batches.collect();
            assert!(
                expected.contains(&batches.len()),
                "{limit}: {}",
                batches.len()
            );
            assert!(batches.iter().all(|batch| batch.len() <= limit), "{limit}");
            assert_eq!(
                batches.iter_mut().flat_map(added).collect::<Vec<_>>(),
                elements,
                "{limit}"
            );
        }
    }
}
