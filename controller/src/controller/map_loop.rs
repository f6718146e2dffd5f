//! Maps events to keys to reconcile, and retries mappers that fail.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use tracing::{error, warn};

use super::panic_text::panic_text;
use crate::{
    BoxError,
    queue::{Debounce, RetryPolicy, Work, WorkQueue},
    resource::Key,
};

/// Adds keys to the work queue of the reconciler.
#[derive(Clone)]
pub(super) struct Requests {
    pub(super) queue: WorkQueue<Key>,
    pub(super) debounce: Option<Debounce>,
    /// The prefix of the managed type: no other keys are reconciled.
    pub(super) prefix: Arc<str>,
}

impl Requests {
    pub(super) fn add(&self, key: Key) {
        match self.debounce {
            Some(debounce) => self.queue.add_debounced(key, debounce),
            None => self.queue.add(key),
        }
    }
}

/// The states that are still to be mapped, by key. Intermediate states are kept too: an object that was reconciled because of
/// one must be reconciled again when that state is gone.
pub(super) struct MapLoop<K: Ord + Clone + Send + 'static, P> {
    watched: String,
    pending: BTreeMap<K, Vec<P>>,
    queue: WorkQueue<K>,
    requests: Requests,
}

impl<K: Ord + Clone + Send + 'static, P> MapLoop<K, P> {
    pub(super) fn new(watched: &str, requests: Requests) -> Self {
        let policy = RetryPolicy {
            bucket: None,
            ..RetryPolicy::default()
        };
        let queue = WorkQueue::with(watched, policy, None);
        Self {
            watched: watched.to_owned(),
            pending: BTreeMap::new(),
            queue,
            requests,
        }
    }

    pub(super) fn add(&mut self, key: K, states: impl Iterator<Item = P>) {
        self.pending.entry(key.clone()).or_default().extend(states);
        self.queue.add(key);
    }

    /// The queue of keys whose states have to be mapped.
    pub(super) fn queue(&self) -> WorkQueue<K> {
        self.queue.clone()
    }

    /// Maps all states of a key and requests the resulting keys.
    pub(super) fn map(
        &mut self,
        work: &Work<K>,
        map: impl Fn(&[P]) -> Result<BTreeSet<Key>, BoxError>,
    ) {
        let Some(states) = self.pending.get(&**work) else {
            return;
        };
        let problem = match catch_unwind(AssertUnwindSafe(|| map(states))) {
            Ok(Ok(keys)) => {
                for key in keys {
                    if key.starts_with(&*self.requests.prefix) {
                        self.requests.add(key);
                    } else {
                        let expected = &*self.requests.prefix;
                        error!(watched = self.watched, %key, expected, "a mapper returned a key of another type; left out");
                    }
                }
                self.pending.remove(&**work);
                self.queue.forget(work);
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(panic) => format!("it panicked: {}", panic_text(panic.as_ref())),
        };
        warn!(
            watched = self.watched,
            problem, "a mapper failed; it will be tried again"
        );
        self.queue.retry((**work).clone());
    }
}
