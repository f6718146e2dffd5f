//! Maps revisions to the versions of each type.

use std::collections::{BTreeMap, VecDeque};

use contiv_proto::Kind;
use parking_lot::Mutex;

use crate::{Problem, StoreError};

/// The API server's `resourceVersion` of each type.
pub(super) type Versions = BTreeMap<Kind, String>;

/// How many revisions of one prefix are remembered. A watch begins at the end of the previous one, or a change or two earlier.
const MAX_REVISIONS: usize = 16;

/// The progress of lists and watches.
#[derive(Debug, Default)]
pub(super) struct WatchProgress(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    newest: i64,
    /// The newest known version of each type: a list must not be older.
    reached: Versions,
    prefixes: BTreeMap<String, PrefixProgress>,
}

/// The progress of one prefix.
#[derive(Debug, Default)]
struct PrefixProgress {
    /// The newest last.
    revisions: VecDeque<(i64, Versions)>,
    /// Unusable objects, by key.
    problems: BTreeMap<String, Vec<Problem>>,
    /// The revision of the last list, until it is watched.
    listed: Option<i64>,
}

impl WatchProgress {
    /// Progress after a run that has reached these versions.
    pub(super) fn after(reached: Versions) -> Self {
        Self(Mutex::new(State {
            reached,
            ..State::default()
        }))
    }

    /// The newest known version of each type.
    pub(super) fn reached(&self) -> Versions {
        self.0.lock().reached.clone()
    }

    /// Forgets the known versions: the API server has another history.
    pub(super) fn forget_reached(&self) {
        self.0.lock().reached.clear();
    }

    /// A new revision for a list.
    pub(super) fn begin(&self, prefix: &str, versions: Versions, problems: &[Problem]) -> i64 {
        let mut state = self.0.lock();
        let known = state.prefixes.entry(prefix.to_owned()).or_default();
        known.problems.clear();
        for problem in problems {
            known
                .problems
                .entry(problem.source.clone())
                .or_default()
                .push(problem.clone());
        }
        let revision = state.push(prefix, versions);
        state.prefixes.entry(prefix.to_owned()).or_default().listed = Some(revision);
        revision
    }

    /// True if the revision of the last list is watched for the first time.
    pub(super) fn is_just_listed(&self, prefix: &str, revision: i64) -> bool {
        let mut state = self.0.lock();
        let known = state.prefixes.get_mut(prefix);
        known.is_some_and(|known| known.listed.take() == Some(revision))
    }

    /// A new revision for changes, with the complete list of problems if there are new ones: `problems_by_key` has each changed key with
    /// its problems.
    pub(super) fn advance(
        &self,
        prefix: &str,
        versions: Versions,
        problems_by_key: Vec<(String, Vec<Problem>)>,
    ) -> (i64, Option<Vec<Problem>>) {
        let mut state = self.0.lock();
        let known = state.prefixes.entry(prefix.to_owned()).or_default();
        let is_worse = problems_by_key
            .iter()
            .any(|(_, problems)| !problems.is_empty());
        for (key, problems) in problems_by_key {
            if problems.is_empty() {
                known.problems.remove(&key);
            } else {
                known.problems.insert(key, problems);
            }
        }
        let problems = is_worse.then(|| known.problems.values().flatten().cloned().collect());
        (state.push(prefix, versions), problems)
    }

    /// The versions of a revision of this prefix.
    ///
    /// # Errors
    /// When it is no longer remembered: list again.
    pub(super) fn versions(&self, prefix: &str, revision: i64) -> Result<Versions, StoreError> {
        let state = self.0.lock();
        let remembered = state.prefixes.get(prefix).map(|known| &known.revisions);
        let found = remembered.and_then(|all| all.iter().find(|(of, _)| *of == revision));
        found
            .map(|(_, versions)| versions.clone())
            .ok_or(StoreError::Compacted {
                requested: revision,
                oldest: remembered
                    .and_then(|all| all.front())
                    .map_or(state.newest, |(of, _)| *of),
            })
    }
}

impl State {
    fn push(&mut self, prefix: &str, versions: Versions) -> i64 {
        self.newest += 1;
        self.reached.extend(versions.clone());
        let known = self.prefixes.entry(prefix.to_owned()).or_default();
        if known.revisions.len() == MAX_REVISIONS {
            known.revisions.pop_front();
        }
        known.revisions.push_back((self.newest, versions));
        self.newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(version: &str) -> Versions {
        Versions::from([(Kind::Pod, version.to_owned())])
    }

    fn problem(key: &str) -> Problem {
        Problem {
            source: key.to_owned(),
            object: None,
            field: None,
            reason: "bad".to_owned(),
            is_warning: false,
        }
    }

    #[test]
    fn busy_prefix_does_not_make_revisions_of_quiet_one_forgotten() {
        let progress = WatchProgress::default();
        let quiet = progress.begin("/quiet/", versions("7"), &[]);
        for i in 0..100 {
            progress.advance("/busy/", versions(&i.to_string()), Vec::new());
        }
        assert_eq!(progress.versions("/quiet/", quiet).unwrap(), versions("7"));
        assert!(matches!(
            progress.versions("/busy/", quiet + 1),
            Err(StoreError::Compacted { .. })
        ));
    }

    #[test]
    fn problems_are_reported_together_when_one_is_new() {
        let progress = WatchProgress::default();
        progress.begin("/", versions("1"), &[problem("/a")]);
        let (_, problems) = progress.advance(
            "/",
            versions("2"),
            vec![("/b".to_owned(), vec![problem("/b")])],
        );
        assert_eq!(problems.unwrap(), [problem("/a"), problem("/b")]);
        let (_, problems) =
            progress.advance("/", versions("3"), vec![("/a".to_owned(), Vec::new())]);
        assert_eq!(
            problems, None,
            "the reader drops the problems of a key that changed"
        );
        let (_, problems) = progress.advance(
            "/",
            versions("4"),
            vec![("/c".to_owned(), vec![problem("/c")])],
        );
        assert_eq!(problems.unwrap(), [problem("/b"), problem("/c")]);
    }
}
