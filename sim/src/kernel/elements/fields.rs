//! Intervals of concatenations, as the kernel's `net/netfilter/nft_set_pipapo.c` keeps them.

use crate::kernel::{
    element::{Element, InsertConflict},
    errno::Errno,
};

/// Intervals in the order of their insertion.
#[derive(Debug, Clone)]
pub(crate) struct Fields {
    /// The bytes of each field.
    lengths: Vec<usize>,
    elements: Vec<Element>,
}

impl Fields {
    /// An empty container; `fields` are the sizes of the fields in bytes.
    pub(crate) const fn new(lengths: Vec<usize>) -> Self {
        Self {
            lengths,
            elements: Vec::new(),
        }
    }

    /// All elements.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Element> {
        self.elements.iter()
    }

    /// `nft_pipapo_insert`
    pub(crate) fn insert(&mut self, new: Element) -> Result<(), InsertConflict> {
        let end = new.key_end.as_ref().unwrap_or(&new.key);
        if let Some(at) = self.position(&new.key) {
            let found = &self.elements[at];
            let is_same =
                found.key == new.key && found.key_end.as_ref().unwrap_or(&found.key) == end;
            let same = InsertConflict::Same(Box::new(found.clone()));
            return Err(if is_same {
                same
            } else {
                InsertConflict::Refused(Errno::EEXIST)
            });
        }
        if self.position(end).is_some() {
            return Err(InsertConflict::Refused(Errno::EEXIST));
        }
        if self
            .fields(&new.key)
            .zip(self.fields(end))
            .any(|(start, end)| start > end)
        {
            return Err(InsertConflict::Refused(Errno::EINVAL));
        }
        self.elements.push(new);
        Ok(())
    }

    /// Removes the first interval that contains a key.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<Element> {
        self.position(key).map(|at| self.elements.remove(at))
    }

    /// The interval with this first key.
    pub(crate) fn get_mut(&mut self, key: &[u8]) -> Option<&mut Element> {
        self.elements.iter_mut().find(|element| element.key == key)
    }

    /// Removes all elements.
    pub(crate) fn clear(&mut self) -> Vec<Element> {
        std::mem::take(&mut self.elements)
    }

    /// The index of the first interval that contains a key.
    pub(crate) fn find(&self, key: &[u8]) -> Option<&Element> {
        self.position(key).map(|at| &self.elements[at])
    }

    /// The first element whose ranges contain a key.
    fn position(&self, key: &[u8]) -> Option<usize> {
        self.elements.iter().position(|element| {
            let end = element.key_end.as_ref().unwrap_or(&element.key);
            let ranges = self.fields(&element.key).zip(self.fields(end));
            ranges
                .zip(self.fields(key))
                .all(|((first, last), key)| first <= key && key <= last)
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

    fn element(key: &[u8]) -> Element {
        Element {
            key: key.to_vec(),
            key_end: None,
            data: None,
            is_end: false,
            userdata: Vec::new(),
            counter: None,
            timeout: None,
            expires: None,
        }
    }

    #[test]
    fn fields_are_compared_one_by_one() {
        let mut fields = Fields::new(vec![1, 2]);
        let key = |first: u8, second: u16| {
            let [high, low] = second.to_be_bytes();
            [first, 0, 0, 0, high, low, 0, 0]
        };
        let range = Element {
            key_end: Some(key(6, 99).to_vec()),
            ..element(&key(6, 50))
        };
        fields.insert(range).unwrap();
        assert!(fields.find(&key(6, 75)).is_some());
        assert!(fields.find(&key(7, 75)).is_none() && fields.find(&key(6, 100)).is_none());
        let overlap = Element {
            key_end: Some(key(6, 120).to_vec()),
            ..element(&key(6, 99))
        };
        assert!(matches!(
            fields.insert(overlap),
            Err(InsertConflict::Refused(Errno::EEXIST))
        ));
    }
}
