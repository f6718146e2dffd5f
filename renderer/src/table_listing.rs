//! The content of a table as text: the form in which two readers of the same table are compared.

use std::collections::{BTreeMap, BTreeSet};

use crate::verify::{Deviation, Drift, Verification};

/// The content of a table, in nft's format.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableListing {
    /// The chains by name.
    pub chains: BTreeMap<String, ListedChain>,
    /// The elements of each named set, by kind and name, as in `map backends4`.
    pub sets: BTreeMap<String, BTreeSet<String>>,
    /// Objects of other kinds, as in `counter http`.
    pub others: BTreeSet<String>,
}

/// A chain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListedChain {
    /// Type, hook, priority and policy; empty for a chain that others jump to.
    pub hook: String,
    /// The number of its rules.
    pub rules: usize,
}

impl TableListing {
    /// The number of chains, rules, sets, elements and other objects.
    pub fn len(&self) -> usize {
        let rules: usize = self.chains.values().map(|chain| chain.rules).sum();
        let elements: usize = self.sets.values().map(BTreeSet::len).sum();
        self.chains.len() + rules + self.sets.len() + elements + self.others.len()
    }

    /// True if the table is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every difference from what `nft` lists of the same table.
    pub fn differences(&self, nft: &Self) -> Verification {
        let mut found = Verification {
            checked: self.len().max(nft.len()),
            ..Verification::default()
        };
        let mut tell = |place: &str, element: &str, detail: String| {
            let (place, element) = (place.to_owned(), element.to_owned());
            let deviation = Deviation::Different(detail);
            found.drift.insert(Drift {
                service: None,
                place,
                element,
                deviation,
            });
        };
        for (name, ours, theirs) in pairs(&self.chains, &nft.chains) {
            match (ours, theirs) {
                (Some(ours), Some(theirs)) if ours.hook != theirs.hook => {
                    tell(
                        "chains",
                        name,
                        format!("{}; nft: {}", hook(ours), hook(theirs)),
                    );
                }
                (Some(ours), Some(theirs)) if ours.rules != theirs.rules => {
                    tell(
                        &format!("chain {name}"),
                        "",
                        format!("{} rules; nft: {}", ours.rules, theirs.rules),
                    );
                }
                (ours, theirs) => only(ours, theirs)
                    .into_iter()
                    .for_each(|who| tell("chains", name, who)),
            }
        }
        for (place, ours, theirs) in pairs(&self.sets, &nft.sets) {
            if let Some(who) = only(ours, theirs) {
                tell("sets", place, who);
            }
            if let (Some(ours), Some(theirs)) = (ours, theirs) {
                ours.difference(theirs)
                    .for_each(|element| tell(place, element, NOT_BY_NFT.to_owned()));
                theirs
                    .difference(ours)
                    .for_each(|element| tell(place, element, ONLY_BY_NFT.to_owned()));
            }
        }
        self.others
            .difference(&nft.others)
            .for_each(|other| tell("objects", other, NOT_BY_NFT.to_owned()));
        nft.others
            .difference(&self.others)
            .for_each(|other| tell("objects", other, ONLY_BY_NFT.to_owned()));
        found
    }
}

const NOT_BY_NFT: &str = "nft does not list it";
const ONLY_BY_NFT: &str = "only nft lists it";

fn hook(chain: &ListedChain) -> &str {
    if chain.hook.is_empty() {
        "no hook"
    } else {
        &chain.hook
    }
}

/// The reader that lists an object that the other one does not list.
fn only<T>(ours: Option<T>, theirs: Option<T>) -> Option<String> {
    let who = match (ours, theirs) {
        (Some(_), None) => NOT_BY_NFT,
        (None, Some(_)) => ONLY_BY_NFT,
        _ => return None,
    };
    Some(who.to_owned())
}

/// The values of both maps by their common keys.
fn pairs<'a, V>(
    ours: &'a BTreeMap<String, V>,
    theirs: &'a BTreeMap<String, V>,
) -> impl Iterator<Item = (&'a str, Option<&'a V>, Option<&'a V>)> {
    let names: BTreeSet<&str> = ours
        .keys()
        .chain(theirs.keys())
        .map(String::as_str)
        .collect();
    names
        .into_iter()
        .map(|name| (name, ours.get(name), theirs.get(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing() -> TableListing {
        let chain = |hook: &str, rules| ListedChain {
            hook: hook.to_owned(),
            rules,
        };
        TableListing {
            chains: BTreeMap::from([
                (
                    "nat-output".to_owned(),
                    chain("type nat hook output priority -100 policy accept", 2),
                ),
                ("services-v4".to_owned(), chain("", 3)),
            ]),
            sets: BTreeMap::from([(
                "map backends4".to_owned(),
                ["10.96.0.1 . tcp . 80 . 0 : 10.1.0.1 . 80".to_owned()].into(),
            )]),
            others: BTreeSet::new(),
        }
    }

    /// The differences after a change of what nft lists.
    fn differences(change: impl FnOnce(&mut TableListing)) -> Vec<String> {
        let mut nft = listing();
        change(&mut nft);
        listing()
            .differences(&nft)
            .drift
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn equal_listings_have_no_difference_and_are_counted() {
        let found = listing().differences(&listing());
        assert_eq!((found.checked, found.drift.len()), (9, 0));
        assert!(!listing().is_empty() && TableListing::default().is_empty());
    }

    #[test]
    fn each_kind_of_difference_is_found() {
        let elements =
            |table: &mut TableListing| table.sets.values_mut().next().map(std::mem::take);
        let element = "10.96.0.1 . tcp . 80 . 0 : 10.1.0.1 . 80";
        assert_eq!(
            differences(|nft| drop(elements(nft))),
            [format!(
                "different: map backends4 {{ {element} }} nft does not list it"
            )]
        );
        assert_eq!(
            differences(|nft| nft
                .sets
                .values_mut()
                .for_each(|set| set.extend(["more".to_owned()]))),
            ["different: map backends4 { more } only nft lists it"]
        );
        assert_eq!(
            differences(|nft| drop(nft.sets.insert("set theirs".to_owned(), BTreeSet::new()))),
            ["different: sets { set theirs } only nft lists it"]
        );
        assert_eq!(
            differences(|nft| drop(nft.chains.remove("services-v4"))),
            ["different: chains { services-v4 } nft does not list it"]
        );
        let of_chain = |change: fn(&mut ListedChain)| {
            differences(|nft| nft.chains.values_mut().next().into_iter().for_each(change))
        };
        assert_eq!(
            of_chain(|chain| chain.rules += 1),
            ["different: chain nat-output 2 rules; nft: 3"]
        );
        assert_eq!(
            of_chain(|chain| chain.hook.clear()),
            [
                "different: chains { nat-output } type nat hook output priority -100 policy accept; nft: no hook"
            ]
        );
        assert_eq!(
            differences(|nft| nft.others.extend(["counter planted".to_owned()])),
            ["different: objects { counter planted } only nft lists it"]
        );
    }
}
