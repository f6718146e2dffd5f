//! The leases of the store in memory.

use std::time::Duration;

use contiv_store::{LeaseId, Leases, StoreError};
use futures::{FutureExt, future::BoxFuture};

use super::MemoryStore;

impl Leases for MemoryStore {
    fn grant(&self, ttl: Duration) -> BoxFuture<'_, Result<LeaseId, StoreError>> {
        async move {
            self.reach().await?;
            Ok(self.with(|state, now| state.grant(ttl, now)))
        }
        .boxed()
    }

    fn keep_alive(&self, lease: LeaseId) -> BoxFuture<'_, Result<bool, StoreError>> {
        async move {
            self.reach().await?;
            Ok(self.with(|state, now| state.keep_alive(lease, now)))
        }
        .boxed()
    }

    fn revoke(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), StoreError>> {
        async move {
            self.reach().await?;
            self.with(|state, _| state.revoke(lease));
            Ok(())
        }
        .boxed()
    }
}
