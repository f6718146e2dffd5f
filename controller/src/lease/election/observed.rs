//! The election's key as observed. Pure.

use contiv_store::{Change, Entry, FeedEvent};

/// The last known state of the key of an election.
#[derive(Debug)]
pub(super) struct ObservedKey {
    key: String,
    /// The key's entry as of `revision`.
    entry: Option<Entry>,
    /// None before the first list.
    revision: Option<i64>,
}

impl ObservedKey {
    pub(super) fn new(key: &str) -> Self {
        Self {
            key: key.to_owned(),
            entry: None,
            revision: None,
        }
    }

    pub(super) fn on_event(&mut self, event: FeedEvent) {
        match event {
            FeedEvent::Snapshot(snapshot) => {
                // The feed watches a prefix, and other keys may begin with this one.
                self.entry = snapshot
                    .entries
                    .into_iter()
                    .find(|entry| entry.key == self.key);
                self.revision = Some(snapshot.revision);
            }
            FeedEvent::Changed(batch) => {
                for change in batch.changes {
                    match change {
                        Change::Put(entry) if entry.key == self.key => self.entry = Some(entry),
                        Change::Delete { key } if key == self.key => self.entry = None,
                        Change::Put(_) | Change::Delete { .. } => {}
                    }
                }
                self.revision = Some(batch.revision);
            }
            FeedEvent::Problems(_)
            | FeedEvent::Down { .. }
            | FeedEvent::Replaced { .. }
            | FeedEvent::Inconsistent { .. }
            | FeedEvent::Up
            | FeedEvent::Resumed { .. }
            | FeedEvent::Progress { .. }
            | FeedEvent::List(_) => {}
        }
    }

    /// Whether the key is known not to exist.
    pub(super) fn is_absent(&self) -> bool {
        self.revision.is_some() && self.entry.is_none()
    }

    /// The revision at which the key was created, if it has this value.
    pub(super) fn create_revision_of(&self, value: &str) -> Option<i64> {
        let entry = self
            .entry
            .as_ref()
            .filter(|entry| entry.value == value.as_bytes())?;
        Some(entry.create_revision)
    }

    /// Whether the key created at this revision is gone. Observations from before that revision do not count.
    pub(super) fn is_gone(&self, create_revision: i64) -> bool {
        self.revision
            .is_some_and(|revision| revision >= create_revision)
            && self
                .entry
                .as_ref()
                .is_none_or(|entry| entry.create_revision != create_revision)
    }
}

#[cfg(test)]
mod tests {
    use contiv_store::{Batch, Snapshot};

    use super::*;

    fn put(revision: i64, key: &str) -> Change {
        let (create_revision, mod_revision) = (revision, revision);
        Change::Put(Entry {
            key: key.to_owned(),
            value: "me".into(),
            create_revision,
            mod_revision,
        })
    }

    #[test]
    fn observation_older_than_the_key_is_ignored() {
        let mut observed = ObservedKey::new("/e");
        observed.on_event(FeedEvent::Snapshot(Snapshot {
            revision: 4,
            ..Snapshot::default()
        }));
        assert!(observed.is_absent() && !observed.is_gone(5));
        let changes = vec![
            Change::Delete {
                key: "/e".to_owned(),
            },
            put(5, "/e"),
        ];
        observed.on_event(FeedEvent::Changed(Batch {
            revision: 5,
            changes,
        }));
        assert!(!observed.is_gone(5));
        assert_eq!(
            (
                observed.create_revision_of("me"),
                observed.create_revision_of("you")
            ),
            (Some(5), None)
        );
        observed.on_event(FeedEvent::Changed(Batch {
            revision: 9,
            changes: vec![put(9, "/e")],
        }));
        assert!(observed.is_gone(5), "it is another one now");
    }

    /// By a list and by changes, with the other key before and after it.
    #[test]
    fn keys_with_a_common_prefix_are_different() {
        let entry = |(revision, key)| match put(revision, key) {
            Change::Put(entry) => entry,
            Change::Delete { .. } => unreachable!(),
        };
        for (keys, revision) in [
            (vec![(2, "/e2")], None),
            (vec![(2, "/e2"), (3, "/e")], Some(3)),
            (vec![(2, "/e"), (3, "/e2")], Some(2)),
        ] {
            let entries = keys.iter().copied().map(entry).collect();
            let changes = keys
                .iter()
                .map(|&(revision, key)| put(revision, key))
                .collect();
            for events in [
                vec![FeedEvent::Snapshot(Snapshot {
                    revision: 3,
                    entries,
                    ..Snapshot::default()
                })],
                vec![
                    FeedEvent::Snapshot(Snapshot {
                        revision: 1,
                        ..Snapshot::default()
                    }),
                    FeedEvent::Changed(Batch {
                        revision: 3,
                        changes,
                    }),
                ],
            ] {
                let mut observed = ObservedKey::new("/e");
                for event in events {
                    observed.on_event(event);
                }
                assert_eq!(observed.create_revision_of("me"), revision, "{keys:?}");
                assert_eq!(observed.is_absent(), revision.is_none(), "{keys:?}");
            }
        }
    }
}
