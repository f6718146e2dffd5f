//! Elements of sets, and how each kind of set keeps them. Source: the kernel's `net/netfilter/nft_set_hash.c`, `nft_set_rbtree.c` and
//! `nft_set_pipapo.c`.

use std::collections::BTreeMap;

use super::{data::Data, errno::Errno, tree::Tree};

/// An element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) key: Vec<u8>,
    /// The last key of an interval of a concatenation.
    pub(crate) key_end: Option<Vec<u8>>,
    pub(crate) data: Option<Data>,
    /// It ends the interval before it: `NFT_SET_ELEM_INTERVAL_END`.
    pub(crate) is_end: bool,
    pub(crate) userdata: Vec<u8>,
    /// How often packets have found it, where that is counted.
    pub(crate) counter: Option<Counter>,
    /// How long it lives after it was last written, where that is limited; in milliseconds.
    pub(crate) timeout: Option<u64>,
    /// When it ends, in milliseconds of the model's clock.
    pub(crate) expires: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counter {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

impl Element {
    pub(crate) fn is_expired(&self, now: u64) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

/// Why an element does not go in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Clash {
    /// This one has its place.
    Same(Box<Element>),
    /// It overlaps another one, or makes no sense.
    Refused(Errno),
    /// It says nothing that is not so already.
    Needless,
}

/// The elements of a set.
#[derive(Debug, Clone)]
pub(crate) enum Elements {
    /// By their keys.
    Hash(BTreeMap<Vec<u8>, Element>),
    /// Ends of intervals.
    Tree(Tree),
    /// Intervals of concatenations, in the order in which they came.
    Fields(Fields),
}

#[derive(Debug, Clone)]
pub(crate) struct Fields {
    /// The bytes of each.
    pub(crate) lengths: Vec<usize>,
    pub(crate) elements: Vec<Element>,
}

impl Elements {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Hash(elements) => elements.len(),
            Self::Tree(tree) => tree.iter().count(),
            Self::Fields(fields) => fields.elements.len(),
        }
    }

    pub(crate) fn iter(&self) -> Box<dyn Iterator<Item = &Element> + '_> {
        match self {
            Self::Hash(elements) => Box::new(elements.values()),
            Self::Tree(tree) => Box::new(tree.iter()),
            Self::Fields(fields) => Box::new(fields.elements.iter()),
        }
    }

    /// Adds an element of a set, which may be one without a name.
    pub(crate) fn insert(&mut self, element: Element, is_anonymous: bool, now: u64) -> Result<(), Clash> {
        match self {
            Self::Hash(elements) => {
                if let Some(same) = elements.get(&element.key).filter(|same| !same.is_expired(now)) {
                    return Err(Clash::Same(Box::new(same.clone())));
                }
                elements.insert(element.key.clone(), element);
                Ok(())
            }
            Self::Tree(tree) => tree.insert(element, is_anonymous),
            Self::Fields(fields) => fields.insert(element),
        }
    }

    /// Takes out the element that a request to delete `key` means.
    pub(crate) fn remove(&mut self, key: &[u8], is_end: bool) -> Option<Element> {
        match self {
            Self::Hash(elements) => elements.remove(key),
            Self::Tree(tree) => tree.remove(key, is_end),
            Self::Fields(fields) => {
                let at = fields.position(key)?;
                Some(fields.elements.remove(at))
            }
        }
    }

    /// Takes out all elements.
    pub(crate) fn clear(&mut self) -> Vec<Element> {
        match self {
            Self::Hash(elements) => std::mem::take(elements).into_values().collect(),
            Self::Tree(tree) => tree.clear(),
            Self::Fields(fields) => std::mem::take(&mut fields.elements),
        }
    }

    /// The transaction counts: what it deleted is gone.
    pub(crate) fn commit(&mut self) {
        if let Self::Tree(tree) = self {
            tree.commit();
        }
    }

    /// Whether [`Self::commit`] has anything to do.
    pub(crate) fn is_committed(&self) -> bool {
        !matches!(self, Self::Tree(tree) if !tree.is_committed())
    }

    /// The element that a packet with this key finds.
    pub(crate) fn find(&self, key: &[u8], now: u64) -> Option<&Element> {
        match self {
            Self::Hash(elements) => elements.get(key).filter(|element| !element.is_expired(now)),
            Self::Tree(tree) => tree.find(key),
            Self::Fields(fields) => fields.position(key).map(|at| &fields.elements[at]),
        }
    }

    /// The element to update where a packet found it.
    pub(crate) fn get_mut(&mut self, key: &[u8]) -> Option<&mut Element> {
        match self {
            Self::Hash(elements) => elements.get_mut(key),
            Self::Tree(_) | Self::Fields(_) => None,
        }
    }

    /// Drops what has expired.
    pub(crate) fn expire(&mut self, now: u64) {
        if let Self::Hash(elements) = self {
            elements.retain(|_, element| !element.is_expired(now));
        }
    }
}

impl Fields {
    /// `nft_pipapo_insert`
    fn insert(&mut self, new: Element) -> Result<(), Clash> {
        let end = new.key_end.as_ref().unwrap_or(&new.key);
        if let Some(at) = self.position(&new.key) {
            let found = &self.elements[at];
            let is_same = found.key == new.key && found.key_end.as_ref().unwrap_or(&found.key) == end;
            let same = Clash::Same(Box::new(found.clone()));
            return Err(if is_same { same } else { Clash::Refused(Errno::EEXIST) });
        }
        if self.position(end).is_some() {
            return Err(Clash::Refused(Errno::EEXIST));
        }
        if self.fields(&new.key).zip(self.fields(end)).any(|(start, end)| start > end) {
            return Err(Clash::Refused(Errno::EINVAL));
        }
        self.elements.push(new);
        Ok(())
    }

    /// The first element whose ranges hold a key.
    fn position(&self, key: &[u8]) -> Option<usize> {
        self.elements.iter().position(|element| {
            let end = element.key_end.as_ref().unwrap_or(&element.key);
            let ranges = self.fields(&element.key).zip(self.fields(end));
            ranges.zip(self.fields(key)).all(|((first, last), key)| first <= key && key <= last)
        })
    }

    /// The fields of a key. Each begins at a multiple of four bytes.
    fn fields<'a>(&'a self, key: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let mut at = 0;
        self.lengths.iter().map(move |length| {
            let field = key.get(at..at + length).unwrap_or_default();
            at += length.next_multiple_of(4);
            field
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(key: &[u8], is_end: bool) -> Element {
        Element {
            key: key.to_vec(),
            key_end: None,
            data: None,
            is_end,
            userdata: Vec::new(),
            counter: None,
            timeout: None,
            expires: None,
        }
    }

    #[test]
    fn fields_are_compared_one_by_one() {
        let mut fields = Elements::Fields(Fields { lengths: vec![1, 2], elements: Vec::new() });
        let key = |first: u8, second: u16| {
            let [high, low] = second.to_be_bytes();
            [first, 0, 0, 0, high, low, 0, 0]
        };
        let range = Element { key_end: Some(key(6, 99).to_vec()), ..element(&key(6, 50), false) };
        fields.insert(range, false, 0).unwrap();
        assert!(fields.find(&key(6, 75), 0).is_some());
        assert!(fields.find(&key(7, 75), 0).is_none() && fields.find(&key(6, 100), 0).is_none());
        let overlap = Element { key_end: Some(key(6, 120).to_vec()), ..element(&key(6, 99), false) };
        assert!(matches!(fields.insert(overlap, false, 0), Err(Clash::Refused(Errno::EEXIST))));
    }
}
