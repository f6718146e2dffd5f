//! The store in memory as a store.

use contiv_store::{Leases, Snapshot, Store, StoreError, Transaction, WatchStream};
use futures::{FutureExt, future::BoxFuture};

use super::{MemoryStore, watching};

impl Store for MemoryStore {
    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Snapshot, StoreError>> {
        async move {
            self.reach().await?;
            Ok(self.with(|state, _| state.list(prefix)))
        }
        .boxed()
    }

    fn watch<'a>(
        &'a self,
        prefix: &'a str,
        revision: i64,
    ) -> BoxFuture<'a, Result<WatchStream, StoreError>> {
        async move {
            self.reach().await?;
            self.with(|state, _| state.after(prefix, revision))?;
            Ok(watching::Watch::new(self.clone(), prefix, revision).into_stream())
        }
        .boxed()
    }

    fn transact(&self, transaction: Transaction) -> BoxFuture<'_, Result<i64, StoreError>> {
        self.transact_now(transaction).boxed()
    }

    fn leases(&self) -> Option<&dyn Leases> {
        Some(self)
    }
}
