//! The store's history of all writes, and who held the lease at each.

use std::time::Duration;

use contiv_store::{Change, Store, WatchEvent};
use futures::StreamExt;
use tokio::time::timeout;

use crate::contender::{BEAT, ELECTION, OUTPUT};

#[derive(Debug)]
pub(crate) struct History {
    changes: Vec<Change>,
    /// The revisions at which a process won the election.
    pub(crate) terms: Vec<i64>,
    pub(crate) writes: usize,
}

impl History {
    /// Everything from the beginning to `newest`, in the store's order.
    pub(crate) async fn read(store: &dyn Store, newest: i64) -> Self {
        let mut watch = store.watch("/", 0).await.unwrap();
        let mut history = Self {
            changes: Vec::new(),
            terms: Vec::new(),
            writes: 0,
        };
        loop {
            let event = timeout(Duration::from_secs(60), watch.next())
                .await
                .expect("the record ends early");
            let WatchEvent::Changed(batch) = event.unwrap().unwrap() else {
                continue;
            };
            history.changes.extend(batch.changes);
            if batch.revision >= newest {
                break;
            }
        }
        let won = |change: &Change| match change {
            Change::Put(entry) if entry.key == ELECTION => Some(entry.create_revision),
            Change::Put(_) | Change::Delete { .. } => None,
        };
        history.terms = history.changes.iter().filter_map(won).collect();
        history.writes = history
            .changes
            .iter()
            .filter(|change| is_ours(change))
            .count();
        history
    }

    /// Checks that each write was made by the process that held the lease at that revision, in the term it wrote.
    pub(crate) fn check(&self) {
        let mut holder: Option<(String, i64)> = None;
        for change in &self.changes {
            match change {
                Change::Put(entry) if entry.key == ELECTION => {
                    assert_eq!(holder, None, "won while another one held it");
                    let identity = word(&entry.value, 0);
                    holder = Some((identity, entry.create_revision));
                }
                Change::Delete { key } if key == ELECTION => holder = None,
                Change::Put(entry) if is_ours(change) => {
                    let writer = (
                        word(&entry.value, 0),
                        word(&entry.value, 1).parse().unwrap(),
                    );
                    assert_eq!(
                        Some(&writer),
                        holder.as_ref(),
                        "{} at {}",
                        entry.key,
                        entry.mod_revision
                    );
                }
                Change::Put(_) | Change::Delete { .. } => {}
            }
        }
    }
}

fn is_ours(change: &Change) -> bool {
    matches!(change, Change::Put(entry) if entry.key.starts_with(OUTPUT) || entry.key.starts_with(BEAT))
}

fn word(value: &[u8], index: usize) -> String {
    std::str::from_utf8(value)
        .unwrap()
        .split(' ')
        .nth(index)
        .unwrap()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use contiv_store::Entry;

    use super::*;

    fn put(key: &str, value: &str, revision: i64) -> Change {
        let (create_revision, mod_revision) = (revision, revision);
        Change::Put(Entry {
            key: key.to_owned(),
            value: value.to_owned().into(),
            create_revision,
            mod_revision,
        })
    }

    fn history(changes: &[Change]) -> History {
        History {
            changes: changes.to_vec(),
            terms: Vec::new(),
            writes: 0,
        }
    }

    #[test]
    fn proof_finds_write_by_anyone_but_holder_in_its_term() {
        let lost = Change::Delete {
            key: ELECTION.to_owned(),
        };
        let (won, output) = (put(ELECTION, "0 7f", 2), "/output/1");
        history(&[
            won.clone(),
            put(output, "0 2 a", 3),
            lost.clone(),
            put("/input/1", "a", 5),
        ])
        .check();
        for wrong in [
            vec![put(output, "0 2 a", 1), won.clone()],
            vec![won.clone(), lost.clone(), put(output, "0 2 a", 4)],
            vec![won.clone(), put(output, "1 2 a", 3)],
            vec![
                won.clone(),
                lost.clone(),
                put(ELECTION, "0 80", 4),
                put("/beat/2/1", "0 2 1", 5),
            ],
            vec![won.clone(), put(ELECTION, "1 81", 4)],
        ] {
            let found = std::panic::catch_unwind(|| history(&wrong).check()).is_err();
            assert!(found, "{wrong:?}");
        }
    }
}
