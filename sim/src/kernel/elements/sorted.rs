//! Single elements in the order of their keys. They are in chunks: a copy of the set shares them all, and a change copies one. Each
//! transaction changes a copy of the tables.

use std::sync::Arc;

use crate::kernel::element::Element;

/// The most elements of a chunk.
const MAX_CHUNK: usize = 32;

/// Elements with different keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sorted {
    /// In the order of the keys. None is empty.
    chunks: Vec<Arc<Vec<Arc<Element>>>>,
    len: usize,
}

impl Sorted {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Element>> {
        self.chunks.iter().flat_map(|chunk| &**chunk)
    }

    /// The element with this key.
    pub(crate) fn get(&self, key: &[u8]) -> Option<&Arc<Element>> {
        let (chunk, place) = self.find(key);
        let place = place.ok()?;
        Some(&self.chunks[chunk][place])
    }

    /// The same, to change it; its key must stay.
    pub(crate) fn get_mut(&mut self, key: &[u8]) -> Option<&mut Element> {
        let (chunk, place) = self.find(key);
        let place = place.ok()?;
        Some(Arc::make_mut(
            &mut Arc::make_mut(&mut self.chunks[chunk])[place],
        ))
    }

    /// Adds an element, in the place of one with the same key.
    pub(crate) fn insert(&mut self, element: Arc<Element>) {
        let (at, place) = self.find(&element.key);
        if at == self.chunks.len() {
            self.chunks.push(Arc::default());
        }
        let chunk = Arc::make_mut(&mut self.chunks[at]);
        match place {
            Ok(place) => chunk[place] = element,
            Err(place) => {
                chunk.insert(place, element);
                self.len += 1;
                if chunk.len() > MAX_CHUNK {
                    let second = chunk.split_off(MAX_CHUNK / 2);
                    self.chunks.insert(at + 1, Arc::new(second));
                }
            }
        }
    }

    /// Removes the element with this key.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<Arc<Element>> {
        let (at, place) = self.find(key);
        let place = place.ok()?;
        let chunk = Arc::make_mut(&mut self.chunks[at]);
        let gone = chunk.remove(place);
        if chunk.is_empty() {
            self.chunks.remove(at);
        }
        self.len -= 1;
        Some(gone)
    }

    /// Removes all others.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&Element) -> bool) {
        if self.iter().all(|element| is_kept(element)) {
            return;
        }
        for chunk in &mut self.chunks {
            Arc::make_mut(chunk).retain(|element| is_kept(element));
        }
        self.chunks.retain(|chunk| !chunk.is_empty());
        self.len = self.chunks.iter().map(|chunk| chunk.len()).sum();
    }

    /// The chunk for a key, and its place there: where it is, or where it belongs. The chunk may be one more than there are.
    fn find(&self, key: &[u8]) -> (usize, Result<usize, usize>) {
        let is_before =
            |chunk: &Arc<Vec<Arc<Element>>>| chunk.last().is_some_and(|last| *last.key < *key);
        let at = self.chunks.partition_point(is_before);
        // What comes last is added to the last one.
        let at = at.min(self.chunks.len().saturating_sub(1));
        let place = self.chunks.get(at).map_or(Err(0), |chunk| {
            chunk.binary_search_by(|element| (*element.key).cmp(key))
        });
        (at, place)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};

    use super::*;

    fn element(key: u8, userdata: u8) -> Element {
        Element {
            key: vec![key],
            key_end: None,
            data: None,
            is_end: false,
            userdata: vec![userdata],
            counter: None,
            timeout: None,
            expires: None,
        }
    }

    fn content(sorted: &Sorted) -> Vec<(u8, u8)> {
        let elements = sorted.iter();
        let content: Vec<_> = elements
            .map(|element| (element.key[0], element.userdata[0]))
            .collect();
        assert_eq!(sorted.len(), content.len());
        content
    }

    #[test]
    fn sorted_elements_are_those_of_a_map_and_copies_stay() {
        let mut rng = SmallRng::seed_from_u64(1);
        let (mut sorted, mut map) = (Sorted::default(), BTreeMap::new());
        for step in 0..2_000_u32 {
            let (copy, before) = (sorted.clone(), content(&sorted));
            let (key, value) = (rng.random(), rng.random());
            // First it grows, then it shrinks until it is empty.
            match rng.random_range(0..4) + step / 1_000 {
                0..2 => {
                    sorted.insert(element(key, value).into());
                    map.insert(key, value);
                }
                2 => {
                    let changed = sorted.get_mut(&[key]);
                    assert_eq!(changed.is_some(), map.contains_key(&key));
                    if let Some(element) = changed {
                        element.userdata[0] = value;
                        map.insert(key, value);
                    }
                }
                3 => {
                    let gone = sorted.remove(&[key]).map(|element| element.userdata[0]);
                    assert_eq!(gone, map.remove(&key));
                }
                _ => {
                    let is_kept = |key: u8| key % 16 != value % 16;
                    sorted.retain(|element| is_kept(element.key[0]));
                    map.retain(|key, _| is_kept(*key));
                }
            }
            assert_eq!(content(&copy), before);
            assert_eq!(
                content(&sorted),
                map.clone().into_iter().collect::<Vec<_>>()
            );
            let found = sorted.get(&[key]).map(|element| element.userdata[0]);
            assert_eq!(found, map.get(&key).copied());
        }
    }
}
