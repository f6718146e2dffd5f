//! Reads the kernel's table, once in each resync.

use std::{collections::BTreeSet, net::IpAddr};

use contiv_model::InterfacePattern;
use ipnetwork::IpNetwork;

use crate::nftables::{
    desired::{
        capacity::Sizes,
        element::{Element, Endpoint, FrontendKey, Key, Value},
        elements::INTERVALS,
        existing_elements::Elements,
    },
    layout::{
        Declaration, DemandChain, Family, Form, Hook, LearnChain, PROTOCOLS, PickChain, PodRanges,
        Set, SetKind, TABLE, chains,
    },
    netlink::{
        Attributes, NetlinkError, Socket,
        constants::{LIST_ELEM, chain, data, elem, msg, set, table, verdict},
    },
};

/// The kernel's table, without its rules.
#[derive(Debug, Default)]
pub(crate) struct ExistingTable {
    /// Existing on-demand chains, used or not.
    pub(crate) on_demand: BTreeSet<DemandChain>,
    /// Chains that are not the agent's.
    pub(crate) foreign_chains: BTreeSet<String>,
    /// Named sets that are not the agent's.
    pub(crate) foreign_sets: BTreeSet<String>,
    /// The declared size of sets, if bounded.
    pub(crate) sizes: Sizes,
    /// The sets of this layout that exist as declared.
    pub(crate) shaped: BTreeSet<Set>,
    /// The sets of this layout that exist with another declaration: an earlier layout's.
    pub(crate) misshapen: BTreeSet<Set>,
    /// True if all of the agent's chains that exist have the right hook. The others can be added.
    pub(crate) usable: bool,
}

impl ExistingTable {
    /// True if it is a table of this layout.
    pub(crate) fn is_of_this_layout(&self) -> bool {
        self.usable && self.shaped.len() == Set::all().count()
    }
}

/// The flags and the owner of the existing table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableHeader {
    pub(crate) flags: u32,
    /// The port of the socket that owns it.
    pub(crate) owner: Option<u32>,
}

/// The existing table, if any.
pub(crate) fn table_header(socket: &mut Socket) -> Result<Option<TableHeader>, NetlinkError> {
    let dump = socket.dump(msg::GETTABLE, |_| ())?;
    let of_inet = |object: &Attributes<'_>| object.text(table::NAME) == Some(TABLE);
    let found = dump.objects().find(of_inet).map(|object| TableHeader {
        flags: object.u32(table::FLAGS).unwrap_or_default(),
        owner: object.u32(table::OWNER),
    });
    Ok(found)
}

/// Everything except elements and rules.
pub(crate) fn existing(socket: &mut Socket) -> Result<ExistingTable, NetlinkError> {
    let mut existing = ExistingTable {
        usable: true,
        ..ExistingTable::default()
    };
    let desired = chains();
    let dump = socket.dump(msg::GETCHAIN, |_| ())?;
    for object in dump
        .objects()
        .filter(|object| object.text(chain::TABLE) == Some(TABLE))
    {
        let name = object.text(chain::NAME).unwrap_or_default();
        let hook = object.nested(chain::HOOK).map(|hook| {
            (
                hook.u32(chain::HOOK_HOOKNUM),
                hook.get(chain::HOOK_PRIORITY),
                object.text(chain::TYPE),
            )
        });
        let hangs_as = |desired: Option<Hook>| {
            let desired = desired.map(|hook| {
                (
                    Some(hook.number),
                    Some(hook.priority.to_be_bytes()),
                    Some(hook.kind),
                )
            });
            let found = hook.map(|(number, priority, kind)| {
                (number, priority.and_then(|p| p.try_into().ok()), kind)
            });
            desired == found
        };
        if let Some(ours) = desired.iter().find(|ours| ours.name == name) {
            existing.usable &= hangs_as(ours.hook);
        } else if let Some(chain) = DemandChain::by_name(name) {
            existing.usable &= hangs_as(chain.hook());
            existing.on_demand.insert(chain);
        } else {
            existing.foreign_chains.insert(name.to_owned());
        }
    }

    let dump = socket.dump(msg::GETSET, |message| message.text(set::TABLE, TABLE))?;
    for object in dump
        .objects()
        .filter(|object| object.text(set::TABLE) == Some(TABLE))
    {
        let name = object.text(set::NAME).unwrap_or_default();
        let flags = object.u32(set::FLAGS).unwrap_or_default();
        if let Some(ours) = Set::by_name(name) {
            let data = object.u32(set::DATA_TYPE).zip(object.u32(set::DATA_LEN));
            let found = Declaration {
                flags,
                key_type: object.u32(set::KEY_TYPE).unwrap_or_default(),
                key_len: object.u32(set::KEY_LEN).unwrap_or_default(),
                data,
            };
            if found.agrees_with(&ours.declaration()) {
                existing.shaped.insert(ours);
            } else {
                existing.misshapen.insert(ours);
            }
            let size = object
                .nested(set::DESC)
                .and_then(|desc| desc.u32(set::DESC_SIZE));
            existing.sizes.extend(size.map(|size| (ours, size)));
        } else if flags & set::FLAG_ANONYMOUS == 0 {
            existing.foreign_sets.insert(name.to_owned());
        }
    }
    Ok(existing)
}

