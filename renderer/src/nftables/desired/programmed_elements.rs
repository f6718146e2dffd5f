//! A compact form of a frontend's elements, since their number is that of all backends.

use std::num::NonZeroU32;

use super::{
    capacity::Counts,
    element::{Element, Endpoint, FrontendKey, Key, Value},
};
use crate::nftables::layout::{DemandChain, Family, PickChain, Set, SetKind};

/// The elements of one frontend. Most frontends have only slots and the chain that picks one. For these only the backends and
/// the chain's number are stored: set and key follow from them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ProgrammedElements {
    slots: Box<[Endpoint]>,
    /// The number of the frontend's [`PickChain`].
    pick: Option<NonZeroU32>,
    rare: Option<Box<RareElements>>,
}

/// The elements that few frontends have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct RareElements {
    /// The slots of external clients.
    external: Box<[Endpoint]>,
    /// All others.
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
        let is_other = |element: &&Element| {
            !matches!(element.value, Value::Backend(_)) && pick_of(element).is_none()
        };
        let rare = RareElements {
            external: slots(SetKind::BackendsExternal),
            others: collect_exact(elements.iter().filter(is_other).copied()),
        };
        Self {
            slots: slots(SetKind::Backends),
            pick: elements.iter().find_map(pick_of),
            rare: (rare != RareElements::default()).then(|| Box::new(rare)),
        }
    }

    fn external(&self) -> &[Endpoint] {
        self.rare.as_ref().map_or(&[], |rare| &rare.external)
    }

    fn others(&self) -> &[Element] {
        self.rare.as_ref().map_or(&[], |rare| &rare.others)
    }

    /// The element that leads to the chain that picks a slot.
    fn pick(&self, frontend: FrontendKey) -> Option<Element> {
        let chain = PickChain::by_number(frontend.family(), self.pick?.get())?;
        let set = Set::new(SetKind::Services, frontend.family());
        let value = Value::Goto(DemandChain::Pick(chain));
        Some(Element {
            set,
            key: Key::Frontend(frontend),
            value,
        })
    }

    /// The elements without a backend, with the keys of `frontend`.
    pub(crate) fn without_backend(&self, frontend: FrontendKey) -> impl Iterator<Item = Element> {
        self.pick(frontend)
            .into_iter()
            .chain(self.others().iter().copied())
    }

    /// All elements, sorted, with the keys of `frontend`.
    pub(crate) fn elements(&self, frontend: FrontendKey) -> Vec<Element> {
        let mut elements = Vec::with_capacity(self.len());
        elements.extend(self.without_backend(frontend));
        for (kind, slots) in [
            (SetKind::Backends, &*self.slots),
            (SetKind::BackendsExternal, self.external()),
        ] {
            let set = Set::new(kind, frontend.family());
            elements.extend(
                (0..)
                    .zip(slots)
                    .map(|(slot, backend)| of_slot(set, frontend, slot, *backend)),
            );
        }
        elements.sort_unstable();
        elements
    }

    /// The element with this key of `frontend`.
    pub(crate) fn element(&self, set: Set, frontend: FrontendKey, key: Key) -> Option<Element> {
        if let Key::Slot(_, slot) = key {
            let slots = if set.kind == SetKind::Backends {
                &self.slots
            } else {
                self.external()
            };
            return slots
                .get(slot as usize)
                .map(|backend| of_slot(set, frontend, slot, *backend));
        }
        self.without_backend(frontend)
            .find(|element| (element.set, element.key) == (set, key))
    }

    /// True if clients stay with their backend.
    pub(crate) fn is_sticky(&self) -> bool {
        self.others()
            .iter()
            .any(|element| element.set.kind == SetKind::Sticky)
    }

    /// True if it leads to this backend.
    pub(crate) fn has_backend(&self, backend: Endpoint) -> bool {
        self.slots.contains(&backend) || self.external().contains(&backend)
    }

    /// Adds the number of elements in each set to `counts`.
    pub(crate) fn count(&self, family: Family, counts: &mut Counts) {
        let counted = [
            (SetKind::Backends, self.slots.len()),
            (SetKind::BackendsExternal, self.external().len()),
            (SetKind::Services, usize::from(self.pick.is_some())),
        ];
        for (kind, count) in counted.into_iter().filter(|(_, count)| *count > 0) {
            *counts.entry(Set::new(kind, family)).or_default() += count;
        }
        for element in self.others() {
            *counts.entry(element.set).or_default() += 1;
        }
    }

    /// How many elements there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
            + usize::from(self.pick.is_some())
            + self.external().len()
            + self.others().len()
    }
}

/// The number of the chain that picks a slot, if the element leads to one.
fn pick_of(element: &Element) -> Option<NonZeroU32> {
    match element.value {
        Value::Goto(DemandChain::Pick(chain)) => NonZeroU32::new(chain.number()),
        _ => None,
    }
}

/// Collects without spare capacity: counts first, since shrinking afterwards would copy.
fn collect_exact<T>(values: impl Iterator<Item = T> + Clone) -> Box<[T]> {
    let mut exact = Vec::with_capacity(values.clone().count());
    exact.extend(values);
    exact.into_boxed_slice()
}

/// The element of one slot.
pub(crate) const fn of_slot(
    set: Set,
    frontend: FrontendKey,
    slot: u32,
    backend: Endpoint,
) -> Element {
    Element {
        set,
        key: Key::Slot(frontend, slot),
        value: Value::Backend(backend),
    }
}
