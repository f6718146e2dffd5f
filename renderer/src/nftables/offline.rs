//! Planning and encoding without a kernel: the exact bytes that [`Nftables`](super::Nftables) would send, for measurements.

use contiv_model::{ChangeSet, Snapshot};

use super::{apply, encode, netlink::Batch, read::Elements, table::Table, transaction::Transaction};

/// A table without a kernel.
#[derive(Debug)]
pub struct OfflineTable {
    table: Table,
    batch_limit: usize,
}

/// Netlink batches, each to be sent in one piece, in order. The kernel acknowledges the last message of each.
pub type Batches = Vec<Vec<u8>>;

impl OfflineTable {
    /// A table for `snapshot`, and the batches that create it in an empty kernel. No batch exceeds `batch_limit` bytes, except
    /// one with a single large frontend.
    pub fn resync(snapshot: &Snapshot, batch_limit: usize) -> (Self, Batches) {
        let (table, transaction) = Table::resync(snapshot, Elements::default());
        let offline = Self { table, batch_limit };
        let mut fresh = Batch::new();
        apply::write_fresh(&mut fresh, false, 0, &offline.table.sizes(batch_limit));
        let batches = offline.encode(fresh, transaction);
        (offline, batches)
    }

    /// Applies `changes` to the table, and returns the batches that apply them to the kernel.
    pub fn update(&mut self, changes: &ChangeSet) -> Batches {
        let mut transaction = self.table.update(changes);
        let late = transaction.take_late();
        let mut batches = self.encode(Batch::new(), transaction);
        batches.extend(self.encode(Batch::new(), late));
        batches
    }

    fn encode(&self, first: Batch, transaction: Transaction) -> Batches {
        let batches = encode::batches(first, transaction, self.batch_limit);
        batches.map(|mut batch| batch.finish().0.to_vec()).collect()
    }
}
