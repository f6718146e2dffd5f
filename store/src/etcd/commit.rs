//! Several writes in one transaction.

use etcd_client::{Txn, TxnOp};

use super::member::Member;
use crate::{Operation, StoreError, store::TRANSACTION_LIMIT};

/// Applies all operations or none, and returns the revision they got.
pub(super) async fn commit(member: &Member, operations: Vec<Operation>) -> Result<i64, StoreError> {
    if operations.len() > TRANSACTION_LIMIT {
        return Err(StoreError::Refused {
            action: format!("commit {} operations at once", operations.len()),
            reason: format!("a transaction holds {TRANSACTION_LIMIT} at most; commit them in chunks"),
        });
    }
    let operations: Vec<TxnOp> = operations.into_iter().map(operation).collect();
    let mut kv = member.kv();
    let answer = member.request("commit", kv.txn(Txn::new().and_then(operations))).await?;
    Ok(answer.header().map_or(0, etcd_client::ResponseHeader::revision))
}

fn operation(operation: Operation) -> TxnOp {
    match operation {
        Operation::Put { key, value } => TxnOp::put(key, value, None),
        Operation::Delete { key } => TxnOp::delete(key, None),
    }
}
