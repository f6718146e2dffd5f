//! What is in the store and cannot be used. What was known of it before stays in force.

use std::collections::{BTreeMap, BTreeSet};

use contiv_model::ObjectKey;
use contiv_store::Problem;
use jiff::Timestamp;
use serde::Serialize;
use tracing::{info, warn};

use super::intake::{BadValue, Verdict};

/// How many new values of one event are logged one by one.
const LOGGED: usize = 10;

/// Values and manifests that cannot be used, until they are good or gone.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    /// By full key.
    values: BTreeMap<String, BadEntry>,
    /// What the store itself could not read, and since when.
    problems: BTreeMap<Problem, Timestamp>,
}

#[derive(Debug)]
struct BadEntry {
    object: Option<ObjectKey>,
    reason: String,
    since: Timestamp,
}

/// One thing that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Quarantined {
    /// Where it is: a key, or a file.
    pub source: String,
    /// Which object, where that can be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Which field, where that can be told apart from the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What is wrong.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
    /// What is used meanwhile: `last good` or `nothing`. None where the object cannot be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_force: Option<&'static str>,
}

impl Quarantine {
    /// Takes in whether values can be used, in order.
    pub(super) fn judge(&mut self, verdicts: Vec<Verdict>, now: Timestamp) {
        let mut news = Vec::new();
        for verdict in verdicts {
            match verdict {
                Verdict::Bad(bad) => news.extend(self.insert(bad, now)),
                Verdict::Good(key) => self.remove(&key),
            }
        }
        self.announce(&news);
    }

    /// Makes these the only values.
    pub(super) fn replace_values(&mut self, bad: Vec<BadValue>, now: Timestamp) {
        let keys: BTreeSet<&String> = bad.iter().map(|bad| &bad.key).collect();
        let gone: Vec<String> = self.values.keys().filter(|key| !keys.contains(key)).cloned().collect();
        for key in &gone {
            self.remove(key);
        }
        let news: Vec<String> = bad.into_iter().filter_map(|bad| self.insert(bad, now)).collect();
        self.announce(&news);
    }

    /// Takes a value in. Its key, if it is new or wrong in another way than before.
    fn insert(&mut self, bad: BadValue, now: Timestamp) -> Option<String> {
        let BadValue { key, object, reason } = bad;
        let since = match self.values.get(&key) {
            Some(known) if known.reason == reason => return None,
            Some(known) => known.since,
            None => now,
        };
        self.values.insert(key.clone(), BadEntry { object, reason, since });
        Some(key)
    }

    /// Lets a value go: it is good, or gone.
    fn remove(&mut self, key: &str) {
        if self.values.remove(key).is_some() {
            info!(key, "left the quarantine");
        }
    }

    /// Logs what is new: the first few, and how many more there are.
    fn announce(&self, keys: &[String]) {
        for (key, entry) in keys.iter().filter_map(|key| self.values.get_key_value(key)).take(LOGGED) {
            let reason = &entry.reason;
            warn!(key, reason, "a stored value cannot be used; what was known of it before stays in force");
        }
        if keys.len() > LOGGED {
            warn!(
                more = keys.len() - LOGGED,
                "more stored values that cannot be used; GET /quarantine lists all"
            );
        }
    }

