//! Checks that a cluster still has the history that a reader has watched.
//!
//! A cluster restored from a backup is not marked as such: its members, its name and so its id may be the same, and after some
//! writes its revision reaches that of the reader again. So a few keys are read at the revision of the reader.

use std::collections::BTreeSet;

use etcd_client::{GetOptions, GetResponse, Txn, TxnOp, TxnOpResponse, TxnResponse};

use super::{
    failure::{self, Failure},
    key_range::KeyRanges,
    list::entry,
    session::{MAX_RESPONSE_BYTES, Session},
};
use crate::{Change, Position, ResumePoint, StoreError, StoreIdentity, WrittenKey};

/// Fails if the store never had the reader's state: it was restored to an earlier revision, possibly with writes since; or if
/// it has compacted that revision.
///
/// One request; `newest` is the revision that the member just reported. All members agree on the result, so a member that lags
/// behind is not taken for a restored store.
pub(super) async fn confirm(
    session: &Session,
    keys: &KeyRanges,
    position: &Position,
    newest: i64,
) -> Result<Option<StoreIdentity>, Failure> {
    let (revision, prefix) = (position.revision(), &*keys.prefix);
    let operations = operations(keys, position);
    let past = Past {
        session,
        revision,
        newest,
        prefix,
    };
    let (identity, answers) = past.read(operations).await?;
    let mut answers = answers.into_iter();
    let mut next = || answers.next().ok_or_else(|| past.incomplete());
    for _ in keys.ranges.iter().filter(|_| position.is_empty()) {
        if next()?.count() > 0 {
            return Err(replaced(revision, prefix));
        }
    }
    for written in position.written() {
        if !is_same(&next()?, written) {
            return Err(replaced(revision, &written.key));
        }
    }
    for key in position.deleted() {
        if next()?.count() > 0 {
            return Err(replaced(revision, key));
        }
    }
    Ok(identity)
}

/// Fails if the store never had the state that was saved; or if it has compacted that revision. Returns the keys of which
/// something else was saved, and those that are selected one by one, as they were.
///
/// One request, beside that of [`confirm`]. The number of keys is counted, which takes etcd 45 ms of 200,000 keys: a deletion of
/// another history shows in nothing else, and much may happen while nobody watches.
pub(super) async fn confirm_saved(
    session: &Session,
    keys: &KeyRanges,
    point: &ResumePoint,
) -> Result<Vec<Change>, Failure> {
    let (revision, prefix) = (point.position.revision(), &*keys.prefix);
    let past = Past {
        session,
        revision,
        newest: 0,
        prefix,
    };
    // Another key may have been selected when the state was saved.
    let reads = &point.deviating | &keys.single_keys();
    let read = |key: &String| past.get(key);
    let operations = counts(keys, revision).chain(reads.iter().map(read));
    let (identity, mut counted) = past.read(operations.collect()).await?;
    if counted.len() < keys.ranges.len() {
        return Err(past.incomplete());
    }
    let answers = counted.split_off(keys.ranges.len());
    let count = counted.iter().map(GetResponse::count).sum();
    let changes = past.changes(&reads, answers)?;
    let is_too_large = |change: &Change| matches!(change, Change::Put(entry) if entry.value.len() > MAX_RESPONSE_BYTES);
    if changes.iter().any(is_too_large) {
        let limit = MAX_RESPONSE_BYTES;
        return Err(StoreError::TooLarge { limit }.into());
    }
    if is_saved_state(point, identity, count, &changes) {
        Ok(changes)
    } else {
        Err(replaced(revision, prefix))
    }
}

/// Reads what these keys had at a revision, in one request.
pub(super) async fn read_keys(
    session: Session,
    keys: &BTreeSet<String>,
    revision: i64,
) -> Result<Vec<Change>, Failure> {
    let past = Past {
        session: &session,
        revision,
        newest: revision - 1,
        prefix: "",
    };
    let read = |key: &String| past.get(key);
    let (_, answers) = past.read(keys.iter().map(read).collect()).await?;
    past.changes(keys, answers)
}

/// Whether this is what a reader had saved: the store says so of itself, and has so many keys.
fn is_saved_state(
    point: &ResumePoint,
    identity: Option<StoreIdentity>,
    count: i64,
    read: &[Change],
) -> bool {
    let is_same_cluster = match (point.identity, identity) {
        (Some(before), Some(now)) => now.follows(before),
        _ => true,
    };
    let is_deviating_there = |change: &&Change| matches!(change, Change::Put(entry) if point.deviating.contains(&entry.key));
    let there = read.iter().filter(is_deviating_there).count() as u64;
    is_same_cluster && u64::try_from(count) == Ok(point.keys + there)
}

/// A revision that a reader knows.
struct Past<'a> {
    session: &'a Session,
    revision: i64,
    /// The revision that the member has just reported.
    newest: i64,
    prefix: &'a str,
}

