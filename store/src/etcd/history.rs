//! Checks that a cluster still has the history that a reader has watched.
//!
//! A cluster restored from a backup is not marked as such: its members, its name and so its id may be the same, and after some
//! writes its revision reaches that of the reader again. So a few keys are read at the revision of the reader.

use etcd_client::{GetOptions, GetResponse, Txn, TxnOp, TxnOpResponse};

use super::{
    failure::{self, Failure},
    list::{first_key, prefix_end},
    session::Session,
};
use crate::{Position, StoreError, WrittenKey};

/// Fails if the store never had the reader's state: it was restored to an earlier revision, possibly with writes since; or if
/// it has compacted that revision.
///
/// One request; `newest` is the revision that the member just reported. All members agree on the result, so a member that lags
/// behind is not taken for a restored store.
pub(super) async fn confirm(
    session: &Session,
    prefix: &str,
    position: &Position,
    newest: i64,
) -> Result<(), Failure> {
    let revision = position.revision();
    let operations = operations(prefix, position);
    let mut kv = session.kv();
    let answer = match session
        .answer(kv.txn(Txn::new().and_then(operations)))
        .await?
    {
        Ok(answer) => answer,
        Err(error) if failure::is_compacted(&error) => {
            return Err(StoreError::Compacted {
                requested: revision,
                oldest: revision + 1,
            }
            .into());
        }
        Err(error) if failure::is_future(&error) => {
            return Err(StoreError::Rewound {
                requested: revision,
                newest,
            }
            .into());
        }
        // The known values of these keys were small.
        Err(error) if failure::is_too_large(&error) => return Err(replaced(revision, prefix)),
        Err(error) => return Err(session.failure("read what was there before", error)),
    };
    let mut answers = answer.op_responses().into_iter();
    let mut next = || match answers.next() {
        Some(TxnOpResponse::Get(answer)) => Ok(answer),
        _ => Err(session.unavailable("an answer is incomplete".to_owned())),
    };
    if position.is_empty() && next()?.count() > 0 {
        return Err(replaced(revision, prefix));
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
    Ok(())
}

/// One operation for each known fact. None of them reads keys that the reader may not read.
fn operations(prefix: &str, position: &Position) -> Vec<TxnOp> {
    let options = || GetOptions::new().with_revision(position.revision());
    let count_of = |key: &str| TxnOp::get(key, Some(options().with_count_only()));
    let all = || {
        let (start, end) = (first_key(prefix), prefix_end(prefix));
        TxnOp::get(start, Some(options().with_range(end).with_count_only()))
    };
    let written = position.written().map(|written| {
        let options = if written.value.is_some() {
            options()
        } else {
            options().with_keys_only()
        };
        TxnOp::get(written.key.as_str(), Some(options))
    });
    let mut operations: Vec<TxnOp> = position.is_empty().then(all).into_iter().collect();
    operations.extend(written);
    operations.extend(position.deleted().map(count_of));
    if operations.is_empty() {
        // It still shows whether the revision exists.
        operations.push(count_of(if prefix.is_empty() { "/" } else { prefix }));
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
