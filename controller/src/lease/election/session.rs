//! A lease of the store that is kept alive, and the time at which it must be considered lost.

use std::{sync::Arc, time::Duration};

use contiv_store::{LeaseId, Leases, Store, StoreError};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, warn};

use super::ElectionConfig;

pub(super) struct Session {
    store: Arc<dyn Store>,
    lease: LeaseId,
    /// The value of the key if it was created in this session, different for every session.
    mark: String,
    alive: watch::Receiver<KeepAliveResult>,
    step_down_after: Duration,
    _keeping_alive: AbortOnDropHandle<()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeepAliveResult {
    /// A keep-alive sent at this time was answered. The lease's time to live counts from a later time in the store.
    Since(Instant),
    /// The store reported that the lease has ended.
    Ended,
}

impl Session {
    pub(super) async fn begin(
        store: Arc<dyn Store>,
        config: &ElectionConfig,
    ) -> Result<Self, StoreError> {
        let sent = Instant::now();
        let lease = leases(store.as_ref())?.grant(config.ttl).await?;
        let (sender, alive) = watch::channel(KeepAliveResult::Since(sent));
        let keeping_alive = tokio::spawn(keep_alive(
            Arc::clone(&store),
            lease,
            config.keep_alive_every,
            sender,
        ));
        Ok(Self {
            store,
            lease,
            mark: format!("{} {lease:x}", config.identity),
            alive,
            step_down_after: config.step_down_after,
            _keeping_alive: AbortOnDropHandle::new(keeping_alive),
        })
    }

    pub(super) fn lease(&self) -> LeaseId {
        self.lease
    }

    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    /// Waits until the lease must be considered lost: the store reported it or did not answer for too long.
    pub(super) async fn lost(&self) {
        let mut alive = self.alive.clone();
        loop {
            let KeepAliveResult::Since(sent) = *alive.borrow_and_update() else {
                return;
            };
            tokio::select! {
                changed = alive.changed() => if changed.is_err() { return },
                () = sleep_until(sent + self.step_down_after) => return,
            }
        }
    }

    pub(super) async fn revoke(&self) -> Result<(), StoreError> {
        leases(self.store.as_ref())?.revoke(self.lease).await
    }
}

fn leases(store: &dyn Store) -> Result<&dyn Leases, StoreError> {
    let refused = || StoreError::Refused {
        action: "grant a lease".to_owned(),
        reason: "there are none".to_owned(),
    };
    store.leases().ok_or_else(refused)
}

async fn keep_alive(
    store: Arc<dyn Store>,
    lease: LeaseId,
    every: Duration,
    alive: watch::Sender<KeepAliveResult>,
) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let sent = Instant::now();
        let answer = match leases(store.as_ref()) {
            Ok(leases) => leases.keep_alive(lease).await,
            Err(error) => Err(error),
        };
        match answer {
            Ok(true) => drop(alive.send_replace(KeepAliveResult::Since(sent))),
            Ok(false) => {
                warn!(lease, "the store has ended the lease");
                alive.send_replace(KeepAliveResult::Ended);
                return;
            }
            Err(error) => debug!(lease, %error, "no answer to a sign of life"),
        }
    }
}
