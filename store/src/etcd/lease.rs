//! Leases: keys that are deleted when their client stops.

use std::time::Duration;

use etcd_client::Error;
use futures::{FutureExt, future::BoxFuture};
use tokio::time::timeout;

use super::{EtcdStore, failure::Failure, session::Session};
use crate::{LeaseId, Leases, StoreError};

/// How long a member may take to keep a lease alive before the next one is tried. A lease must not expire because the first
/// member hangs.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(2);

impl Leases for EtcdStore {
    fn grant(&self, ttl: Duration) -> BoxFuture<'_, Result<LeaseId, StoreError>> {
        let seconds = i64::try_from(ttl.as_secs().max(1)).unwrap_or(i64::MAX);
        // If an answer is lost, so is the lease; it expires by itself.
        self.members
            .read(move |session| grant(session, seconds).boxed())
            .boxed()
    }

    fn keep_alive(&self, lease: LeaseId) -> BoxFuture<'_, Result<bool, StoreError>> {
        self.members
            .read(move |session| keep_alive(session, lease).boxed())
            .boxed()
    }

    fn revoke(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), StoreError>> {
        self.members
            .read(move |session| revoke(session, lease).boxed())
            .boxed()
    }
}

async fn grant(session: Session, seconds: i64) -> Result<LeaseId, Failure> {
    Ok(session
        .request("grant a lease", session.leases().grant(seconds, None))
        .await?
        .id())
}

/// One stream per message: each may go to another member.
async fn keep_alive(session: Session, lease: LeaseId) -> Result<bool, Failure> {
    let answer = timeout(KEEP_ALIVE_TIMEOUT, session.leases().keep_alive(lease)).await;
    match answer.map_err(|_| session.timeout_error(KEEP_ALIVE_TIMEOUT))? {
        Ok(_) => Ok(true),
        // The client's error for a time to live of 0.
        Err(Error::LeaseKeepAliveError(reason)) if reason == "lease not found" => Ok(false),
        Err(error) => Err(session.failure("keep a lease alive", error)),
    }
}

async fn revoke(session: Session, lease: LeaseId) -> Result<(), Failure> {
    match session
        .request("revoke a lease", session.leases().revoke(lease))
        .await
    {
        Ok(_) => Ok(()),
        Err(Failure::Store(StoreError::Refused { reason, .. }))
            if reason.contains("lease not found") =>
        {
            Ok(())
        }
        Err(failure) => Err(failure),
    }
}