impl Past<'_> {
    /// Reads in one request what was there.
    async fn read(
        &self,
        operations: Vec<TxnOp>,
    ) -> Result<(Option<StoreIdentity>, Vec<GetResponse>), Failure> {
        let (session, requested) = (self.session, self.revision);
        let mut kv = session.kv();
        let answer = match session
            .answer(kv.txn(Txn::new().and_then(operations)))
            .await?
        {
            Ok(answer) => answer,
            Err(error) if failure::is_compacted(&error) => {
                let oldest = requested + 1;
                return Err(StoreError::Compacted { requested, oldest }.into());
            }
            Err(error) if failure::is_future(&error) => {
                let newest = self.newest;
                return Err(StoreError::Rewound { requested, newest }.into());
            }
            // The known values of these keys were small.
            Err(error) if failure::is_too_large(&error) => {
                return Err(replaced(requested, self.prefix));
            }
            Err(error) => return Err(session.failure("read what was there before", error)),
        };
        let is_read = |response| match response {
            TxnOpResponse::Get(answer) => Some(answer),
            _ => None,
        };
        let answers = answer.op_responses().into_iter().map_while(is_read);
        Ok((identity(&answer), answers.collect()))
    }

    /// Reads one key.
    fn get(&self, key: &str) -> TxnOp {
        TxnOp::get(key, Some(GetOptions::new().with_revision(self.revision)))
    }

    /// The answers about these keys, as changes that lead to what was there.
    fn changes(
        &self,
        keys: &BTreeSet<String>,
        answers: Vec<GetResponse>,
    ) -> Result<Vec<Change>, Failure> {
        if answers.len() != keys.len() {
            return Err(self.incomplete());
        }
        let change = |(key, mut answer): (&String, GetResponse)| {
            let found = answer.take_kvs().into_iter().next();
            let deleted = || Change::Delete { key: key.clone() };
            found.map_or_else(deleted, |pair| Change::Put(entry(pair)))
        };
        Ok(keys.iter().zip(answers).map(change).collect())
    }

    fn incomplete(&self) -> Failure {
        self.session
            .unavailable("an answer is incomplete".to_owned())
            .into()
    }
}

/// What a member says of its cluster.
fn identity(answer: &TxnResponse) -> Option<StoreIdentity> {
    let header = answer.header()?;
    let (cluster, term) = (header.cluster_id(), header.raft_term());
    (cluster > 0).then_some(StoreIdentity { cluster, term })
}

/// Counts the keys of each range.
fn counts(keys: &KeyRanges, revision: i64) -> impl Iterator<Item = TxnOp> {
    keys.ranges.iter().map(move |range| {
        let options = GetOptions::new().with_revision(revision);
        let options = options.with_range(&*range.end).with_count_only();
        TxnOp::get(&*range.from, Some(options))
    })
}

/// One operation for each known fact. None of them reads keys that the reader may not read.
fn operations(keys: &KeyRanges, position: &Position) -> Vec<TxnOp> {
    let options = || GetOptions::new().with_revision(position.revision());
    let count_of = |key: &[u8]| TxnOp::get(key, Some(options().with_count_only()));
    let all = position
        .is_empty()
        .then(|| counts(keys, position.revision()));
    let written = position.written().map(|written| {
        let options = if written.value.is_some() {
            options()
        } else {
            options().with_keys_only()
        };
        TxnOp::get(written.key.as_str(), Some(options))
    });
    let mut operations: Vec<TxnOp> = all.into_iter().flatten().collect();
    operations.extend(written);
    operations.extend(position.deleted().map(str::as_bytes).map(count_of));
    if operations.is_empty() {
        // It still shows whether the revision exists.
        let key = keys.ranges.iter().map(|range| &*range.from).take(1);
        operations.extend(key.map(count_of));
    }
    operations
}

fn is_same(answer: &GetResponse, written: &WrittenKey) -> bool {
    let [found] = answer.kvs() else { return false };
    (found.create_revision(), found.mod_revision())
        == (written.create_revision, written.mod_revision)
        && written
            .value
            .as_ref()
            .is_none_or(|value| found.value() == value)
}

fn replaced(revision: i64, key: &str) -> Failure {
    StoreError::Replaced {
        revision,
        key: key.to_owned(),
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: StoreIdentity = StoreIdentity {
        cluster: 7,
        term: 3,
    };

    #[test]
    fn saved_state_has_its_keys_and_its_cluster() {
        let point = ResumePoint {
            position: Position::at(9),
            keys: 5,
            deviating: ["/bad", "/gone"].map(str::to_owned).into(),
            identity: Some(IDENTITY),
        };
        let bad = crate::Entry {
            key: "/bad".to_owned(),
            value: "{".into(),
            create_revision: 1,
            mod_revision: 9,
        };
        let gone = Change::Delete {
            key: "/gone".to_owned(),
        };
        let deviating = [Change::Put(bad), gone];
        let (is_saved, cluster, term) = (is_saved_state, IDENTITY.cluster, IDENTITY.term);
        for (identity, count, expected) in [
            (Some(IDENTITY), 6, true),
            (None, 6, true),
            (Some(IDENTITY), 5, false),
            (Some(IDENTITY), 7, false),
            (Some(IDENTITY), -1, false),
            (
                Some(StoreIdentity {
                    cluster,
                    term: term + 1,
                }),
                6,
                true,
            ),
            (
                Some(StoreIdentity {
                    cluster,
                    term: term - 1,
                }),
                6,
                false,
            ),
            (Some(StoreIdentity { cluster: 8, term }), 6, false),
        ] {
            let found = is_saved(&point, identity, count, &deviating);
            assert_eq!(found, expected, "{identity:?} {count}");
        }
    }
}