    /// Makes these the only problems of the store itself.
    pub(super) fn replace_problems(&mut self, problems: Vec<Problem>, now: Timestamp) {
        let before = std::mem::take(&mut self.problems);
        for problem in problems {
            let since = before.get(&problem).copied();
            if since.is_none() {
                warn!(%problem, "a manifest cannot be used; what was known of it before stays in force");
            }
            self.problems.insert(problem, since.unwrap_or(now));
        }
        for problem in before.keys().filter(|problem| !self.problems.contains_key(problem)) {
            info!(source = problem.source, object = problem.object, "left the quarantine");
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.values.len() + self.problems.len()
    }

    /// Everything in it. `is_known` tells whether something of an object is in force.
    pub(super) fn list(&self, is_known: impl Fn(&ObjectKey) -> bool) -> Vec<Quarantined> {
        let in_force = |object: &ObjectKey| if is_known(object) { "last good" } else { "nothing" };
        let values = self.values.iter().map(|(key, BadEntry { object, reason, since })| Quarantined {
            source: key.clone(),
            object: object.as_ref().map(ToString::to_string),
            field: None,
            reason: reason.clone(),
            since: *since,
            in_force: object.as_ref().map(in_force),
        });
        let problems = self.problems.iter().map(|(problem, since)| Quarantined {
            source: problem.source.clone(),
            object: problem.object.clone(),
            field: problem.field.clone(),
            reason: problem.reason.clone(),
            since: *since,
            in_force: problem.object.as_deref().and_then(object_of).as_ref().map(in_force),
        });
        values.chain(problems).collect()
    }
}

/// The object that a problem is about, of its title: `Service default/web`, `Node n1`.
fn object_of(title: &str) -> Option<ObjectKey> {
    let (kind, id) = title.split_once(' ')?;
    let (namespace, name) = id.split_once('/').unwrap_or(("", id));
    let key = contiv_proto::Key::new(kind.parse().ok()?, namespace, name).ok()?;
    contiv_model::wire::object_key(&key)
}

#[cfg(test)]
mod tests {
    use contiv_model::ServiceId;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn bad(key: &str, reason: &str) -> BadValue {
        let object = Some(ObjectKey::Service(ServiceId::new("default", key)));
        BadValue { key: key.to_owned(), object, reason: reason.to_owned() }
    }

    fn problem(reason: &str) -> Problem {
        let object = Some("Service default/web".to_owned());
        Problem { source: "a.yaml".to_owned(), object, field: None, reason: reason.to_owned() }
    }

    fn brief(quarantine: &Quarantine) -> Vec<(String, i64, &'static str)> {
        let listed = quarantine.list(|object| object.to_string().ends_with("web"));
        listed
            .into_iter()
            .map(|entry| (entry.source, entry.since.as_second(), entry.in_force.unwrap_or("")))
            .collect()
    }

    #[test]
    fn a_value_keeps_its_time_until_it_is_good_or_gone() {
        let mut quarantine = Quarantine::default();
        for (second, key, reason) in [(1, "web", "one"), (2, "web", "two"), (3, "db", "one")] {
            quarantine.judge(vec![Verdict::Bad(bad(key, reason))], at(second));
        }
        assert_eq!(brief(&quarantine), [("db".into(), 3, "nothing"), ("web".into(), 1, "last good")]);
        assert_eq!(quarantine.list(|_| true)[1].reason, "two");
        quarantine.judge(vec![Verdict::Good("web".to_owned())], at(4));
        assert_eq!(quarantine.len(), 1);
    }

    #[test]
    fn of_several_values_of_one_key_the_last_counts() {
        let mut quarantine = Quarantine::default();
        let good = || Verdict::Good("web".to_owned());
        quarantine.judge(vec![good(), Verdict::Bad(bad("web", "one"))], at(1));
        assert_eq!(quarantine.len(), 1);
        quarantine.judge(vec![Verdict::Bad(bad("web", "two")), good()], at(2));
        assert_eq!(quarantine.len(), 0);
    }

    #[test]
    fn a_snapshot_says_which_values_are_still_bad_and_since_when_they_were() {
        let mut quarantine = Quarantine::default();
        quarantine.replace_values(vec![bad("web", "one"), bad("db", "one")], at(1));
        quarantine.replace_values(vec![bad("web", "one"), bad("api", "one")], at(2));
        assert_eq!(brief(&quarantine), [("api".into(), 2, "nothing"), ("web".into(), 1, "last good")]);
    }

    #[test]
    fn problems_of_manifests_are_in_it_too_and_name_what_is_in_force() {
        let mut quarantine = Quarantine::default();
        quarantine.replace_problems(vec![problem("one")], at(1));
        quarantine.replace_problems(vec![problem("one"), problem("two")], at(2));
        let expected = [("a.yaml".to_owned(), 1, "last good"), ("a.yaml".to_owned(), 2, "last good")];
        assert_eq!(brief(&quarantine), expected);
        quarantine.replace_problems(Vec::new(), at(3));
        assert_eq!(quarantine.len(), 0);
    }

    #[test]
    fn the_titles_of_problems_name_objects() {
        let named = |title| object_of(title).map(|object| object.to_string());
        assert_eq!(named("EndpointSlice a/b"), Some("endpointslice a/b".to_owned()));
        assert_eq!(named("Node n1"), Some("node n1".to_owned()));
        assert_eq!(named("ServiceList"), None);
        assert_eq!(named("ConfigMap a/b"), None);
    }
}
