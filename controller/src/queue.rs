//! The work queue: which keys need work, each once, never two workers on one key.
//!
//! A queue has only keys. A worker that gets a key reads the current object from the cache, so that no worker acts
//! on an object that was replaced while its key waited.
//!
//! ```
//! use std::time::Duration;
//! use contiv_controller::queue::WorkQueue;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let queue = WorkQueue::new("demo");
//! queue.add("web");
//! queue.add("web"); // waits already
//! queue.add_after("db", Duration::from_secs(5));
//!
//! let work = queue.get().await.expect("the queue is open");
//! assert_eq!(*work, "web");
//! queue.add("web"); // comes again once this work is done, not before
//! drop(work);
//! assert_eq!(*queue.get().await.expect("the queue is open"), "web");
//! assert_eq!(*queue.get().await.expect("the queue is open"), "db");
//! # }
//! ```

mod debounce;
mod delayed;
mod metrics;
mod retry;
mod state;

use std::{
    fmt,
    ops::Deref,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

pub use debounce::Debounce;
pub use metrics::WorkQueueMetrics;
use metrics::{Instruments, WorkInProgress};
use retry::Retries;
pub use retry::{Retry, RetryPolicy, TokenBucket};
use state::State;

/// A queue of keys that need work. Cheap to clone; clones are the same queue.
///
/// - A key that is waiting is not added again. A key that is added while it is processed is handed out again afterwards.
/// - Each key has one due time. Of several due times the earliest counts, and an immediate addition is earlier than any.
/// - Times are those of tokio's clock, so tests can pause it.
pub struct WorkQueue<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    name: String,
    // A lock rather than a task with a mailbox: adding must be possible from anywhere without waiting, and the lock is held
    // only for a few operations on maps.
    inner: Mutex<Inner<K>>,
    /// Wakes one worker. A worker that leaves more keys behind wakes the next.
    work: Notify,
    /// Notified when no key is waiting or being processed.
    idle: Notify,
    instruments: Option<Instruments>,
}

struct Inner<K> {
    state: State<K>,
    retries: Retries<K>,
}

impl<K> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<K> fmt::Debug for WorkQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue")
            .field("name", &self.shared.name)
            .finish_non_exhaustive()
    }
}

