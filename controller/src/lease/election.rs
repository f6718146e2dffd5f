//! Leader election: one of several processes holds the lease.
//!
//! Each process has a lease of the store and tries to create the election's key with it. The creator is the leader as long as
//! the key exists. When it resigns or dies, the key is deleted and the others try again.
//!
//! Two mechanisms prevent writes by a former leader. It steps down by its own clock if the store has not answered for a while,
//! long before the store lets another process win. And because a process can be paused, every write of a
//! [`Writer`](crate::Writer) is conditional on the key still being the one that its leader created.

mod config;
mod observed;
mod session;

use std::{sync::Arc, time::Duration};

use contiv_store::{Condition, Delivery, Feed, Operation, Store, StoreError, Transaction};
use thiserror::Error;
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{debug, info, warn};

use super::{Lease, LeaseHolder};
use crate::{
    liveness::{LivenessProbe, liveness_channel},
    writer::Fence,
};
pub use config::ElectionConfig;
use observed::ObservedKey;
use session::Session;

/// How long resigning may take when the process ends.
const RESIGN_TIMEOUT: Duration = Duration::from_secs(3);

/// Why an election cannot be entered.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ElectionError {
    /// The store has no leases.
    #[error(
        "this store has no leases, so it cannot hold an election; use etcd, or run one process with Lease::always_leader"
    )]
    NoLeases,
    /// The times do not fit together.
    #[error(
        "an election needs keep_alive_every < step_down_after < ttl, and a ttl of 1 s or more; \
         they are {keep_alive_every:?}, {step_down_after:?} and {ttl:?}"
    )]
    Times {
        /// See [`ElectionConfig::keep_alive_every`].
        keep_alive_every: Duration,
        /// See [`ElectionConfig::step_down_after`].
        step_down_after: Duration,
        /// See [`ElectionConfig::ttl`].
        ttl: Duration,
    },
}

/// This process' part in an election. Dropping it gives the lease back without waiting for that.
///
/// ```
/// use contiv_controller::lease::election::{Election, ElectionConfig};
/// use contiv_store_testing::MemoryStore;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), contiv_controller::lease::election::ElectionError> {
/// let store = MemoryStore::new();
/// let config = ElectionConfig::new("/election", "node-1");
/// let (election, mut lease) = Election::enter(store.shared(), config)?;
/// lease.changed().await;
/// assert!(lease.is_held());
/// // … stop everything that runs while the lease is held, and then
/// election.resign().await;
/// assert!(!lease.is_held());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Election {
    task: JoinHandle<()>,
    stop: DropGuard,
    probe: LivenessProbe,
}

impl Election {
    /// Takes part from now on. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// See [`ElectionError`].
    pub fn enter(
        store: Arc<dyn Store>,
        config: ElectionConfig,
    ) -> Result<(Self, Lease), ElectionError> {
        let ElectionConfig {
            keep_alive_every,
            step_down_after,
            ttl,
            ..
        } = config;
        let is_ordered = !keep_alive_every.is_zero()
            && keep_alive_every < step_down_after
            && step_down_after < ttl;
        if !is_ordered || ttl < Duration::from_secs(1) {
            return Err(ElectionError::Times {
                keep_alive_every,
                step_down_after,
                ttl,
            });
        }
        if store.leases().is_none() {
            return Err(ElectionError::NoLeases);
        }
        let (holder, lease) = Lease::manual();
        let stop = CancellationToken::new();
        let (feed, _) = Feed::start(Arc::clone(&store), config.key.as_str());
        let candidate = Candidate {
            observed: ObservedKey::new(&config.key),
            store,
            config,
            holder,
            feed,
            stop: stop.clone(),
        };
        let (probe, reporter) = liveness_channel();
        let task = tokio::spawn(reporter.report_while(candidate.run()));
        Ok((
            Self {
                task,
                stop: stop.drop_guard(),
                probe,
            },
            lease,
        ))
    }

    /// Reports whether the election's task is alive.
    pub fn liveness(&self) -> LivenessProbe {
        self.probe.clone()
    }

