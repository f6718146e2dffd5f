//! Objects in the store that the agent or a renderer cannot use.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use contiv_model::{ObjectKey, ServiceId, change::ServiceChange, trace::RejectReason, wire};
use contiv_renderer::Rejected;
use contiv_store::Problem;
use jiff::Timestamp;
use serde::Serialize;
use tracing::{info, warn};

use super::{log_rate_limiter::LogRateLimiter, places::Places};
use crate::{
    decode::{BadValue, ValueStatus},
    message::Now,
};

/// The most entries in one list: a store can have hundreds of thousands of invalid values, and the core makes the list.
const MAX_LISTED: usize = 1000;

/// The reason of a service that has backends and refuses all connections, as `contiv trace` gives it.
const OTHER_FAMILY: RejectReason = RejectReason::BackendsOfOtherFamily;

/// Unusable values and manifests, until they are repaired or deleted.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    places: Places,
    /// By full key.
    values: BTreeMap<String, BadEntry>,
    /// The problems of the store itself, with their times.
    problems: BTreeMap<Problem, Timestamp>,
    /// Services that a renderer could not render, by the renderer's name.
    rejected: BTreeMap<(Arc<str>, ServiceId), (Rejected, Timestamp)>,
    /// Services all of whose backends are of another address family.
    of_other_family: BTreeMap<ServiceId, Timestamp>,
    log: LogRateLimiter,
}

#[derive(Debug)]
struct BadEntry {
    object: Option<ObjectKey>,
    reason: String,
    is_used: bool,
    /// Whether the store itself reports the problem, which is logged then.
    is_reported_by_store: bool,
    since: Timestamp,
}

/// An entry of the quarantine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Quarantined {
    /// Its place: a key, a file, or `renderer NAME` for an object that this renderer cannot use.
    pub source: String,
    /// The object, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The field, if it is separate from the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The reason.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
    /// The state in use meanwhile: `last good`, `nothing`, or `the rest` of the object. None if the object is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_state: Option<&'static str>,
}

impl Quarantine {
    /// An empty quarantine for this store.
    pub(super) fn of_store(store: &str) -> Self {
        Self {
            places: Places::of_store(store),
            ..Self::default()
        }
    }

    /// Whether the store itself reports a problem with the value of this key.
    fn has_problem_of(&self, key: &str) -> bool {
        let first = Problem {
            source: key.to_owned(),
            object: None,
            field: None,
            reason: String::new(),
            is_warning: false,
        };
        self.problems
            .range(first..)
            .next()
            .is_some_and(|(problem, _)| problem.source == key)
    }

    /// Updates the quarantine with the status of values, in order.
    pub(super) fn update_values(&mut self, statuses: Vec<ValueStatus>, now: Now) {
        for status in statuses {
            match status {
                ValueStatus::Bad(bad) | ValueStatus::Partly(bad) => self.insert(bad, now),
                ValueStatus::Good(key) => self.remove(&key, now),
                ValueStatus::Superseded => {}
            }
        }
    }

    /// Replaces all values.
    pub(super) fn replace_values(&mut self, bad: Vec<BadValue>, now: Now) {
        let keys: BTreeSet<&String> = bad.iter().map(|bad| &bad.key).collect();
        let gone: Vec<String> = self
            .values
            .keys()
            .filter(|key| !keys.contains(key))
            .cloned()
            .collect();
        for key in &gone {
            self.remove(key, now);
        }
        for bad in bad {
            self.insert(bad, now);
        }
    }

    /// Adds a value, and logs it if it is new or changed.
    fn insert(&mut self, bad: BadValue, now: Now) {
        let BadValue {
            key,
            object,
            reason,
            is_used,
            is_empty,
        } = bad;
        let known = self.values.get(&key);
        if known.is_some_and(|known| known.reason == reason) {
            return;
        }
        let since = known.map_or(now.time, |known| known.since);
        let is_reported_by_store = self.places.is_of_api_server && is_empty;
        if !is_reported_by_store && self.log.allow(now.instant) {
            let object = object.as_ref().map(ToString::to_string);
            let message = if is_used {
                "a part of a stored value cannot be used; the rest is active"
            } else {
                "a stored value cannot be used; its last good state stays active"
            };
            warn!(
                source = self.places.shown(&key, object.as_ref()),
                object, reason, "{message}"
            );
        }
        self.values.insert(
            key,
            BadEntry {
                object,
                reason,
                is_used,
                is_reported_by_store,
                since,
            },
        );
    }

