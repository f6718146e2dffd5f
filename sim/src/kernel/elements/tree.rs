//! Intervals, as the kernel's `net/netfilter/nft_set_rbtree.c` stores them: by their start and end, each a separate element.

use crate::kernel::{
    element::{Element, InsertConflict},
    errno::Errno,
};

/// Start and end elements, from the greatest key to the smallest; a start before an end with the same key.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
    last_id: u64,
    /// The last start element of the transaction, if it existed before: an existing end must be of the same interval. The
    /// kernel calls it `start_rbe_cookie`.
    start: Option<u64>,
}

#[derive(Debug, Clone)]
struct Node {
    /// Distinguishes it from others with the same key.
    id: u64,
    element: Element,
    /// Deleted by the current transaction; removed at its commit.
    is_gone: bool,
}

impl Tree {
    /// All elements that are not deleted.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Element> {
        self.nodes
            .iter()
            .filter(|node| !node.is_gone)
            .map(|node| &node.element)
    }

    /// `__nft_rbtree_insert`
    pub(crate) fn insert(
        &mut self,
        new: Element,
        is_anonymous: bool,
    ) -> Result<(), InsertConflict> {
        // The search begins at the closest greater node, deleted or not.
        let first = self
            .nodes
            .iter()
            .rposition(|node| node.element.key > new.key)
            .unwrap_or(0);
        let live = (first..self.nodes.len()).filter(|at| !self.nodes[*at].is_gone);
        let (mut more, mut less) = (None, None);
        for at in live {
            let element = &self.nodes[at].element;
            if element.key < new.key || element.key == new.key && element.is_end {
                less = Some(at);
                break;
            }
            more = Some(at);
        }
        if !new.is_end || is_null(&new) {
            self.start = None;
        }
        let element = |at: usize| &self.nodes[at].element;
        let is_same = |at: &usize| element(*at).key == new.key && element(*at).is_end == new.is_end;
        if let Some(more) = more.filter(is_same) {
            let same = Box::new(element(more).clone());
            self.start = Some(self.nodes[more].id);
            return Err(InsertConflict::Same(same));
        }
        let overlap = Err(InsertConflict::Refused(Errno::EEXIST));
        if let Some(less) = less.filter(is_same) {
            if is_null(&new) {
                return Err(InsertConflict::Needless);
            }
            let same = Box::new(element(less).clone());
            let next = self.nodes[less + 1..].iter().find(|node| !node.is_gone);
            let is_of_start =
                next.is_some_and(|next| !next.element.is_end && self.start == Some(next.id));
            return if self.start.take().is_none() || is_of_start {
                Err(InsertConflict::Same(same))
            } else {
                overlap
            };
        }
        if let Some(less) = less {
            let is_within = || {
                less.checked_sub(1)
                    .is_some_and(|before| element(before).is_end)
            };
            // Sets without a name have no end where the next interval begins.
            if !element(less).is_end && !new.is_end && (!is_anonymous || is_within()) {
                return overlap;
            }
            if element(less).is_end && new.is_end {
                return overlap;
            }
        }
        if more.is_some_and(|more| element(more).is_end && new.is_end) {
            return overlap;
        }
        let is_before = |node: &Node| {
            node.element.key > new.key || node.element.key == new.key && !node.element.is_end
        };
        let place = self.nodes.partition_point(is_before);
        self.last_id += 1;
        self.nodes.insert(
            place,
            Node {
                id: self.last_id,
                element: new,
                is_gone: false,
            },
        );
        Ok(())
    }

    /// `nft_rbtree_deactivate`
    pub(crate) fn remove(&mut self, key: &[u8], is_end: bool) -> Option<Element> {
        if !is_end || key.iter().all(|byte| *byte == 0) {
            self.start = None;
        }
        let is_removed_node =
            |node: &Node| !node.is_gone && node.element.key == key && node.element.is_end == is_end;
        let at = self.nodes.iter().position(is_removed_node)?;
        if is_end {
            let next = self
                .nodes
                .get(at + 1)
                .filter(|next| next.is_gone && !next.element.is_end);
            let is_of_start = next.is_some_and(|next| self.start == Some(next.id));
            if self.start.take().is_some() && !is_of_start {
                return None;
            }
        } else {
            self.start = Some(self.nodes[at].id);
        }
        self.nodes[at].is_gone = true;
        Some(self.nodes[at].element.clone())
    }

    /// The start element of the interval with this first key.
    pub(crate) fn get_mut(&mut self, key: &[u8]) -> Option<&mut Element> {
        let mut live = self
            .nodes
            .iter_mut()
            .filter(|node| !node.is_gone)
            .map(|node| &mut node.element);
        live.find(|element| element.key == key && !element.is_end)
    }

    /// Removes all elements.
    pub(crate) fn clear(&mut self) -> Vec<Element> {
        let live = self.nodes.iter_mut().filter(|node| !node.is_gone);
        let gone = live.map(|node| {
            node.is_gone = true;
            node.element.clone()
        });
        gone.collect()
    }

    /// Commits: removes the deleted elements.
    pub(crate) fn commit(&mut self) {
        self.nodes.retain(|node| !node.is_gone);
        self.start = None;
    }

    /// Whether [`Self::commit`] has anything to do.
    pub(crate) fn is_committed(&self) -> bool {
        self.start.is_none() && !self.nodes.iter().any(|node| node.is_gone)
    }

    /// The start element of the interval that contains a key.
    pub(crate) fn find(&self, key: &[u8]) -> Option<&Element> {
        // At the same key a start takes precedence over an end.
        self.iter()
            .find(|element| element.key.as_slice() <= key)
            .filter(|found| !found.is_end)
    }
}