    /// Gives the lease back, so that another process can win immediately. First stop everything that runs under the lease.
    pub async fn resign(self) {
        drop(self.stop);
        if let Err(error) = self.task.await {
            warn!(%error, "the election failed");
        }
    }
}

struct Candidate {
    store: Arc<dyn Store>,
    config: ElectionConfig,
    holder: LeaseHolder,
    feed: mpsc::Receiver<Delivery>,
    observed: ObservedKey,
    stop: CancellationToken,
}

/// Why a session ended.
enum SessionEnd {
    Stopped,
    /// The store did not answer for too long, reported that the lease is gone, or the key belongs to another process.
    Lost,
}

impl Candidate {
    async fn run(mut self) {
        let stop = self.stop.clone();
        loop {
            let Some(session) = stop.run_until_cancelled(self.begin()).await else {
                return;
            };
            let over = self.take_part(&session).await;
            self.holder.revoke();
            // Without this the others would have to wait until the lease expires.
            let revoked = timeout(RESIGN_TIMEOUT, session.revoke()).await;
            debug!(key = self.config.key, ?revoked, "gave the lease back");
            if matches!(over, SessionEnd::Stopped) {
                return;
            }
        }
    }

    /// Retries until the store grants a session.
    async fn begin(&self) -> Session {
        loop {
            match Session::begin(Arc::clone(&self.store), &self.config).await {
                Ok(session) => return session,
                Err(error) => {
                    debug!(key = self.config.key, %error, "the store grants no lease");
                    sleep(self.config.keep_alive_every).await;
                }
            }
        }
    }

    /// Waits until the election is won, and then until it is lost.
    async fn take_part(&mut self, session: &Session) -> SessionEnd {
        let stop = self.stop.clone();
        loop {
            let won = tokio::select! {
                () = stop.cancelled() => return SessionEnd::Stopped,
                () = session.lost() => return SessionEnd::Lost,
                won = self.try_create(session) => won,
            };
            if let Some(create_revision) = won {
                let fence = Fence {
                    key: self.config.key.clone(),
                    create_revision,
                };
                info!(
                    key = fence.key,
                    identity = self.config.identity,
                    create_revision,
                    "won the election"
                );
                self.holder.grant_with(fence);
                let over = tokio::select! {
                    () = stop.cancelled() => SessionEnd::Stopped,
                    () = session.lost() => SessionEnd::Lost,
                    () = self.lose(create_revision) => SessionEnd::Lost,
                };
                info!(
                    key = self.config.key,
                    identity = self.config.identity,
                    "no longer holds the lease"
                );
                return over;
            }
        }
    }

    /// Tries to create the key if there is none; returns its creation revision on success.
    async fn try_create(&mut self, session: &Session) -> Option<i64> {
        // The answer to an earlier transaction may have been lost; then the key exists and is ours.
        if let Some(create_revision) = self.observed.create_revision_of(session.mark()) {
            return Some(create_revision);
        }
        if !self.observed.is_absent() {
            self.observe().await;
            return None;
        }
        match self.create(session).await {
            Ok(revision) => return Some(revision),
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => {
                debug!(key = self.config.key, %error, "failed to create the election's key");
            }
        }
        // Another process may have won; the watch will show it soon.
        let _ = timeout(self.config.keep_alive_every, self.observe()).await;
        None
    }

    async fn create(&self, session: &Session) -> Result<i64, StoreError> {
        let key = self.config.key.clone();
        let operation = Operation::PutLeased {
            key: key.clone(),
            value: session.mark().to_owned().into(),
            lease: session.lease(),
        };
        let conditions = vec![Condition::Absent { key }];
        self.store
            .transact(Transaction {
                conditions,
                operations: vec![operation],
            })
            .await
    }

    /// Waits until the key is no longer the one created at this revision.
    async fn lose(&mut self, create_revision: i64) {
        while !self.observed.is_gone(create_revision) {
            self.observe().await;
        }
    }

    async fn observe(&mut self) {
        match self.feed.recv().await {
            Some(delivery) => self.observed.on_event(delivery.event),
            // The task ends only when its receiver is dropped, so there is nothing left but to wait.
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests;
