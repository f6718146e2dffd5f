//! The elements of all sets of some tables, in memory: so that very many packets are followed quickly.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use contiv_model::parallel::in_shares;
use nix::libc::ENOENT;

use crate::{
    kernel::Kernel,
    netlink::{Attributes, NetlinkError, Socket, Writer},
    nftables::netlink::{
        constants::{LIST_ELEM, data, elem, msg, rule, set},
        set_elements, write_set_request,
    },
    packet_path::{
        PathError,
        lookups::SetElement,
        path_inspector::decode_element,
        ruleset::{Ruleset, SetRef, SetShape, user_data},
    },
};

/// So many sets are worth a thread.
const SETS_OF_THREAD: usize = 100;
/// Sets with more numbers as keys are dumped: each answer takes 4 KiB of a receive buffer that may not be enlarged.
const MAX_NUMBERS: u32 = 32;

/// Is told how much is read, and of how much.
pub type ReadProgress<'a> = &'a (dyn Fn(usize, usize) + Sync);

/// The elements of sets.
#[derive(Debug, Default)]
pub(in crate::packet_path) struct StoredSets {
    /// By family, table and name.
    tables: BTreeMap<u8, BTreeMap<String, BTreeMap<String, Arc<StoredSet>>>>,
}

/// The elements of a set.
#[derive(Debug, Clone, Default)]
pub(in crate::packet_path) struct StoredSet {
    /// Of a set of intervals the starts with the element, and the ends, which are excluded, with none.
    elements: BTreeMap<Vec<u8>, Option<StoredElement>>,
    /// The element that is found if no other is.
    catch_all: Option<SetElement>,
    /// Ranges of keys of several fields: first and last key.
    ranges: Vec<(Vec<u8>, Vec<u8>, SetElement)>,
    /// The lengths of the fields of such keys.
    fields: Vec<usize>,
    is_interval: bool,
    /// It is a map.
    pub(super) is_map: bool,
    /// It belongs to one rule, and keeps its elements as long as it exists.
    is_constant: bool,
    /// As in [`SetShape::handles`].
    handles: (u64, u64),
    /// The seconds after which an element expires; 0 if it does not.
    pub(super) timeout: u32,
    /// Why it cannot be read.
    problem: Option<String>,
}

/// An element.
#[derive(Debug, Clone)]
pub(in crate::packet_path) struct StoredElement {
    pub(in crate::packet_path) element: SetElement,
    /// As nft stores it; empty without one.
    pub(in crate::packet_path) comment: String,
}

