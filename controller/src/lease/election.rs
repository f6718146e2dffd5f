//! One of several processes holds the lease.
//!
//! Each has a lease of the store and tries to create the election's key with it. Who did holds the lease as long as the
//! key is there. When it stops, or dies, the key goes and the others try again.
//!
//! Two things keep a deposed holder from doing harm. It steps down by its own clock if the store has not answered for
//! a while, long before the store lets another one win. And because a clock can stop (a paused process), every write of
//! a [`Writer`](crate::Writer) is made on condition that the key is still the one that its holder created.

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
use observed::ObservedKey;
use session::Session;

/// How long a process that ends may try to give its lease back.
const RESIGN_TIMEOUT: Duration = Duration::from_secs(3);

/// Who takes part in which election, and its times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElectionConfig {
    /// The key that stands for the lease. Nothing else may write it.
    pub key: String,
    /// What this process is called, for whoever looks at the key.
    pub identity: String,
    /// How long after the last sign of life the store lets another one win; whole seconds.
    pub ttl: Duration,
    /// How often this process gives a sign of life.
    pub keep_alive_every: Duration,
    /// How long after the last sign of life that was answered this process steps down by itself.
    pub step_down_after: Duration,
}

impl ElectionConfig {
    /// With linkerd's times: 30 s, every 2 s, 10 s.
    pub fn new(key: &str, identity: &str) -> Self {
        Self {
            key: key.to_owned(),
            identity: identity.to_owned(),
            ttl: Duration::from_secs(30),
            keep_alive_every: Duration::from_secs(2),
            step_down_after: Duration::from_secs(10),
        }
    }
}

/// Why an election cannot be entered.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ElectionError {
    /// The store cannot hold elections.
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
/// use contiv_controller::{lease::election::{Election, ElectionConfig}, testing::MemoryStore};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), contiv_controller::lease::election::ElectionError> {
/// let store = MemoryStore::new();
/// let config = ElectionConfig::new("/election", "node-1");
/// let (election, mut lease) = Election::enter(store.shared(), config)?;
/// lease.changed().await;
/// assert!(lease.held());
/// // … stop everything that runs while the lease is held, and then
/// election.resign().await;
/// assert!(!lease.held());
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
    pub fn enter(store: Arc<dyn Store>, config: ElectionConfig) -> Result<(Self, Lease), ElectionError> {
        let ElectionConfig { keep_alive_every, step_down_after, ttl, .. } = config;
        let is_ordered =
            !keep_alive_every.is_zero() && keep_alive_every < step_down_after && step_down_after < ttl;
        if !is_ordered || ttl < Duration::from_secs(1) {
            return Err(ElectionError::Times { keep_alive_every, step_down_after, ttl });
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
        Ok((Self { task, stop: stop.drop_guard(), probe }, lease))
    }

    /// Whether the task that takes part still turns.
    pub fn liveness(&self) -> LivenessProbe {
        self.probe.clone()
    }

    /// Gives the lease back, so that another process wins at once. Stop first what runs while it is held.
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

/// Why a session is over.
enum SessionEnd {
    Stopped,
    /// The store has not answered for too long, or said that the lease is gone, or that another one holds the key.
    Lost,
}

impl Candidate {
    async fn run(mut self) {
        let stop = self.stop.clone();
        loop {
            let Some(session) = stop.run_until_cancelled(self.begin()).await else { return };
            let over = self.take_part(&session).await;
            self.holder.revoke();
            // Without this the others would have to wait for the end of the lease.
            let revoked = timeout(RESIGN_TIMEOUT, session.revoke()).await;
            debug!(key = self.config.key, ?revoked, "gave the lease back");
            if matches!(over, SessionEnd::Stopped) {
                return;
            }
        }
    }

    /// A session, as soon as the store grants one.
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

    /// Waits to win, and then to lose.
    async fn take_part(&mut self, session: &Session) -> SessionEnd {
        let stop = self.stop.clone();
        loop {
            let won = tokio::select! {
                () = stop.cancelled() => return SessionEnd::Stopped,
                () = session.lost() => return SessionEnd::Lost,
                won = self.win(session) => won,
            };
            if let Some(create_revision) = won {
                let fence = Fence { key: self.config.key.clone(), create_revision };
                info!(key = fence.key, identity = self.config.identity, create_revision, "won the election");
                self.holder.grant_with(fence);
                let over = tokio::select! {
                    () = stop.cancelled() => SessionEnd::Stopped,
                    () = session.lost() => SessionEnd::Lost,
                    () = self.lose(create_revision) => SessionEnd::Lost,
                };
                info!(key = self.config.key, identity = self.config.identity, "no longer holds the lease");
                return over;
            }
        }
    }

    /// Tries to create the key when there is none; returns the revision at which it was created.
    async fn win(&mut self, session: &Session) -> Option<i64> {
        // An answer may have been lost: then the key is there, and it is ours.
        if let Some(create_revision) = self.observed.created_by(session.mark()) {
            return Some(create_revision);
        }
        if !self.observed.is_absent() {
            self.observe().await;
            return None;
        }
        match self.create(session).await {
            Ok(revision) => return Some(revision),
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => debug!(key = self.config.key, %error, "failed to create the election's key"),
        }
        // Whoever was faster will be seen soon.
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
        self.store.transact(Transaction { conditions, operations: vec![operation] }).await
    }

    /// Returns when the key is seen to be no longer the one that was created at this revision.
    async fn lose(&mut self, create_revision: i64) {
        while !self.observed.has_gone(create_revision) {
            self.observe().await;
        }
    }

    async fn observe(&mut self) {
        match self.feed.recv().await {
            Some(delivery) => self.observed.take_in(delivery.event),
            // It ends with its receiver only; waiting is all that is left.
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests;