impl<K> fmt::Debug for Shared<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl<K: Ord + Clone + Send + 'static> WorkQueue<K> {
    /// Creates a queue without metrics and with client-go's retry policy.
    pub fn new(name: &str) -> Self {
        Self::with(name, RetryPolicy::default(), None)
    }

    /// Creates a queue with a retry policy and optional metrics.
    pub fn with(name: &str, policy: RetryPolicy, metrics: Option<&WorkQueueMetrics>) -> Self {
        let shared = Arc::new_cyclic(|this: &Weak<Shared<K>>| Shared {
            name: name.to_owned(),
            inner: Mutex::new(Inner {
                state: State::default(),
                retries: Retries::new(policy),
            }),
            work: Notify::new(),
            idle: Notify::new(),
            instruments: metrics
                .map(|metrics| metrics.of(name, Weak::clone(this) as Weak<dyn WorkInProgress>)),
        });
        Self { shared }
    }

    /// Adds a key unless it is already waiting.
    pub fn add(&self, key: K) {
        self.change(|inner, now| u64::from(inner.state.add(key, now)));
    }

    /// Adds a key after a delay, unless it is due earlier. Delays are limited to half a year.
    pub fn add_after(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        self.change(|inner, now| {
            inner.state.add_after(key, delay, now);
            0
        });
    }

    /// Adds a key after a quiet period, so that many additions in a short time are merged.
    pub fn add_debounced(&self, key: K, debounce: Debounce) {
        self.change(|inner, now| {
            inner.state.add_debounced(key, debounce, now);
            0
        });
    }

    /// Adds a failed key after its back-off, if its retry budget allows.
    pub fn retry(&self, key: K) -> Retry {
        let retry = self.change_with(|inner, now| {
            let retry = inner.retries.failed(&key, now);
            let mut added = 0;
            match retry {
                Retry::After(delay) if delay.is_zero() => {
                    added = u64::from(inner.state.add(key, now));
                }
                Retry::After(delay) => inner.state.add_after(key, delay, now),
                Retry::Dropped => {}
            }
            (retry, added)
        });
        if let Some(instruments) = &self.shared.instruments {
            match retry {
                Retry::After(_) => instruments.retried(),
                Retry::Dropped => instruments.dropped(),
            }
        }
        retry
    }

    /// Resets the failures of a key after a success.
    pub fn forget(&self, key: &K) {
        self.shared.inner.lock().retries.forget(key);
    }

    /// How often a key has failed since its failures were last reset.
    #[cfg(test)]
    pub(crate) fn failures(&self, key: &K) -> u32 {
        self.shared.inner.lock().retries.count(key)
    }

    /// How many keys can be handed out now; delayed keys do not count.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shared.inner.lock().state.waiting()
    }

    /// Whether no key can be handed out now.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many keys are delayed.
    #[cfg(test)]
    pub(crate) fn delayed(&self) -> usize {
        self.shared.inner.lock().state.delayed()
    }

    /// How long the longest work in progress has taken so far.
    pub fn longest_run(&self) -> Duration {
        self.shared.total_and_longest().1
    }

    /// The next key, as soon as there is one; none when the queue has ended. Dropping the future loses nothing.
    pub async fn get(&self) -> Option<Work<K>> {
        loop {
            let next_due = {
                let mut inner = self.shared.inner.lock();
                let now = Instant::now();
                let released = inner.state.release_due(now);
                let taken = inner.state.take(now);
                let (depth, has_more) = (inner.state.waiting(), inner.state.has_more());
                let (next_due, has_ended) = (inner.state.next_due(), inner.state.has_ended());
                drop(inner);
                if let Some(instruments) = &self.shared.instruments {
                    instruments.added(released);
                    instruments.depth(depth);
                    if let Some((_, waited)) = taken {
                        instruments.record_wait(waited);
                    }
                }
                // One notification may be for several keys.
                if has_more && (taken.is_some() || has_ended) {
                    self.shared.work.notify_one();
                }
                match taken {
                    Some((key, _)) => return Some(Work::new(key, self.clone())),
                    None if has_ended => return None,
                    None => next_due,
                }
            };
            // If this future is dropped while it waits for a delayed key, another worker takes over the wait.
            let relay = Relay(&self.shared.work);
            match next_due {
                Some(at) => tokio::select! {
                    () = self.shared.work.notified() => {}
                    () = sleep_until(at) => {}
                },
                None => self.shared.work.notified().await,
            }
            std::mem::forget(relay);
        }
    }

    /// Ends the queue immediately: no key is accepted or handed out any more. Work in progress continues.
    pub fn shut_down(&self) {
        self.change(|inner, _| {
            inner.state.close();
            0
        });
    }

    /// Accepts no more keys, hands out the waiting ones and returns when all work is done. Delayed keys are dropped.
    pub async fn drain(&self) {
        self.change(|inner, _| {
            inner.state.drain();
            0
        });
        loop {
            let idle = self.shared.idle.notified();
            tokio::pin!(idle);
            // From here on no notification is missed.
            idle.as_mut().enable();
            if self.shared.inner.lock().state.is_idle() {
                return;
            }
            idle.await;
        }
    }

    /// Marks the work on a key as done.
    fn finish(&self, key: &K) {
        let took = self.change_with(|inner, now| (inner.state.finish(key, now), 0));
        if let Some(instruments) = &self.shared.instruments {
            instruments.finished(took);
        }
    }

    /// Changes the state and wakes workers; `change` returns how many keys it added.
    fn change(&self, change: impl FnOnce(&mut Inner<K>, Instant) -> u64) {
        self.change_with(|inner, now| ((), change(inner, now)));
    }

    fn change_with<T>(&self, change: impl FnOnce(&mut Inner<K>, Instant) -> (T, u64)) -> T {
        let mut inner = self.shared.inner.lock();
        let (result, added) = change(&mut inner, Instant::now());
        let (depth, is_idle) = (inner.state.waiting(), inner.state.is_idle());
        let has_more = inner.state.has_more();
        drop(inner);
        if let Some(instruments) = &self.shared.instruments {
            instruments.added(added);
            instruments.depth(depth);
        }
        if has_more {
            self.shared.work.notify_one();
        }
        if is_idle {
            self.shared.idle.notify_waiters();
        }
        result
    }
}

impl<K: Ord + Clone + Send + 'static> WorkInProgress for Shared<K> {
    fn total_and_longest(&self) -> (Duration, Duration) {
        let inner = self.inner.lock();
        let now = Instant::now();
        let so_far = inner.state.processing_since().map(|since| now - since);
        so_far.fold((Duration::ZERO, Duration::ZERO), |(sum, max), time| {
            (sum + time, max.max(time))
        })
    }
}

/// Notifies another worker when it is dropped.
struct Relay<'a>(&'a Notify);

impl Drop for Relay<'_> {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// A key that is being processed. Dropping it marks the work as done, also when the worker panics.
#[must_use = "the work on the key is done when this is dropped"]
pub struct Work<K: Ord + Clone + Send + 'static> {
    key: K,
    queue: WorkQueue<K>,
}

impl<K: Ord + Clone + Send + 'static> Work<K> {
    fn new(key: K, queue: WorkQueue<K>) -> Self {
        Self { key, queue }
    }
}

impl<K: Ord + Clone + Send + 'static> Deref for Work<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.key
    }
}

impl<K: Ord + Clone + Send + fmt::Debug + 'static> fmt::Debug for Work<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Work").field(&self.key).finish()
    }
}

impl<K: Ord + Clone + Send + 'static> Drop for Work<K> {
    fn drop(&mut self) {
        self.queue.finish(&self.key);
    }
}

#[cfg(test)]
mod tests;