impl StoredSets {
    /// Reads all sets of the tables of a ruleset, but for those that cannot have changed since they were read before. `progress` is told
    /// how many are read, and of how many.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(in crate::packet_path) fn read(
        kernel: &Arc<dyn Kernel>,
        ruleset: &Ruleset,
        earlier: &Self,
        progress: ReadProgress<'_>,
    ) -> Result<Self, NetlinkError> {
        let sets: Vec<(SetRef<'_>, &SetShape)> = ruleset.sets().collect();
        let done = AtomicUsize::new(0);
        let read = |part: &[(SetRef<'_>, &SetShape)]| -> Result<Vec<Arc<StoredSet>>, NetlinkError> {
            let mut socket = Socket::open(kernel)?;
            let one = |(set, shape): &(SetRef<'_>, &SetShape)| {
                progress(done.fetch_add(1, Ordering::Relaxed) + 1, sets.len());
                let unchanged = earlier
                    .get(*set)
                    .filter(|stored| stored.is_constant && stored.handles == shape.handles)
                    // Old kernels have no handles.
                    .filter(|stored| stored.handles.0 != 0 && stored.handles.1 != 0);
                if let Some(stored) = unchanged {
                    return Ok(Arc::clone(stored));
                }
                match StoredSet::read(&mut socket, *set, shape) {
                    // Then the rules have changed, and are read again.
                    Err(error) if error.errno() == Some(ENOENT) => Ok(Arc::new(StoredSet {
                        problem: Some("it is gone".to_owned()),
                        ..StoredSet::default()
                    })),
                    stored => stored.map(Arc::new),
                }
            };
            part.iter().map(one).collect()
        };
        let mut all = Self::default();
        let parts = in_shares(&sets, SETS_OF_THREAD, read);
        let stored: Vec<Vec<_>> = parts.into_iter().collect::<Result<_, _>>()?;
        for ((set, _), stored) in sets.iter().zip(stored.into_iter().flatten()) {
            let of_family = all.tables.entry(set.family).or_default();
            let of_table = of_family.entry(set.table.to_owned()).or_default();
            of_table.insert(set.set.to_owned(), stored);
        }
        Ok(all)
    }

    /// The elements of a set.
    pub(in crate::packet_path) fn get(&self, set: SetRef<'_>) -> Option<&Arc<StoredSet>> {
        self.tables.get(&set.family)?.get(set.table)?.get(set.set)
    }
}

impl StoredSet {
    fn read(socket: &mut Socket, set: SetRef<'_>, shape: &SetShape) -> Result<Self, NetlinkError> {
        const CONSTANT: u32 = set::FLAG_ANONYMOUS | set::FLAG_CONSTANT;
        let new = Self {
            fields: shape.fields.clone(),
            is_map: shape.flags & set::FLAG_MAP != 0,
            is_interval: shape.flags & set::FLAG_INTERVAL != 0,
            is_constant: shape.flags & CONSTANT == CONSTANT,
            handles: shape.handles,
            timeout: u32::try_from(shape.timeout / 1000).unwrap_or(u32::MAX),
            ..Self::default()
        };
        // One that rules fill is taken as empty, as for a client that was never here.
        if shape.flags & set::FLAG_EVAL != 0 {
            return Ok(new);
        }
        let mut stored = new.clone();
        // An older kernel, or another kind of numbers, is no reason to fail: then they are dumped.
        if let Some(count) = shape.numbers
            && stored.is_constant
            && !stored.is_interval
            && set.key_len == size_of::<u32>()
            && count <= MAX_NUMBERS
            && matches!(stored.read_numbers(socket, set, count), Ok(true))
        {
            return Ok(stored);
        }
        let mut stored = new;
        let fill = |message: &mut Writer<'_>| write_set_request(message, set.table, set.set);
        socket.pass_family(msg::GETSETELEM, set.family, fill, |message| {
            stored.add_all(message);
        })?;
        Ok(stored)
    }

    /// Reads the elements with the first numbers as keys, which are all if each of them exists: to look for a set, the kernel walks over
    /// all sets of its table, and for a dump of its elements it does so three times.
    fn read_numbers(
        &mut self,
        socket: &mut Socket,
        set: SetRef<'_>,
        count: u32,
    ) -> Result<bool, NetlinkError> {
        let fill = |message: &mut Writer<'_>| {
            write_set_request(message, set.table, set.set);
            message.nested(elem::LIST_ELEMENTS, |list| {
                for number in 0..count {
                    list.nested(LIST_ELEM, |element| {
                        element.nested(elem::KEY, |key| {
                            key.bytes(data::VALUE, &number.to_ne_bytes());
                        });
                    });
                }
            });
        };
        socket.get_each(msg::GETSETELEM, set.family, fill, |message| {
            self.add_all(message);
        })
    }

    fn add_all(&mut self, message: Attributes<'_>) {
        for element in set_elements(message) {
            if let Err(problem) = self.add(element) {
                self.problem.get_or_insert(problem.0);
            }
        }
    }

    fn add(&mut self, element: Attributes<'_>) -> Result<(), PathError> {
        let flags = element.u32(elem::FLAGS).unwrap_or_default();
        let decoded = decode_element(element)?;
        if flags & elem::FLAG_CATCHALL != 0 {
            self.catch_all = decoded;
            return Ok(());
        }
        let key = element
            .nested(elem::KEY)
            .and_then(|key| key.get(data::VALUE))
            .ok_or_else(|| PathError("an element has no key".to_owned()))?
            .to_vec();
        if let Some(end) = element.nested(elem::KEY_END) {
            let len: usize = self.fields.iter().map(|len| len.next_multiple_of(4)).sum();
            let last = end.get(data::VALUE).filter(|last| last.len() == len);
            let (Some(last), true) = (last, key.len() == len) else {
                return Err(PathError("it has ranges of unknown fields".to_owned()));
            };
            let last = last.to_vec();
            self.ranges
                .extend(decoded.map(|element| (key, last, element)));
            return Ok(());
        }
        let userdata = element.get(elem::USERDATA).unwrap_or_default();
        let comment = user_data(userdata)
            .find(|(kind, _)| *kind == rule::USERDATA_COMMENT)
            .and_then(|(_, text)| text.split(|byte| *byte == 0).next())
            .map_or_else(String::new, |text| {
                String::from_utf8_lossy(text).into_owned()
            });
        match decoded {
            Some(element) => {
                self.elements
                    .insert(key, Some(StoredElement { element, comment }));
            }
            // An interval may begin where another one ends.
            None if flags & elem::FLAG_INTERVAL_END != 0 => {
                self.elements.entry(key).or_insert(None);
            }
            None => {}
        }
        Ok(())
    }

    /// The element for a key.
    ///
    /// # Errors
    /// When the set could not be read.
    pub(in crate::packet_path) fn find(
        &self,
        key: &[u8],
    ) -> Result<Option<&SetElement>, PathError> {
        if let Some(problem) = &self.problem {
            return Err(PathError(problem.clone()));
        }
        if !self.ranges.is_empty() {
            let mut ranges = self.ranges.iter();
            let found = ranges.find(|(first, last, _)| self.is_within(key, first, last));
            return Ok(found
                .map(|(_, _, element)| element)
                .or(self.catch_all.as_ref()));
        }
        let found = if self.is_interval {
            let up_to = (Bound::Unbounded, Bound::Included(key));
            let before = self.elements.range::<[u8], _>(up_to).next_back();
            before.and_then(|(_, element)| element.as_ref())
        } else {
            self.elements.get(key).and_then(Option::as_ref)
        };
        Ok(found
            .map(|stored| &stored.element)
            .or(self.catch_all.as_ref()))
    }

    /// Whether each field of a key is between those of two others.
    fn is_within(&self, key: &[u8], first: &[u8], last: &[u8]) -> bool {
        let mut at = 0;
        self.fields.iter().all(|len| {
            let range = at..at + len;
            at += len.next_multiple_of(4);
            let [key, first, last] = [key, first, last].map(|of| of.get(range.clone()));
            key >= first && key <= last
        })
    }

    /// The ranges of keys of several fields: first and last key.
    pub(in crate::packet_path) fn ranges(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.ranges
            .iter()
            .map(|(first, last, _)| (first.as_slice(), last.as_slice()))
    }

    /// All elements with their keys, or the starts of their intervals.
    pub(in crate::packet_path) fn elements(&self) -> impl Iterator<Item = (&[u8], &StoredElement)> {
        let all = self.elements.iter();
        all.filter_map(|(key, element)| Some((key.as_slice(), element.as_ref()?)))
    }

    /// The addresses that are its keys, as ranges with both ends included.
    pub(in crate::packet_path) fn addresses(&self) -> Vec<(IpAddr, IpAddr)> {
        let mut keys = self.elements.iter().peekable();
        let mut found = Vec::new();
        while let Some((key, element)) = keys.next() {
            let next = keys.peek().map(|(next, _)| next.as_slice());
            let (Some(first), true) = (address(key), element.is_some()) else {
                continue;
            };
            let last = match next {
                _ if !self.is_interval => Some(first),
                Some(next) => address(next).and_then(before),
                None => address(&vec![u8::MAX; key.len()]),
            };
            found.extend(last.map(|last| (first, last)));
        }
        found
    }
}

