//! Compares the desired table with the kernel's. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    desired::{DesiredSet, DesiredTable},
    reader::{KernelSet, KernelTable, StoredEntry},
};
use crate::{
    nftables::{
        desired::elements::of_chain,
        layout::{DemandChain, Set},
        netlink::constants::{set, table},
    },
    verify::{Deviation, Drift, Verification},
};

/// Every difference except those of rules.
pub(super) fn compare(desired: &DesiredTable, found: &KernelTable) -> Verification {
    let mut comparison = Comparison {
        desired,
        found: Verification::default(),
    };
    if found.flags & table::FLAG_DORMANT != 0 {
        comparison.different(
            "table inet contiv",
            "",
            "dormant: its rules are not evaluated",
        );
    }
    comparison.chains(&found.chains);
    for (name, desired) in &desired.sets {
        match found.sets.get(name) {
            Some(found) => comparison.set(name, desired, found),
            None => comparison.report("sets", name, Deviation::Missing),
        }
    }
    for name in found
        .sets
        .keys()
        .filter(|name| !desired.sets.contains_key(*name))
    {
        comparison.report("sets", name, Deviation::Foreign);
    }
    comparison.found
}

struct Comparison<'a> {
    desired: &'a DesiredTable,
    found: Verification,
}

impl Comparison<'_> {
    fn report(&mut self, place: &str, element: &str, deviation: Deviation) {
        let service = self.desired.owner(element).cloned();
        let (place, element) = (place.to_owned(), element.to_owned());
        self.found.drift.insert(Drift {
            service,
            place,
            element,
            deviation,
        });
    }

    fn different(&mut self, place: &str, element: &str, detail: impl Into<String>) {
        self.report(place, element, Deviation::Different(detail.into()));
    }

    fn chains(&mut self, found: &BTreeMap<String, String>) {
        for (name, desired) in &self.desired.chains {
            self.found.checked += 1;
            match found.get(name) {
                Some(hook) if hook == desired => {}
                Some(hook) => self.different("chains", name, describe_difference(hook, desired)),
                None => self.report("chains", name, Deviation::Missing),
            }
        }
        // An unused on-demand chain may wait for its next service.
        let is_foreign = |name: &&String| {
            !self.desired.chains.contains_key(*name) && DemandChain::by_name(name).is_none()
        };
        for name in found.keys().filter(is_foreign).collect::<Vec<_>>() {
            self.report(
                "chains",
                &name.escape_debug().to_string(),
                Deviation::Foreign,
            );
        }
    }

    fn set(&mut self, name: &str, desired: &DesiredSet, found: &KernelSet) {
        let [flags, key_type, key_len, data_type, data_len] = found.declaration;
        let is_declared = Set::by_name(name).is_some_and(|ours| {
            let ours = ours.declaration();
            let relevant =
                set::FLAG_INTERVAL | set::FLAG_MAP | set::FLAG_TIMEOUT | set::FLAG_CONCAT;
            flags & relevant == ours.flags & relevant
                && (key_type, key_len) == (ours.key_type, ours.key_len)
                && (data_type, data_len) == ours.data.unwrap_or_default()
        });
        if !is_declared {
            return self.different("sets", name, "of another type, or with other flags");
        }
        let place = if flags & set::FLAG_MAP == 0 {
            format!("set {name}")
        } else {
            format!("map {name}")
        };
        if desired.only_records {
            return;
        }
        if desired.is_memory {
            return self.memory(&place, found);
        }
        for (key, required) in &desired.elements {
            self.found.checked += required.len();
            match found.elements.get(key) {
                None => self.report(&place, key, Deviation::Missing),
                Some(stored) if stored == required => {}
                Some(stored) => {
                    self.compare_entries(
                        &place,
                        key,
                        required,
                        stored,
                        desired.fixed.contains(key),
                    );
                }
            }
        }
        for (key, stored) in found
            .elements
            .iter()
            .filter(|(key, _)| !desired.elements.contains_key(*key))
        {
            self.found.checked += 1;
            if !is_of_unused_chain(name, key, stored) {
                self.report(&place, key, Deviation::Foreign);
            }
        }
    }

    /// The order of slots depends on history, unless it is fixed; their number does not.
    fn compare_entries(
        &mut self,
        place: &str,
        key: &str,
        desired: &BTreeSet<StoredEntry>,
        found: &BTreeSet<StoredEntry>,
        fixed: bool,
    ) {
        let has_slots = desired.iter().any(|(slot, _)| slot.is_some());
        if fixed || !has_slots {
            let text =
                |all: &BTreeSet<StoredEntry>| all.iter().map(text).collect::<Vec<_>>().join(", ");
            let of = |all: &BTreeSet<StoredEntry>, but: &BTreeSet<StoredEntry>| {
                text(&all.difference(but).cloned().collect())
            };
            return self.different(
                place,
                key,
                describe_difference(&of(found, desired), &of(desired, found)),
            );
        }
        let (is, must) = (slots_by_value(found), slots_by_value(desired));
        let values: BTreeSet<&str> = is.keys().chain(must.keys()).copied().collect();
        for value in values {
            let counts = (
                is.get(value).copied().unwrap_or(0),
                must.get(value).copied().unwrap_or(0),
            );
            let element = format!("{key} : {value}");
            let deviation = match counts {
                (is, must) if is == must => continue,
                (0, _) => Deviation::Missing,
                (_, 0) => Deviation::Foreign,
                (is, must) => Deviation::Different(format!("{is} slots instead of {must}")),
            };
            let service = self.desired.owner(key).cloned();
            self.found.drift.insert(Drift {
                service,
                place: place.to_owned(),
                element,
                deviation,
            });
        }
        let numbers: Vec<u32> = found.iter().filter_map(|(slot, _)| *slot).collect();
        if !numbers
            .iter()
            .copied()
            .eq(0..u32::try_from(numbers.len()).unwrap_or(u32::MAX))
        {
            self.different(
                place,
                key,
                "slots that are not numbered from 0: some are never found",
            );
        }
    }

    /// Affinity entries are allowed for frontends with affinity, with backends of theirs.
    fn memory(&mut self, place: &str, found: &KernelSet) {
        for (key, stored) in &found.elements {
            self.found.checked += 1;
            let backends = key
                .rsplit_once(" . ")
                .and_then(|(frontend, _)| self.desired.memories.get(frontend));
            if !stored
                .iter()
                .all(|(_, value)| backends.is_some_and(|backends| backends.contains(value)))
            {
                self.report(place, key, Deviation::Foreign);
            }
        }
    }
}

/// True if it leads from a number to its chain, which no frontend needs at present.
fn is_of_unused_chain(set: &str, key: &str, stored: &BTreeSet<StoredEntry>) -> bool {
    let chain = stored
        .first()
        .and_then(|(_, value)| DemandChain::by_name(value.strip_prefix("goto ")?));
    let element = chain.and_then(of_chain);
    element.is_some_and(|element| {
        element.set.name() == set && element.to_string().starts_with(&format!("{key} : "))
    })
}

fn slots_by_value(stored: &BTreeSet<StoredEntry>) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for (_, value) in stored {
        *counts.entry(value.as_str()).or_default() += 1;
    }
    counts
}

fn text((slot, value): &StoredEntry) -> String {
    match slot {
        Some(slot) => format!("{value} in slot {slot}"),
        None => value.clone(),
    }
}

fn describe_difference(is: &str, must: &str) -> String {
    let or_nothing = |text: &str| {
        if text.is_empty() {
            "nothing".to_owned()
        } else {
            text.to_owned()
        }
    };
    format!("is {}, expected {}", or_nothing(is), or_nothing(must))
}

#[cfg(test)]
mod tests;
