//! Warnings of objects that are used all the same: their fields have no effect, or another one than their author probably expects.
//! An object that cannot be used, or a part of it, is in the quarantine instead.

use std::collections::{BTreeMap, BTreeSet};

use contiv_store::Problem;
use jiff::Timestamp;
use serde::Serialize;
use tracing::{info, warn};

use super::{log_rate_limiter::LogRateLimiter, places::Places};
use crate::{decode::ValueStatus, message::Now};

/// The most entries in one list.
const MAX_LISTED: usize = 1000;

/// The warnings, until the objects are mended or deleted.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    places: Places,
    /// Of stored values, by full key as their source.
    values: BTreeMap<Problem, Timestamp>,
    /// Of manifests, found by the store itself.
    manifests: BTreeMap<Problem, Timestamp>,
    /// Of external workloads that no controller serves.
    workloads: BTreeMap<Problem, Timestamp>,
    log: LogRateLimiter,
}

/// A warning about an object that is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// Its place: a key or a file.
    pub source: String,
    /// The object, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The field, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The reason, and what to do.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
}

impl Warnings {
    /// None yet, for this store.
    pub(super) fn of_store(store: &str) -> Self {
        Self {
            places: Places::of_store(store),
            ..Self::default()
        }
    }

    /// Updates the warnings of values with these statuses. One that cannot be used keeps those of its last good state.
    pub(super) fn update_values(
        &mut self,
        statuses: &[ValueStatus],
        warnings: Vec<Problem>,
        now: Now,
    ) {
        if self.values.is_empty() && warnings.is_empty() {
            return;
        }
        let keys = statuses.iter().filter_map(|status| match status {
            ValueStatus::Good(key) => Some(key.as_str()),
            ValueStatus::Partly(bad) => Some(bad.key.as_str()),
            ValueStatus::Bad(_) | ValueStatus::Superseded => None,
        });
        let keys: BTreeSet<&str> = keys.collect();
        let before: Vec<Problem> = keys
            .iter()
            .flat_map(|key| of_source(&self.values, key))
            .cloned()
            .collect();
        let changes = replace(&mut self.values, before, warnings, now);
        self.log(&changes, now);
    }

    /// Replaces those of all values, except those with one of the keys `kept`.
    pub(super) fn replace_values(
        &mut self,
        warnings: Vec<Problem>,
        kept: &BTreeSet<String>,
        now: Now,
    ) {
        let is_replaced = |warning: &&Problem| !kept.contains(&warning.source);
        let before: Vec<Problem> = self.values.keys().filter(is_replaced).cloned().collect();
        let changes = replace(&mut self.values, before, warnings, now);
        self.log(&changes, now);
    }

    /// Replaces those of the store itself. True if that changed any.
    pub(super) fn replace_manifests(&mut self, warnings: Vec<Problem>, now: Now) -> bool {
        let changes = replace_all(&mut self.manifests, warnings, now);
        self.log(&changes, now);
        !(changes.new.is_empty() && changes.gone.is_empty())
    }

    /// Replaces those of external workloads.
    pub(super) fn replace_workloads(&mut self, warnings: Vec<Problem>, now: Now) {
        let changes = replace_all(&mut self.workloads, warnings, now);
        self.log(&changes, now);
    }

    fn log(&mut self, Changes { new, gone }: &Changes, now: Now) {
        for (problems, is_new) in [(gone, false), (new, true)] {
            for problem in problems.iter().take_while(|_| self.log.allow(now.instant)) {
                let Problem {
                    source,
                    object,
                    field,
                    reason,
                    ..
                } = self.places.shown_problem(problem);
                if is_new {
                    warn!(
                        source,
                        object,
                        field,
                        reason,
                        "a warning about an object that is used all the same"
                    );
                } else {
                    info!(source, object, field, "a warning is no longer due");
                }
            }
        }
    }

    /// The number of warnings.
    pub(super) fn len(&self) -> usize {
        self.values.len() + self.manifests.len() + self.workloads.len()
    }

    /// The warnings, [`MAX_LISTED`] at most, without the first `skip`.
    pub(super) fn list(&self, skip: usize) -> Vec<Warning> {
        let shown = |(warning, since): (&Problem, &Timestamp)| {
            let Problem {
                source,
                object,
                field,
                reason,
                ..
            } = self.places.shown_problem(warning);
            Warning {
                source,
                object,
                field,
                reason,
                since: *since,
            }
        };
        let all = self
            .values
            .iter()
            .chain(&self.manifests)
            .chain(&self.workloads);
        all.skip(skip).take(MAX_LISTED).map(shown).collect()
    }
}

/// Warnings that were added, and those that were removed.
struct Changes {
    new: Vec<Problem>,
    gone: Vec<Problem>,
}

