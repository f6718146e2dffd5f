//! Several writes in one transaction.

use etcd_client::{
    Compare, CompareOp, GetOptions, PutOptions, ResponseHeader, Txn, TxnOp, TxnOpResponse,
};

use super::{failure::Failure, list::entry, session::Session};
use crate::{Condition, Entry, Operation, StoreError, Transaction, store::TRANSACTION_LIMIT};

/// Applies all operations or none, and returns their revision.
pub(super) async fn commit(session: Session, transaction: Transaction) -> Result<i64, Failure> {
    let Transaction {
        conditions,
        operations,
    } = transaction;
    let largest = operations.len().max(conditions.len());
    if largest > TRANSACTION_LIMIT {
        return Err(StoreError::Refused {
            action: format!("commit {largest} operations at once"),
            reason: format!(
                "a transaction holds {TRANSACTION_LIMIT} at most; commit them in chunks"
            ),
        }
        .into());
    }
    let compares: Vec<Compare> = conditions.iter().map(compare).collect();
    // etcd reports only that some condition fails. These reads identify the key.
    let reads: Vec<TxnOp> = conditions
        .iter()
        .map(|condition| TxnOp::get(condition.key(), Some(GetOptions::new().with_keys_only())))
        .collect();
    let operations: Vec<TxnOp> = operations.into_iter().map(operation).collect();
    let mut kv = session.kv();
    let answer = session
        .request(
            "commit",
            kv.txn(
                Txn::new()
                    .when(compares)
                    .and_then(operations)
                    .or_else(reads),
            ),
        )
        .await?;
    if answer.succeeded() {
        return Ok(answer.header().map_or(0, ResponseHeader::revision));
    }
    let found = answer
        .op_responses()
        .into_iter()
        .map(|response| match response {
            TxnOpResponse::Get(mut response) => response.take_kvs().into_iter().next().map(entry),
            _ => None,
        });
    Err(conflict(&conditions, found).into())
}

fn conflict(conditions: &[Condition], found: impl Iterator<Item = Option<Entry>>) -> StoreError {
    let broken = conditions
        .iter()
        .zip(found)
        .find(|(condition, entry)| !condition.holds(entry.as_ref()));
    StoreError::Conflict {
        key: broken.map_or_else(String::new, |(condition, _)| condition.key().to_owned()),
    }
}

fn compare(condition: &Condition) -> Compare {
    match condition {
        Condition::Absent { key } => Compare::create_revision(key.as_str(), CompareOp::Equal, 0),
        Condition::Unchanged { key, mod_revision } => {
            Compare::mod_revision(key.as_str(), CompareOp::Equal, *mod_revision)
        }
        Condition::Since {
            key,
            create_revision,
        } => Compare::create_revision(key.as_str(), CompareOp::Equal, *create_revision),
    }
}

fn operation(operation: Operation) -> TxnOp {
    match operation {
        Operation::Put { key, value } => TxnOp::put(key, value, None),
        Operation::PutLeased { key, value, lease } => {
            TxnOp::put(key, value, Some(PutOptions::new().with_lease(lease)))
        }
        Operation::Delete { key } => TxnOp::delete(key, None),
    }
}
