//! Descriptions of events for people.

use std::{collections::BTreeSet, fmt::Display};

use contiv_model::Event;
use contiv_renderer::Drift;
use contiv_store::Problem;

/// How many objects, problems or deviations are named.
const MAX_NAMED: usize = 5;

/// Describes changes, and how many values besides are bad.
pub(super) fn changes(events: &[Event], bad: usize) -> String {
    let name = |event: &Event| match event {
        Event::Put(object) => Some(object.key().to_string()),
        Event::Delete(key) => Some(format!("{key} deleted")),
        _ => None,
    };
    let bad = (bad > 0).then(|| format!("{bad} that cannot be used"));
    let named = list(
        events.iter().filter_map(name),
        events.len().saturating_sub(MAX_NAMED),
    );
    let parts: Vec<String> = named.into_iter().chain(bad).collect();
    if parts.is_empty() {
        "no relevant object".to_owned()
    } else {
        parts.join(", ")
    }
}

/// Describes unreadable objects: a single one with its reason, several by the first places.
pub(super) fn problems(problems: &[Problem]) -> String {
    let name = |problem: &Problem| match &problem.object {
        Some(object) => format!("{object} in {}", problem.source),
        None => problem.source.clone(),
    };
    match problems {
        [] => "every manifest and object can be read".to_owned(),
        [only] => format!("cannot be read: {only}"),
        all => {
            let mut names: Vec<String> = all.iter().map(name).collect();
            names.dedup();
            let more = names.len().saturating_sub(MAX_NAMED);
            format!(
                "{} problems with manifests or objects: {}",
                all.len(),
                list(names, more).join(", ")
            )
        }
    }
}

/// Describes changes by failover.
pub(super) fn failover(changes: &[String]) -> String {
    if changes.is_empty() {
        return "other backends are failing".to_owned();
    }
    list(changes, changes.len().saturating_sub(MAX_NAMED)).join("; ")
}

/// Describes the first deviations.
pub(super) fn drift(drift: &BTreeSet<Drift>) -> String {
    list(drift, drift.len().saturating_sub(MAX_NAMED)).join("; ")
}

/// The first names, and how many more there are.
fn list(names: impl IntoIterator<Item = impl Display>, more: usize) -> Vec<String> {
    let first = names
        .into_iter()
        .take(MAX_NAMED)
        .map(|name| name.to_string());
    first
        .chain((more > 0).then(|| format!("{more} more")))
        .collect()
}