/// The address in the bytes of a key.
pub(in crate::packet_path) fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        return Some(IpAddr::V4(Ipv4Addr::from(bytes)));
    }
    let bytes = <[u8; 16]>::try_from(bytes).ok()?;
    Some(IpAddr::V6(Ipv6Addr::from(bytes)))
}

/// The address before another one.
fn before(address: IpAddr) -> Option<IpAddr> {
    Some(match address {
        IpAddr::V4(address) => IpAddr::V4(address.to_bits().checked_sub(1)?.into()),
        IpAddr::V6(address) => IpAddr::V6(address.to_bits().checked_sub(1)?.into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet_path::ruleset::Data;

    #[test]
    fn ranges_of_several_fields_are_compared_field_by_field() {
        let key = |port: u16, source: [u8; 4]| [&port.to_be_bytes()[..], &[0, 0], &source].concat();
        let element = SetElement {
            data: Data::None,
            limits: Vec::new(),
        };
        let first = key(80, [10, 1, 0, 0]);
        let set = StoredSet {
            fields: vec![2, 4],
            ranges: vec![(first, key(80, [10, 1, 255, 255]), element)],
            ..StoredSet::default()
        };
        for (port, source, expected) in [
            (80, [10, 1, 7, 7], true),
            (80, [10, 1, 0, 0], true),
            (80, [10, 1, 255, 255], true),
            (80, [10, 2, 0, 0], false),
            (80, [10, 0, 255, 255], false),
            (81, [10, 1, 7, 7], false),
            (79, [10, 1, 7, 7], false),
        ] {
            let found = set.find(&key(port, source)).unwrap();
            assert_eq!(found.is_some(), expected, "{port} {source:?}");
        }
    }
}
