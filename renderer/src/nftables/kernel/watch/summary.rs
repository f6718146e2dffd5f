//! A short summary of a transaction's changes of the table.

use std::collections::BTreeMap;

use crate::nftables::{
    kernel::read,
    layout::Set,
    netlink::{
        Attributes,
        constants::{LIST_ELEM, chain, elem, msg, rule, set},
    },
};

/// How many different objects are named.
const MAX_NAMED: usize = 3;

/// Counts the changes of each object, in the order of their first occurrence.
#[derive(Debug, Default)]
pub(super) struct Summary {
    deeds: Vec<ChangedObject>,
    /// The index of each object.
    index: BTreeMap<(u8, String), usize>,
}

#[derive(Debug)]
struct ChangedObject {
    kind: u8,
    /// The chain or set; empty for the table.
    name: String,
    count: usize,
    /// The first element, if it can be decoded.
    example: Option<String>,
}

impl Summary {
    /// Adds a message about the table.
    pub(super) fn add(&mut self, kind: u8, object: Attributes<'_>) {
        let name = match kind {
            msg::NEWCHAIN | msg::DELCHAIN => object.text(chain::NAME),
            msg::NEWRULE | msg::DELRULE => object.text(rule::CHAIN),
            msg::NEWSET | msg::DELSET => object.text(set::NAME),
            msg::NEWSETELEM | msg::DELSETELEM => object.text(elem::LIST_SET),
            _ => None,
        };
        let name = name.unwrap_or_default().to_owned();
        let next = self.deeds.len();
        let place = *self.index.entry((kind, name.clone())).or_insert(next);
        if place == next {
            self.deeds.push(ChangedObject {
                kind,
                example: example(object, &name),
                name,
                count: 0,
            });
        }
        self.deeds[place].count += 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.deeds.is_empty()
    }

    /// The text; none without any change.
    pub(super) fn text(&self) -> Option<String> {
        // Deleting the table deletes everything in it, and the kernel reports all of that.
        let of_table = self
            .deeds
            .iter()
            .filter(|deed| matches!(deed.kind, msg::NEWTABLE | msg::DELTABLE));
        let deeds: Vec<&ChangedObject> = if self.has_kind(msg::DELTABLE) {
            of_table.collect()
        } else {
            self.deeds.iter().collect()
        };
        let mut parts: Vec<String> = deeds
            .iter()
            .take(MAX_NAMED)
            .map(|deed| deed.text())
            .collect();
        if deeds.len() > MAX_NAMED {
            parts.push(format!("{} more", deeds.len() - MAX_NAMED));
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    fn has_kind(&self, kind: u8) -> bool {
        self.deeds.iter().any(|deed| deed.kind == kind)
    }
}

impl ChangedObject {
    fn text(&self) -> String {
        let Self {
            kind, name, count, ..
        } = self;
        let name = name.escape_debug();
        let example = self.example.as_deref().map(|first| {
            if *count > 1 {
                format!(" ({first} and others)")
            } else {
                format!(" ({first})")
            }
        });
        let example = example.unwrap_or_default();
        let plural = if *count == 1 { "" } else { "s" };
        match *kind {
            msg::NEWTABLE => "added or changed the table".to_owned(),
            msg::DELTABLE => "deleted the table".to_owned(),
            msg::NEWCHAIN => format!("added or changed chain {name}"),
            msg::DELCHAIN => format!("deleted chain {name}"),
            msg::NEWRULE => format!("added {count} rule{plural} to chain {name}"),
            msg::DELRULE => format!("deleted {count} rule{plural} of chain {name}"),
            msg::NEWSET => format!("added set {name}"),
            msg::DELSET => format!("deleted set {name}"),
            msg::NEWSETELEM => format!("added {count} element{plural} to {name}{example}"),
            msg::DELSETELEM => format!("deleted {count} element{plural} of {name}{example}"),
            other => format!("sent {count} message{plural} of type {other}"),
        }
    }
}

fn example(object: Attributes<'_>, set: &str) -> Option<String> {
    let (_, first) = object
        .nested(elem::LIST_ELEMENTS)?
        .iter()
        .find(|(kind, _)| *kind == LIST_ELEM)?;
    let element = read::parse_element(Set::by_name(set)?, Attributes(first))?;
    Some(element.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(kind: u8, count: usize, example: Option<&str>) -> String {
        ChangedObject {
            kind,
            name: "set".to_owned(),
            count,
            example: example.map(str::to_owned),
        }
        .text()
    }

    #[test]
    fn number_of_changes_decides_plural_and_example() {
        assert_eq!(
            text(msg::NEWSETELEM, 1, Some("a")),
            "added 1 element to set (a)"
        );
        assert_eq!(
            text(msg::DELSETELEM, 2, Some("a")),
            "deleted 2 elements of set (a and others)"
        );
        assert_eq!(text(msg::NEWSETELEM, 2, None), "added 2 elements to set");
        assert_eq!(text(msg::NEWRULE, 1, None), "added 1 rule to chain set");
        assert_eq!(text(msg::DELRULE, 3, None), "deleted 3 rules of chain set");
    }

    #[test]
    fn changes_of_deleted_table_are_one_and_others_are_counted() {
        let named = |count: usize, kind| {
            let changed = |index: usize| ChangedObject {
                kind,
                name: index.to_string(),
                count: 1,
                example: None,
            };
            Summary {
                deeds: (0..count).map(changed).collect(),
                index: BTreeMap::new(),
            }
        };
        assert_eq!(named(0, msg::DELSET).text(), None);
        assert_eq!(
            named(3, msg::DELSET).text().unwrap(),
            "deleted set 0, deleted set 1, deleted set 2"
        );
        let four = named(4, msg::DELSET).text().unwrap();
        assert_eq!(four, "deleted set 0, deleted set 1, deleted set 2, 1 more");
        let mut deleted = named(4, msg::DELSET);
        deleted.deeds.extend(named(1, msg::DELTABLE).deeds);
        assert_eq!(deleted.text().unwrap(), "deleted the table");
    }
}