/// Reads the elements of all sets except those that are always rewritten, and those that only record packets.
pub(crate) fn elements(
    socket: &mut Socket,
    existing: &ExistingTable,
) -> Result<Elements, NetlinkError> {
    let mut elements = static_elements(socket, existing)?;
    remembered_clients(socket, &mut elements)?;
    Ok(elements)
}

/// The elements that only transactions change.
pub(crate) fn static_elements(
    socket: &mut Socket,
    existing: &ExistingTable,
) -> Result<Elements, NetlinkError> {
    let mut elements = Elements {
        shaped: existing.shaped.clone(),
        ..Elements::default()
    };
    let is_rewritten = |set: &Set| INTERVALS.contains(&set.kind) || set.kind.form() == Form::Chains;
    let is_lasting =
        |set: &&Set| !is_rewritten(set) && !is_memory(**set) && !set.kind.only_records();
    let lasting: Vec<Set> = elements.shaped.iter().filter(is_lasting).copied().collect();
    read_into(&mut elements, socket, lasting.into_iter())?;
    elements
        .frontends
        .values_mut()
        .for_each(|of_frontend| of_frontend.sort_unstable());
    Ok(elements)
}

/// Adds the affinity entries, which rules add and timeouts remove.
pub(crate) fn remembered_clients(
    socket: &mut Socket,
    elements: &mut Elements,
) -> Result<(), NetlinkError> {
    let memories: Vec<Set> = elements
        .shaped
        .iter()
        .filter(|set| is_memory(**set))
        .copied()
        .collect();
    read_into(elements, socket, memories.into_iter())
}

/// Only affinity entries. All other sets that transactions change count as foreign.
pub(crate) fn remembered_clients_only(
    socket: &mut Socket,
    existing: &ExistingTable,
) -> Result<Elements, NetlinkError> {
    let foreign = Set::all()
        .filter(|set| !is_memory(*set) && !set.kind.only_records())
        .collect();
    let mut elements = Elements {
        foreign,
        shaped: existing.shaped.clone(),
        ..Elements::default()
    };
    remembered_clients(socket, &mut elements)?;
    Ok(elements)
}

fn is_memory(set: Set) -> bool {
    set.kind.form() == Form::Memory
}

fn read_into(
    elements: &mut Elements,
    socket: &mut Socket,
    sets: impl Iterator<Item = Set>,
) -> Result<(), NetlinkError> {
    for set in sets {
        let Some(read) = elements_of(socket, set)? else {
            elements.foreign.insert(set);
            continue;
        };
        for element in read {
            match element.key {
                Key::Client(frontend, _) => {
                    if let Value::Backend(backend) = element.value {
                        elements.memory.insert((frontend, backend.into()));
                    }
                }
                Key::Frontend(frontend) | Key::Slot(frontend, _) | Key::Source(frontend, _) => {
                    elements
                        .frontends
                        .entry(frontend)
                        .or_default()
                        .push(element);
                }
                Key::Address(_)
                | Key::Pair(_)
                | Key::Number(_)
                | Key::Range(_)
                | Key::Interface(_)
                | Key::Output(_) => {
                    elements.others.insert(element);
                }
            }
        }
    }
    Ok(())
}

