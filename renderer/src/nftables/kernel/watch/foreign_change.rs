//! A foreign change of the table, in the detail that the renderer needs to undo it.

use std::collections::BTreeMap;

use crate::nftables::{
    desired::element::{Element, Key},
    kernel::read,
    layout::{Set, SetKind},
    netlink::{
        Attributes,
        constants::{LIST_ELEM, elem, msg, set},
    },
};

/// If there are more elements than this, they are not undone one by one, which bounds our memory.
const MAX_ELEMENTS: usize = 65_536;

/// The prefix of the names that the kernel gives to anonymous sets.
const ANONYMOUS: &str = "__set";

/// Changed elements by identity, with their current value in the kernel; none if there is no element.
pub(crate) type ChangedElements = BTreeMap<(Set, Key), Option<Element>>;

/// The foreign changes of one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ForeignTableChange {
    /// Only these elements changed.
    Elements(ChangedElements),
    /// Rules or chains changed too.
    Rules(ChangedElements),
    /// The table was removed.
    Table,
    /// Some table changed during a transaction of our own.
    Missed,
    /// Anything may have changed.
    Anything,
}

/// Collects the changes of one transaction.
#[derive(Debug, Default)]
pub(super) struct ForeignChangeCollector {
    elements: ChangedElements,
    rules: bool,
    table_gone: bool,
    is_more: bool,
}

impl ForeignChangeCollector {
    /// Adds a message about the table. False if the change does not matter.
    ///
    /// Affinity entries time out by themselves, and deleting one does no harm: its client draws again. Elements that only record
    /// packets decide nothing.
    pub(super) fn add(&mut self, kind: u8, object: Attributes<'_>) -> bool {
        let set = match kind {
            msg::NEWSETELEM | msg::DELSETELEM => object.text(elem::LIST_SET),
            msg::NEWSET | msg::DELSET => object.text(set::NAME),
            _ => None,
        };
        match kind {
            msg::DELTABLE => self.table_gone = true,
            msg::NEWCHAIN | msg::DELCHAIN | msg::NEWRULE | msg::DELRULE => self.rules = true,
            // Anonymous sets belong to rules.
            _ if set.is_some_and(|name| name.starts_with(ANONYMOUS)) => self.rules = true,
            msg::NEWSETELEM | msg::DELSETELEM => return self.add_elements(kind, set, object),
            _ => self.is_more = true,
        }
        true
    }

    fn add_elements(&mut self, kind: u8, set: Option<&str>, object: Attributes<'_>) -> bool {
        let Some(set) = set.and_then(Set::by_name) else {
            self.is_more = true;
            return true;
        };
        if set.kind.only_records() || set.kind == SetKind::Affinity && kind == msg::DELSETELEM {
            return false;
        }
        let listed = object
            .nested(elem::LIST_ELEMENTS)
            .into_iter()
            .flat_map(Attributes::iter);
        for (_, attributes) in listed.filter(|(kind, _)| *kind == LIST_ELEM) {
            match read::parse_element(set, Attributes(attributes)) {
                Some(element)
                    if set.kind != SetKind::Affinity && self.elements.len() < MAX_ELEMENTS =>
                {
                    let now = (kind == msg::NEWSETELEM).then_some(element);
                    self.elements.insert((set, element.key), now);
                }
                _ => self.is_more = true,
            }
        }
        true
    }
}

impl From<ForeignChangeCollector> for ForeignTableChange {
    fn from(collector: ForeignChangeCollector) -> Self {
        match collector {
            // With the table everything in it is removed.
            ForeignChangeCollector {
                table_gone: true, ..
            } => Self::Table,
            ForeignChangeCollector { is_more: true, .. } => Self::Anything,
            ForeignChangeCollector {
                rules: true,
                elements,
                ..
            } => Self::Rules(elements),
            ForeignChangeCollector { elements, .. } => Self::Elements(elements),
        }
    }
}
