//! A client of the store in memory.

use std::{fmt, sync::Arc};

use contiv_store::{Condition, Store, StoreError, Transaction};
use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};

use super::{
    super::faults::{Chance, Faults},
    state::State,
};

/// A store in memory that follows etcd's rules: revisions, watches without gaps, compaction, transactions, leases.
///
/// Leases expire by tokio's clock, so a test can pause it. A clone shares the connection: cutting one cuts both. Another client
/// of the same store has its own connection.
#[derive(Clone)]
pub struct MemoryStore {
    pub(super) shared: Arc<Shared>,
    pub(super) wire: Arc<Wire>,
}

pub(super) struct Shared {
    state: Mutex<State>,
    pub(super) chance: Chance,
    /// Notified after each change.
    pub(super) changed: watch::Sender<()>,
}

/// The connection between one client and the store.
pub(super) struct Wire {
    pub(super) is_cut: watch::Sender<bool>,
    /// Notified when all watches must break.
    pub(super) breaks: watch::Sender<()>,
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("revision", &self.revision())
            .finish_non_exhaustive()
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// Creates an empty store without faults.
    pub fn new() -> Self {
        Self::with_faults(Faults::NONE)
    }

    /// Creates an empty store with faults.
    pub fn with_faults(faults: Faults) -> Self {
        let state = Mutex::new(State::default());
        let shared = Shared {
            state,
            chance: Chance::new(faults),
            changed: watch::Sender::new(()),
        };
        Self {
            shared: Arc::new(shared),
            wire: Arc::new(Wire::new()),
        }
    }

    /// Disables random faults from now on.
    pub fn stop_faults(&self) {
        self.shared.chance.stop();
    }

    /// Another client of the same store, with its own connection.
    #[must_use]
    pub fn another_client(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            wire: Arc::new(Wire::new()),
        }
    }

    /// This client as a trait object.
    pub fn shared(&self) -> Arc<dyn Store> {
        Arc::new(self.clone())
    }

    /// Cuts the connection of this client until it is restored: all requests and watches fail.
    pub fn cut(&self) {
        self.wire.is_cut.send_replace(true);
    }

    /// Restores the connection.
    pub fn reconnect(&self) {
        self.wire.is_cut.send_replace(false);
    }

    /// Breaks the watches of this client; they can be opened again.
    pub fn break_watches(&self) {
        self.wire.breaks.send_replace(());
    }

    /// Compacts the history before the current revision. Watches that are behind fail.
    pub fn compact(&self) {
        self.shared.state.lock().compact();
    }

    /// The newest revision.
    pub fn revision(&self) -> i64 {
        self.shared.state.lock().revision()
    }

    /// Expires leases, applies `act` to the state and notifies the watches if it changed.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut State, Instant) -> T) -> T {
        let mut state = self.shared.state.lock();
        let before = state.revision();
        let now = Instant::now();
        state.expire(now);
        let result = act(&mut state, now);
        let has_changed = state.revision() != before;
        drop(state);
        if has_changed {
            self.shared.changed.send_replace(());
        }
        result
    }

    pub(super) async fn reach(&self) -> Result<(), StoreError> {
        self.shared.chance.delay().await;
        if *self.wire.is_cut.borrow() {
            Err(unreachable())
        } else {
            Ok(())
        }
    }

    pub(super) async fn transact_now(&self, transaction: Transaction) -> Result<i64, StoreError> {
        self.reach().await?;
        if let Some(condition) = transaction.conditions.first()
            && self.shared.chance.occurs(|faults| faults.conflict)
        {
            return Err(StoreError::Conflict {
                key: Condition::key(condition).to_owned(),
            });
        }
        let result = self.with(|state, _| state.transact(transaction));
        if self.shared.chance.occurs(|faults| faults.lost_answer) {
            return Err(unreachable());
        }
        // The connection was cut meanwhile: the transaction is committed, but the client does not learn of it.
        self.reach().await?;
        result
    }

    pub(super) fn break_by_chance(&self, prefix: &str) -> Result<(), StoreError> {
        if !self.shared.chance.occurs(|faults| faults.cut_watch) {
            return Ok(());
        }
        if self.shared.chance.occurs(|faults| faults.compaction) {
            self.compact();
        }
        let reason = format!("the watch of {prefix} broke");
        Err(StoreError::Unavailable {
            endpoint: "memory".to_owned(),
            reason,
        })
    }
}

pub(super) fn unreachable() -> StoreError {
    StoreError::Unavailable {
        endpoint: "memory".to_owned(),
        reason: "the wire is cut".to_owned(),
    }
}

impl Wire {
    fn new() -> Self {
        Self {
            is_cut: watch::Sender::new(false),
            breaks: watch::Sender::new(()),
        }
    }
}