/// The ranges of pods that the sets have, with which rules compare.
pub(crate) fn pod_ranges(socket: &mut Socket) -> Result<PodRanges, NetlinkError> {
    let mut ranges = Vec::new();
    for family in Family::ALL {
        let dump = socket.dump(msg::GETSETELEM, |message| {
            message.text(elem::LIST_TABLE, TABLE);
            message.text(
                elem::LIST_SET,
                &Set::new(SetKind::NoMasquerade, family).name(),
            );
        })?;
        let lists = dump
            .objects()
            .filter_map(|object| object.nested(elem::LIST_ELEMENTS));
        let elements = lists
            .flat_map(Attributes::iter)
            .filter(|(kind, _)| *kind == LIST_ELEM);
        let bounds = elements.filter_map(|(_, element)| interval_bound(Attributes(element)));
        let address = |key: Vec<u8>| Bytes(&key).address(family);
        let found = intervals(bounds.collect()).into_iter();
        ranges.extend(found.filter_map(|(first, last)| range(address(first)?, address(last)?)));
    }
    Ok(PodRanges::new(&ranges))
}

/// An element of a set of intervals: a key, and whether an interval begins with it, or has ended before it.
pub(crate) fn interval_bound(element: Attributes<'_>) -> Option<(Vec<u8>, bool)> {
    let key = element.nested(elem::KEY)?.get(data::VALUE)?;
    let is_end = element.u32(elem::FLAGS).unwrap_or_default() & elem::FLAG_INTERVAL_END != 0;
    Some((key.to_vec(), !is_end))
}

/// The first and the last key of each interval. If one begins where another ends, the end comes first.
pub(crate) fn intervals(bounds: BTreeSet<(Vec<u8>, bool)>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut intervals = Vec::new();
    let mut begin: Option<Vec<u8>> = None;
    for (bound, is_begin) in bounds {
        if is_begin {
            begin = Some(bound);
        } else if let Some(first) = begin.take() {
            intervals.push((first, before(bound)));
        }
    }
    if let Some(first) = begin {
        let last = vec![u8::MAX; first.len()];
        intervals.push((first, last));
    }
    intervals
}

/// The next smaller key, as a number in network order.
fn before(mut key: Vec<u8>) -> Vec<u8> {
    for byte in key.iter_mut().rev() {
        *byte = byte.wrapping_sub(1);
        if *byte != u8::MAX {
            break;
        }
    }
    key
}

/// True if a set has any element.
pub(crate) fn has_elements(socket: &mut Socket, set: Set) -> Result<bool, NetlinkError> {
    let dump = socket.dump(msg::GETSETELEM, |message| {
        message.text(elem::LIST_TABLE, TABLE);
        message.text(elem::LIST_SET, &set.name());
    })?;
    // An empty set has a list too.
    let mut elements = dump
        .objects()
        .filter_map(|object| object.nested(elem::LIST_ELEMENTS))
        .flat_map(Attributes::iter);
    Ok(elements.any(|(kind, _)| kind == LIST_ELEM))
}

/// The elements of one set; none if one of them cannot have been written by the agent.
pub(crate) fn elements_of(
    socket: &mut Socket,
    set: Set,
) -> Result<Option<Vec<Element>>, NetlinkError> {
    let dump = socket.dump(msg::GETSETELEM, |message| {
        message.text(elem::LIST_TABLE, TABLE);
        message.text(elem::LIST_SET, &set.name());
    })?;
    let lists = dump
        .objects()
        .filter_map(|object| object.nested(elem::LIST_ELEMENTS));
    let elements = lists
        .flat_map(Attributes::iter)
        .filter(|(kind, _)| *kind == LIST_ELEM);
    Ok(elements
        .map(|(_, element)| parse_element(set, Attributes(element)))
        .collect())
}