    /// Removes a value that was repaired or deleted.
    fn remove(&mut self, key: &str, now: Now) {
        let Some(BadEntry {
            object,
            is_reported_by_store,
            ..
        }) = self.values.remove(key)
        else {
            return;
        };
        if !is_reported_by_store && self.log.allow(now.instant) {
            let object = object.map(|object| object.to_string());
            info!(
                source = self.places.shown(key, object.as_ref()),
                object, "left the quarantine"
            );
        }
    }

    /// Replaces the problems of the store itself. True if that changed any.
    pub(super) fn replace_problems(&mut self, problems: Vec<Problem>, now: Now) -> bool {
        let before = std::mem::take(&mut self.problems);
        for problem in problems {
            let since = before.get(&problem).copied();
            if since.is_none() && self.log.allow(now.instant) {
                let problem = self.places.shown_problem(&problem);
                warn!(%problem, "a manifest cannot be used; its last good state stays active");
            }
            self.problems.insert(problem, since.unwrap_or(now.time));
        }
        for problem in before
            .keys()
            .filter(|problem| !self.problems.contains_key(problem))
        {
            if self.log.allow(now.instant) {
                let Problem { source, object, .. } = self.places.shown_problem(problem);
                info!(source, object, "left the quarantine");
            }
        }
        !before.keys().eq(self.problems.keys())
    }

    /// Replaces the services that a renderer could not render.
    pub(super) fn replace_rejected(
        &mut self,
        renderer: &Arc<str>,
        rejected: &[Rejected],
        now: Now,
    ) {
        let is_still = |id: &ServiceId| rejected.iter().any(|rejected| rejected.service == *id);
        self.rejected.retain(|(by, id), _| {
            let stays = by != renderer || is_still(id);
            if !stays && self.log.allow(now.instant) {
                info!(renderer = &**by, service = %id, "left the quarantine");
            }
            stays
        });
        for rejected in rejected {
            let key = (Arc::clone(renderer), rejected.service.clone());
            let known = self.rejected.get(&key);
            if known.is_none_or(|(known, _)| known.reason != rejected.reason)
                && self.log.allow(now.instant)
            {
                let Rejected {
                    service,
                    reason,
                    active_state,
                } = rejected;
                warn!(renderer = &**renderer, %service, reason, active_state, "a service cannot be rendered");
            }
            let since = known.map_or(now.time, |(_, since)| *since);
            self.rejected.insert(key, (rejected.clone(), since));
        }
    }

    /// Updates the services all of whose backends are of another address family.
    pub(super) fn update_services(
        &mut self,
        changes: &BTreeMap<ServiceId, ServiceChange>,
        now: Now,
    ) {
        for (id, change) in changes {
            let is_affected = change
                .new
                .as_ref()
                .is_some_and(|service| service.has_only_backends_of_other_family());
            let is_changed = is_affected != self.of_other_family.contains_key(id);
            if is_affected && is_changed {
                self.of_other_family.insert(id.clone(), now.time);
            } else if is_changed {
                self.of_other_family.remove(id);
            }
            if is_changed && self.log.allow(now.instant) {
                if is_affected {
                    warn!(service = %id, reason = %OTHER_FAMILY, "a service refuses all connections");
                } else {
                    info!(service = %id, "left the quarantine");
                }
            }
        }
    }

    /// The values without a problem of the store itself.
    fn undecodable_values(&self) -> impl Iterator<Item = (&String, &BadEntry)> {
        self.values
            .iter()
            .filter(|(key, _)| !self.has_problem_of(key))
    }

    /// The number of entries. A value that has a problem too is counted and listed only as that.
    pub(super) fn len(&self) -> usize {
        let sources: BTreeSet<&String> = self
            .problems
            .keys()
            .map(|problem| &problem.source)
            .collect();
        let with_problem = sources
            .into_iter()
            .filter(|source| self.values.contains_key(*source))
            .count();
        self.values.len() - with_problem
            + self.problems.len()
            + self.rejected.len()
            + self.of_other_family.len()
    }

