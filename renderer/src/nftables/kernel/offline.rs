//! Planning and encoding without a kernel: the exact bytes that [`Nftables`](crate::nftables::Nftables) would send, for measurements.

use std::iter;

use contiv_model::{ChangeSet, Snapshot};

use super::{apply, encode};
use crate::nftables::desired::existing_elements::Elements;
use crate::nftables::{
    desired::{
        table::Table,
        transaction::{Group, Transaction},
    },
    netlink::Batch,
};

/// A table without a kernel.
#[derive(Debug)]
pub struct OfflineTable {
    table: Table,
    last_programmed: Snapshot,
    batch_limit: usize,
}

/// Netlink batches, each to be sent in one piece, in order. The kernel acknowledges the last message of each.
pub type Batches = Vec<Vec<u8>>;

impl OfflineTable {
    /// A table for `snapshot`, and the batches that create it in an empty kernel. No batch exceeds `batch_limit` bytes, except
    /// one with a single large frontend.
    pub fn resync(snapshot: &Snapshot, batch_limit: usize) -> (Self, Batches) {
        let (table, transaction) = Table::resync(snapshot, Elements::default());
        let mut fresh = Batch::new();
        apply::write_fresh(
            &mut fresh,
            false,
            0,
            &table.sizes(batch_limit),
            table.pod_ranges(),
        );
        let batches = encode(fresh, transaction, table.creation(), batch_limit);
        (
            Self {
                table,
                last_programmed: snapshot.clone(),
                batch_limit,
            },
            batches,
        )
    }

    /// Applies `changes` to the table, and returns the batches that apply them to the kernel.
    pub fn update(&mut self, changes: &ChangeSet) -> Batches {
        let mut transaction = self.table.update(&self.last_programmed.services, changes);
        self.last_programmed.apply(changes);
        let late = transaction.take_late();
        let mut batches = encode(Batch::new(), transaction, iter::empty(), self.batch_limit);
        batches.extend(encode(Batch::new(), late, iter::empty(), self.batch_limit));
        batches
    }
}

fn encode(
    first: Batch,
    transaction: Transaction,
    more: impl Iterator<Item = Group>,
    batch_limit: usize,
) -> Batches {
    let batches = encode::batches(first, transaction, more, batch_limit);
    batches.map(|mut batch| batch.finish().0.to_vec()).collect()
}
