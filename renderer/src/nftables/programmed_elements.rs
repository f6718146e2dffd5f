//! A compact form of a frontend's elements, since their number is that of all backends.

use super::{
    capacity::Counts,
    element::{Element, Endpoint, FrontendKey, Key, Value},
    layout::{Family, Set, SetKind},
};

/// The elements of one frontend. For an element with a backend only the backend is stored: set and key follow from its index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ProgrammedElements {
    slots: Box<[Endpoint]>,
    external: Box<[Endpoint]>,
    /// All others, sorted.
    others: Box<[Element]>,
}

impl ProgrammedElements {
    /// Stores the result of [`super::elements::of_frontend`]: sorted, and without a gap between the slots.
    pub(crate) fn new(elements: &[Element]) -> Self {
        let slots = |kind| {
            let backend = move |element: &Element| match element.value {
                Value::Backend(backend) if element.set.kind == kind => Some(backend),
                _ => None,
            };
            collect_exact(elements.iter().filter_map(backend))
        };
        let is_slot = |element: &&Element| matches!(element.value, Value::Backend(_));
        Self {
            slots: slots(SetKind::Backends),
            external: slots(SetKind::BackendsExternal),
            others: collect_exact(elements.iter().filter(move |element| !is_slot(element)).copied()),
        }
    }

    /// The elements without a backend.
    pub(crate) fn others(&self) -> impl Iterator<Item = &Element> {
        self.others.iter()
    }

    /// All elements, sorted, with the keys of `frontend`.
    pub(crate) fn elements(&self, frontend: FrontendKey) -> Vec<Element> {
        let mut elements = Vec::with_capacity(self.len());
        elements.extend(&self.others);
        for (kind, slots) in [(SetKind::Backends, &self.slots), (SetKind::BackendsExternal, &self.external)] {
            let set = Set::new(kind, frontend.family());
            elements.extend((0..).zip(slots).map(|(slot, backend)| of_slot(set, frontend, slot, *backend)));
        }
        elements.sort_unstable();
        elements
    }

    /// The element with this key of `frontend`.
    pub(crate) fn element(&self, set: Set, frontend: FrontendKey, key: Key) -> Option<Element> {
        if let Key::Slot(_, slot) = key {
            let slots = if set.kind == SetKind::Backends { &self.slots } else { &self.external };
            return slots.get(slot as usize).map(|backend| of_slot(set, frontend, slot, *backend));
        }
        let place = self.others.binary_search_by_key(&(set, key), |element| (element.set, element.key));
        place.ok().and_then(|place| self.others.get(place)).copied()
    }

    /// True if there is an element of this kind, apart from those with backends.
    pub(crate) fn has(&self, kind: SetKind) -> bool {
        self.others.iter().any(|element| element.set.kind == kind)
    }

    /// True if it leads to this backend.
    pub(crate) fn has_backend(&self, backend: Endpoint) -> bool {
        self.slots.contains(&backend) || self.external.contains(&backend)
    }

    /// Adds the number of elements in each set to `counts`.
    pub(crate) fn count(&self, family: Family, counts: &mut Counts) {
        let slots = [(SetKind::Backends, self.slots.len()), (SetKind::BackendsExternal, self.external.len())];
        for (kind, count) in slots.into_iter().filter(|(_, count)| *count > 0) {
            *counts.entry(Set::new(kind, family)).or_default() += count;
        }
        for element in &self.others {
            *counts.entry(element.set).or_default() += 1;
        }
    }

    /// How many elements there are.
    pub(crate) const fn len(&self) -> usize {
        self.slots.len() + self.external.len() + self.others.len()
    }
}

/// Collects without spare capacity: counts first, since shrinking afterwards would copy.
fn collect_exact<T>(values: impl Iterator<Item = T> + Clone) -> Box<[T]> {
    let mut exact = Vec::with_capacity(values.clone().count());
    exact.extend(values);
    exact.into_boxed_slice()
}

/// The element of one slot.
pub(crate) const fn of_slot(set: Set, frontend: FrontendKey, slot: u32, backend: Endpoint) -> Element {
    Element { set, key: Key::Slot(frontend, slot), value: Value::Backend(backend) }
}
