//! All elements of a set, in the data structure of each kind of set. Source: the kernel's `net/netfilter/nft_set_*.c`.

mod fields;
mod sorted;
mod tree;

use std::sync::Arc;

pub(crate) use self::{fields::Fields, sorted::Sorted, tree::Tree};
use super::element::{Element, InsertConflict};

/// The elements of a set.
#[derive(Debug, Clone)]
pub(crate) enum Elements {
    /// Single elements.
    Hash(Sorted),
    /// Start and end elements of intervals.
    Tree(Tree),
    /// Intervals of concatenations, in the order of their insertion.
    Fields(Fields),
}

impl Elements {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Hash(elements) => elements.len(),
            Self::Tree(tree) => tree.iter().count(),
            Self::Fields(fields) => fields.iter().len(),
        }
    }

    pub(crate) fn iter(&self) -> Box<dyn Iterator<Item = &Element> + '_> {
        match self {
            Self::Hash(elements) => Box::new(elements.iter().map(|element| &**element)),
            Self::Tree(tree) => Box::new(tree.iter()),
            Self::Fields(fields) => Box::new(fields.iter()),
        }
    }

    /// Adds an element to a set, which may be anonymous.
    pub(crate) fn insert(
        &mut self,
        element: Arc<Element>,
        is_anonymous: bool,
        now: u64,
    ) -> Result<(), InsertConflict> {
        match self {
            Self::Hash(elements) => {
                if let Some(same) = elements
                    .get(&element.key)
                    .filter(|same| !same.is_expired(now))
                {
                    return Err(InsertConflict::Same(Box::new(Element::clone(same))));
                }
                elements.insert(element);
                Ok(())
            }
            Self::Tree(tree) => tree.insert(Arc::unwrap_or_clone(element), is_anonymous),
            Self::Fields(fields) => fields.insert(Arc::unwrap_or_clone(element)),
        }
    }

    /// Removes the element that a request to delete `key` refers to.
    pub(crate) fn remove(&mut self, key: &[u8], is_end: bool) -> Option<Arc<Element>> {
        match self {
            Self::Hash(elements) => elements.remove(key),
            Self::Tree(tree) => tree.remove(key, is_end).map(Arc::new),
            Self::Fields(fields) => fields.remove(key).map(Arc::new),
        }
    }

    /// Removes all elements.
    pub(crate) fn clear(&mut self) -> Vec<Arc<Element>> {
        match self {
            Self::Hash(elements) => std::mem::take(elements).iter().cloned().collect(),
            Self::Tree(tree) => tree.clear().into_iter().map(Arc::new).collect(),
            Self::Fields(fields) => fields.clear().into_iter().map(Arc::new).collect(),
        }
    }

    /// Commits: removes the deleted elements.
    pub(crate) fn commit(&mut self) {
        if let Self::Tree(tree) = self {
            tree.commit();
        }
    }

    /// Whether [`Self::commit`] has anything to do.
    pub(crate) fn is_committed(&self) -> bool {
        !matches!(self, Self::Tree(tree) if !tree.is_committed())
    }

    /// The element that matches a packet with this key.
    pub(crate) fn find(&self, key: &[u8], now: u64) -> Option<&Element> {
        match self {
            Self::Hash(elements) => {
                let element = elements.get(key).map(|element| &**element);
                element.filter(|element| !element.is_expired(now))
            }
            Self::Tree(tree) => tree.find(key),
            Self::Fields(fields) => fields.find(key),
        }
    }

    /// The element that begins with this key, to update it.
    pub(crate) fn get_mut(&mut self, key: &[u8]) -> Option<&mut Element> {
        match self {
            Self::Hash(elements) => elements.get_mut(key),
            Self::Tree(tree) => tree.get_mut(key),
            Self::Fields(fields) => fields.get_mut(key),
        }
    }

    /// Drops what has expired.
    pub(crate) fn expire(&mut self, now: u64) {
        if let Self::Hash(elements) = self {
            elements.retain(|element| !element.is_expired(now));
        }
    }
}
