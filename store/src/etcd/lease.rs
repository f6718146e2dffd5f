//! Leases: keys that go when their client does.

use std::time::Duration;

use etcd_client::Error;
use futures::{FutureExt, future::BoxFuture};
use tokio::time::timeout;

use super::{EtcdStore, failure, member::Member};
use crate::{LeaseId, Leases, StoreError};

/// How long a member may take to keep a lease alive before the next is asked. A lease must not end because the first
/// member hangs.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(2);

impl Leases for EtcdStore {
    fn grant(&self, ttl: Duration) -> BoxFuture<'_, Result<LeaseId, StoreError>> {
        let seconds = i64::try_from(ttl.as_secs().max(1)).unwrap_or(i64::MAX);
        // If an answer is lost, so is the lease; it ends by itself.
        self.members.read(move |member| grant(member, seconds).boxed()).boxed()
    }

    fn keep_alive(&self, lease: LeaseId) -> BoxFuture<'_, Result<bool, StoreError>> {
        self.members
            .read(move |member| {
                async move {
                    let late = || member.unavailable(format!("no answer within {KEEP_ALIVE_TIMEOUT:?}"));
                    timeout(KEEP_ALIVE_TIMEOUT, keep_alive(member, lease)).await.map_err(|_| late())?
                }
                .boxed()
            })
            .boxed()
    }

    fn revoke(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), StoreError>> {
        self.members.read(move |member| revoke(member, lease).boxed()).boxed()
    }
}

async fn grant(member: &Member, seconds: i64) -> Result<LeaseId, StoreError> {
    Ok(member.request("grant a lease", member.leases().grant(seconds, None)).await?.id())
}

/// A stream for one message: it may go to another member each time.
async fn keep_alive(member: &Member, lease: LeaseId) -> Result<bool, StoreError> {
    match member.answer(member.leases().keep_alive(lease)).await? {
        Ok(_) => Ok(true),
        // The client's words for a time to live of 0.
        Err(Error::LeaseKeepAliveError(reason)) if reason == "lease not found" => Ok(false),
        Err(error) => Err(failure::map(&member.endpoint, "keep a lease alive", error)),
    }
}

async fn revoke(member: &Member, lease: LeaseId) -> Result<(), StoreError> {
    match member.request("revoke a lease", member.leases().revoke(lease)).await {
        Ok(_) => Ok(()),
        Err(StoreError::Refused { reason, .. }) if reason.contains("lease not found") => Ok(()),
        Err(error) => Err(error),
    }
}