/// Decodes an element in the agent's form; none for any other.
pub(crate) fn parse_element(set: Set, attributes: Attributes<'_>) -> Option<Element> {
    let mut key = Bytes(attributes.nested(elem::KEY)?.get(data::VALUE)?);
    let form = set.kind.form();
    let parsed = match form {
        Form::Numbers { .. } | Form::Frontends | Form::Tally => {
            Key::Frontend(key.frontend(set.family)?)
        }
        Form::Slots => Key::Slot(key.frontend(set.family)?, key.number()?),
        Form::Chains => Key::Number(key.number()?),
        Form::Addresses => Key::Address(key.address(set.family)?),
        Form::Pairs => {
            let address = key.address(set.family)?;
            (key.address(set.family)? == address).then_some(Key::Pair(address))?
        }
        Form::Memory => Key::Client(key.frontend(set.family)?, key.address(set.family)?),
        Form::Sources => {
            let frontend = key.frontend(set.family)?;
            let first = key.address(set.family)?;
            let mut end = Bytes(attributes.nested(elem::KEY_END)?.get(data::VALUE)?);
            let same_frontend = end.frontend(set.family)? == frontend;
            let range = range(first, end.address(set.family)?)?;
            same_frontend.then_some(Key::Source(frontend, range))?
        }
        Form::OutputAddresses => Key::Output(key.interface()?),
        Form::Ranges | Form::Interfaces | Form::Attempts => return None,
    };
    let value = match form {
        Form::Numbers { .. } => {
            let mut value = Bytes(attributes.nested(elem::DATA)?.get(data::VALUE)?);
            let chain = chain_by_number(set, value.number()?)?;
            value.0.is_empty().then_some(Value::Goto(chain))?
        }
        Form::Chains => parse_verdict(attributes.nested(elem::DATA)?.nested(data::VERDICT)?)?,
        Form::Slots | Form::Memory => {
            let mut value = Bytes(attributes.nested(elem::DATA)?.get(data::VALUE)?);
            let backend = Endpoint {
                address: value.address(set.family)?,
                port: value.port()?,
            };
            value.0.is_empty().then_some(Value::Backend(backend))?
        }
        Form::OutputAddresses => {
            let mut value = Bytes(attributes.nested(elem::DATA)?.get(data::VALUE)?);
            let address = value.address(set.family)?;
            value.0.is_empty().then_some(Value::Address(address))?
        }
        Form::Frontends
        | Form::Tally
        | Form::Attempts
        | Form::Addresses
        | Form::Pairs
        | Form::Ranges
        | Form::Interfaces
        | Form::Sources => Value::None,
    };
    key.0.is_empty().then_some(Element {
        set,
        key: parsed,
        value,
    })
}

/// The range from `first` to `last`; none if no prefix covers it exactly.
fn range(first: IpAddr, last: IpAddr) -> Option<IpNetwork> {
    let width = if first.is_ipv4() { 32 } else { 128 };
    (0..=width)
        .filter_map(|prefix| IpNetwork::new(first, prefix).ok())
        .find(|range| range.network() == first && range.broadcast() == last)
}

/// The chain to which this map leads a number.
fn chain_by_number(set: Set, number: u32) -> Option<DemandChain> {
    match set.kind {
        SetKind::Sticky => LearnChain::by_number(set.family, number).map(DemandChain::Learn),
        _ => PickChain::by_number(set.family, number).map(DemandChain::Pick),
    }
}

fn parse_verdict(attributes: Attributes<'_>) -> Option<Value> {
    let code = i32::from_be_bytes(attributes.get(data::VERDICT_CODE)?.try_into().ok()?);
    let chain = attributes
        .text(data::VERDICT_CHAIN)
        .and_then(DemandChain::by_name)?;
    (code == verdict::GOTO).then_some(Value::Goto(chain))
}

/// The unread rest of a key or value.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn address(&mut self, family: Family) -> Option<IpAddr> {
        Some(match family {
            Family::V4 => IpAddr::from(self.take::<4>()?),
            Family::V6 => IpAddr::from(self.take::<16>()?),
        })
    }

    fn port(&mut self) -> Option<u16> {
        let [high, low, ..] = self.take::<4>()?;
        Some(u16::from_be_bytes([high, low]))
    }

    fn number(&mut self) -> Option<u32> {
        self.take::<4>().map(u32::from_ne_bytes)
    }

    /// The name of one interface, padded with zeroes.
    fn interface(&mut self) -> Option<InterfacePattern> {
        let bytes = self.take::<16>()?;
        let name = std::str::from_utf8(&bytes).ok()?.trim_end_matches('\0');
        name.parse()
            .ok()
            .filter(|name: &InterfacePattern| !name.is_prefix())
    }

    fn frontend(&mut self, family: Family) -> Option<FrontendKey> {
        let address = self.address(family)?;
        let [number, ..] = self.take::<4>()?;
        let protocol = PROTOCOLS
            .into_iter()
            .find(|protocol| protocol.number() == number)?;
        Some(FrontendKey {
            address,
            protocol,
            port: self.port()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_before_one_borrows_from_byte_before() {
        assert_eq!(before(vec![10, 0, 1, 0]), [10, 0, 0, 255]);
        assert_eq!(before(vec![0, 0]), [255, 255]);
    }

    #[test]
    fn intervals_end_before_the_next_and_the_last_is_open() {
        let bounds = [(10, true), (20, false), (20, true), (30, false), (40, true)];
        let bounds = bounds.map(|(key, is_begin)| (vec![key], is_begin));
        let expected = [(10, 19), (20, 29), (40, 255)];
        assert_eq!(
            intervals(bounds.into()),
            expected.map(|(first, last)| (vec![first], vec![last]))
        );
    }
}