    /// The entries, [`MAX_LISTED`] at most, without the first `skip`. `is_known` returns whether some state of an object is active.
    pub(super) fn list(
        &self,
        skip: usize,
        is_known: impl Fn(&ObjectKey) -> bool,
    ) -> Vec<Quarantined> {
        let values = self
            .undecodable_values()
            .map(|(key, entry)| self.bad_value(key, entry, &is_known));
        let problems = self
            .problems
            .iter()
            .map(|(problem, since)| self.problem(problem, *since, &is_known));
        let rejected = self.rejected.iter().map(rejected_service);
        let of_other_family = self.of_other_family.iter().map(|(id, since)| {
            let object = ObjectKey::Service(id.clone());
            let key = wire::stored_key(&object)
                .map(|key| key.to_path())
                .unwrap_or_default();
            let title = object.to_string();
            Quarantined {
                source: self.places.shown(&key, Some(&title)),
                object: Some(title),
                field: None,
                reason: OTHER_FAMILY.to_string(),
                since: *since,
                active_state: Some("the rest"),
            }
        });
        values
            .chain(problems)
            .chain(rejected)
            .chain(of_other_family)
            .skip(skip)
            .take(MAX_LISTED)
            .collect()
    }

    /// The first `count` entries of objects that are `relevant`, or unknown. Those that all backends of another family put there
    /// are left out.
    pub(super) fn concerning(
        &self,
        relevant: impl Fn(&ObjectKey) -> bool,
        is_known: impl Fn(&ObjectKey) -> bool,
        count: usize,
    ) -> Vec<Quarantined> {
        let values = self.undecodable_values();
        let values = values.filter(|(_, entry)| entry.object.as_ref().is_some_and(&relevant));
        let values = values.map(|(key, entry)| self.bad_value(key, entry, &is_known));
        // A file or folder that cannot be read may hold anything.
        let problems = self
            .problems
            .iter()
            .filter(|(problem, _)| match &problem.object {
                Some(object) => object_of(object).as_ref().is_some_and(&relevant),
                None => true,
            });
        let problems = problems.map(|(problem, since)| self.problem(problem, *since, &is_known));
        let rejected = self.rejected.iter();
        let rejected = rejected.filter(|((_, id), _)| relevant(&ObjectKey::Service(id.clone())));
        values
            .chain(problems)
            .chain(rejected.map(rejected_service))
            .take(count)
            .collect()
    }

    fn bad_value(
        &self,
        key: &str,
        entry: &BadEntry,
        is_known: impl Fn(&ObjectKey) -> bool,
    ) -> Quarantined {
        let BadEntry {
            object,
            reason,
            is_used,
            since,
            ..
        } = entry;
        let title = object.as_ref().map(ToString::to_string);
        let state = |object: &ObjectKey| active_state(is_known(object));
        Quarantined {
            source: self.places.shown(key, title.as_ref()),
            object: title,
            field: None,
            reason: reason.clone(),
            since: *since,
            active_state: if *is_used {
                Some("the rest")
            } else {
                object.as_ref().map(state)
            },
        }
    }

    fn problem(
        &self,
        problem: &Problem,
        since: Timestamp,
        is_known: impl Fn(&ObjectKey) -> bool,
    ) -> Quarantined {
        let object = problem.object.as_deref().and_then(object_of);
        Quarantined {
            source: self.places.shown(&problem.source, problem.object.as_ref()),
            object: problem.object.clone(),
            field: problem.field.clone(),
            reason: problem.reason.clone(),
            since,
            active_state: object.map(|object| active_state(is_known(&object))),
        }
    }
}

/// The state in use of an object that cannot be used as it is stored.
const fn active_state(is_known: bool) -> &'static str {
    if is_known { "last good" } else { "nothing" }
}

fn rejected_service(
    ((renderer, id), (rejected, since)): (&(Arc<str>, ServiceId), &(Rejected, Timestamp)),
) -> Quarantined {
    Quarantined {
        source: format!("renderer {renderer}"),
        object: Some(ObjectKey::Service(id.clone()).to_string()),
        field: None,
        reason: rejected.reason.clone(),
        since: *since,
        active_state: Some(rejected.active_state),
    }
}

/// The object of a problem, from its title: `Service default/web`, `Node n1`.
fn object_of(title: &str) -> Option<ObjectKey> {
    let (kind, id) = title.split_once(' ')?;
    let (namespace, name) = id.split_once('/').unwrap_or(("", id));
    let key = contiv_proto::Key::new(kind.parse().ok()?, namespace, name).ok()?;
    contiv_model::wire::object_key(&key)
}

#[cfg(test)]
mod tests;