/// The warnings of one source. They are beside each other.
fn of_source<'a>(
    warnings: &'a BTreeMap<Problem, Timestamp>,
    source: &'a str,
) -> impl Iterator<Item = &'a Problem> {
    let first = Problem {
        source: source.to_owned(),
        object: None,
        field: None,
        reason: String::new(),
        is_warning: false,
    };
    warnings
        .range(first..)
        .map(|(warning, _)| warning)
        .take_while(move |warning| warning.source == source)
}

/// Replaces all warnings. Those that stay keep their time.
fn replace_all(
    warnings: &mut BTreeMap<Problem, Timestamp>,
    with: Vec<Problem>,
    now: Now,
) -> Changes {
    let before = warnings.keys().cloned().collect();
    replace(warnings, before, with, now)
}

/// Replaces the warnings `before`. Those that stay keep their time.
fn replace(
    warnings: &mut BTreeMap<Problem, Timestamp>,
    before: Vec<Problem>,
    with: Vec<Problem>,
    now: Now,
) -> Changes {
    let with: BTreeSet<Problem> = with.into_iter().collect();
    let gone: Vec<Problem> = before
        .into_iter()
        .filter(|warning| !with.contains(warning))
        .collect();
    for warning in &gone {
        warnings.remove(warning);
    }
    let new: Vec<Problem> = with
        .into_iter()
        .filter(|warning| !warnings.contains_key(warning))
        .collect();
    warnings.extend(new.iter().map(|warning| (warning.clone(), now.time)));
    Changes { new, gone }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logged::logged;

    fn warning(field: &str) -> Problem {
        Problem {
            source: "/a".to_owned(),
            object: None,
            field: Some(field.to_owned()),
            reason: "r".to_owned(),
            is_warning: true,
        }
    }

    /// By each way in which they come.
    #[test]
    fn warning_is_logged_when_it_comes_and_when_it_goes() {
        let now = Now {
            instant: std::time::Instant::now(),
            time: Timestamp::UNIX_EPOCH,
            random: 0.0,
        };
        let replace: [fn(&mut Warnings, Vec<Problem>, Now); 4] = [
            |all, warnings, now| {
                all.update_values(&[ValueStatus::Good("/a".to_owned())], warnings, now);
            },
            |all, warnings, now| all.replace_values(warnings, &BTreeSet::new(), now),
            |all, warnings, now| {
                all.replace_manifests(warnings, now);
            },
            |all, warnings, now| all.replace_workloads(warnings, now),
        ];
        for replace in replace {
            let mut warnings = Warnings::of_store("dir:/manifests");
            for (fields, expected) in [
                (&["f", "g"][..], &["WARN", "WARN"][..]),
                (&["f", "g"], &[]),
                (&["g", "h"], &["INFO", "WARN"]),
                (&[], &["INFO", "INFO"]),
            ] {
                let all = fields.iter().copied().map(warning).collect();
                let lines = logged(|| replace(&mut warnings, all, now));
                assert_eq!(lines.len(), expected.len(), "{lines:?}");
                for (line, level) in lines.iter().zip(expected) {
                    assert!(line.contains(level), "{lines:?}");
                }
                assert_eq!(warnings.len(), fields.len());
            }
        }
    }

    #[test]
    fn warning_that_stays_keeps_its_time_until_it_is_gone() {
        let mut warnings = Warnings::of_store("dir:/manifests");
        for (second, fields, expected) in [
            (1, &["f"][..], &[("f", 1)][..]),
            (2, &["f", "g"], &[("f", 1), ("g", 2)]),
            (3, &["g"], &[("g", 2)]),
            (4, &["f", "g"], &[("f", 4), ("g", 2)]),
        ] {
            let time = Timestamp::from_second(second).unwrap();
            let now = Now {
                instant: std::time::Instant::now(),
                time,
                random: 0.0,
            };
            warnings.replace_manifests(fields.iter().copied().map(warning).collect(), now);
            let listed = warnings.list(0);
            let times: Vec<(&str, i64)> = listed
                .iter()
                .map(|warning| (warning.field.as_deref().unwrap(), warning.since.as_second()))
                .collect();
            assert_eq!(times, expected);
        }
    }

    #[test]
    fn warnings_of_a_source_are_found_among_similar_ones() {
        let warning = |source: &str, field: Option<&str>| Problem {
            source: source.to_owned(),
            object: Some("Service".to_owned()),
            field: field.map(str::to_owned),
            reason: "r".to_owned(),
            is_warning: true,
        };
        let all = [
            warning("/a", None),
            warning("/b", None),
            warning("/b", Some("f")),
            warning("/b1", None),
        ];
        let warnings: BTreeMap<Problem, Timestamp> = all
            .iter()
            .map(|warning| (warning.clone(), Timestamp::UNIX_EPOCH))
            .collect();
        assert_eq!(
            of_source(&warnings, "/b").collect::<Vec<_>>(),
            [&all[1], &all[2]]
        );
        assert_eq!(
            of_source(&warnings, "/").count() + of_source(&warnings, "/c").count(),
            0
        );
    }
}