/// The end element of an empty interval before the smallest key. It may be written repeatedly.
fn is_null(element: &Element) -> bool {
    element.is_end && element.key.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(key: u8, is_end: bool) -> Element {
        Element {
            key: vec![key],
            key_end: None,
            data: None,
            is_end,
            userdata: Vec::new(),
            counter: None,
            timeout: None,
            expires: None,
        }
    }

    /// A tree with these intervals, each from its first key to the one after its last.
    fn tree(intervals: &[(u8, u8)]) -> Tree {
        let mut tree = Tree::default();
        for (first, after) in intervals {
            tree.insert(element(*first, false), false).unwrap();
            tree.insert(element(*after, true), false).unwrap();
        }
        tree
    }

    #[test]
    fn interval_contains_its_start_but_not_its_end() {
        let mut tree = tree(&[(10, 20), (20, 30)]);
        for (key, expected) in [
            (9, false),
            (10, true),
            (19, true),
            (20, true),
            (29, true),
            (30, false),
        ] {
            assert_eq!(tree.find(&[key]).is_some(), expected, "{key}");
        }
        assert!(matches!(
            tree.insert(element(15, false), false),
            Err(InsertConflict::Refused(Errno::EEXIST))
        ));
        assert!(matches!(
            tree.insert(element(10, false), false),
            Err(InsertConflict::Same(_))
        ));
        assert!(tree.remove(&[10], true).is_none() && tree.remove(&[10], false).is_some());
        assert!(tree.find(&[15]).is_none());
        tree.commit();
        assert_eq!(tree.iter().count(), 3);
    }

    #[test]
    fn tree_interval_over_two_others_is_refused() {
        let mut tree = tree(&[(10, 20), (40, 50)]);
        assert!(matches!(
            tree.insert(element(10, false), false),
            Err(InsertConflict::Same(_))
        ));
        assert!(matches!(
            tree.insert(element(50, true), false),
            Err(InsertConflict::Refused(Errno::EEXIST))
        ));
        assert!(tree.remove(&[10], false).is_some() && tree.remove(&[50], true).is_none());
        assert!(tree.remove(&[40], false).is_some() && tree.remove(&[50], true).is_some());
    }
}
