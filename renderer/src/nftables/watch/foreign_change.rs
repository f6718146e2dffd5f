//! What others did to the table, as far as the renderer needs it to undo just that.

use std::collections::BTreeMap;

use crate::nftables::{
    element::{Element, Key},
    layout::{Set, SetKind},
    netlink::{
        Attributes,
        constants::{LIST_ELEM, elem, msg, set},
    },
    read,
};

/// More elements than this are not undone one by one, so that others cannot make us hold any amount of memory.
const ELEMENTS: usize = 65_536;

/// How the kernel names the sets of rules that have none.
const ANONYMOUS: &str = "__set";

/// Elements by what identifies them, and what is in the kernel now; none where nothing is.
pub(in crate::nftables) type ChangedElements = BTreeMap<(Set, Key), Option<Element>>;

/// What others did in one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::nftables) enum ForeignTableChange {
    /// Nothing but these elements was touched.
    Elements(ChangedElements),
    /// Rules or chains too.
    Rules(ChangedElements),
    /// The table is gone.
    Table,
    /// Something happened to some table during a transaction of our own.
    Missed,
    /// Whatever it was, all must be looked at.
    Anything,
}

/// Gathers the damage of one transaction.
#[derive(Debug, Default)]
pub(super) struct ForeignChangeCollector {
    elements: ChangedElements,
    rules: bool,
    table_gone: bool,
    is_more: bool,
}

impl ForeignChangeCollector {
    /// Takes in a message about the table. False if what it says is none of our business.
    ///
    /// What the kernel remembers of clients goes by itself, and whoever deletes some of it does no harm: those clients
    /// draw once more.
    pub(super) fn take(&mut self, kind: u8, object: Attributes<'_>) -> bool {
        let set = match kind {
            msg::NEWSETELEM | msg::DELSETELEM => object.text(elem::LIST_SET),
            msg::NEWSET | msg::DELSET => object.text(set::NAME),
            _ => None,
        };
        match kind {
            msg::DELTABLE => self.table_gone = true,
            msg::NEWCHAIN | msg::DELCHAIN | msg::NEWRULE | msg::DELRULE => self.rules = true,
            // Those without a name of their own belong to rules.
            _ if set.is_some_and(|name| name.starts_with(ANONYMOUS)) => self.rules = true,
            msg::NEWSETELEM | msg::DELSETELEM => return self.take_elements(kind, set, object),
            _ => self.is_more = true,
        }
        true
    }

    fn take_elements(&mut self, kind: u8, set: Option<&str>, object: Attributes<'_>) -> bool {
        let Some(set) = set.and_then(Set::by_name) else {
            self.is_more = true;
            return true;
        };
        if set.kind == SetKind::Affinity && kind == msg::DELSETELEM {
            return false;
        }
        let listed = object.nested(elem::LIST_ELEMENTS).into_iter().flat_map(Attributes::iter);
        for (_, attributes) in listed.filter(|(kind, _)| *kind == LIST_ELEM) {
            match read::parse_element(set, Attributes(attributes)) {
                Some(element) if set.kind != SetKind::Affinity && self.elements.len() < ELEMENTS => {
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
    fn from(damaged: ForeignChangeCollector) -> Self {
        match damaged {
            // With a table goes all that is in it.
            ForeignChangeCollector { table_gone: true, .. } => Self::Table,
            ForeignChangeCollector { is_more: true, .. } => Self::Anything,
            ForeignChangeCollector { rules: true, elements, .. } => Self::Rules(elements),
            ForeignChangeCollector { elements, .. } => Self::Elements(elements),
        }
    }
}
