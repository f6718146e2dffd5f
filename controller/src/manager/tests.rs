//! Controllers run by a manager, on a paused clock.

mod deletions;
mod events;
mod hooks;
mod outcomes;
mod placement;
mod progress;
mod registering;
mod stopping;
mod together;

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::{task::JoinHandle, time::Instant};

use super::*;
use crate::{
    BoxError, Context, Controller, ControllerBuilder, Key, Outcome, RequeueAfterError,
    lease::LeaseHolder,
    test_support::{delete, ms, put, texts},
};
use contiv_store_testing::MemoryStore;

/// The reconciled keys with their times in milliseconds since the start.
#[derive(Clone)]
struct Log {
    start: Instant,
    lines: Arc<Mutex<Vec<(u128, String)>>>,
}

impl Log {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            lines: Arc::default(),
        }
    }

    fn add(&self, line: impl Into<String>) {
        self.lines
            .lock()
            .push((self.start.elapsed().as_millis(), line.into()));
    }

    /// The entries since the last call.
    fn take(&self) -> Vec<String> {
        self.timed().into_iter().map(|(_, line)| line).collect()
    }

    fn timed(&self) -> Vec<(u128, String)> {
        std::mem::take(&mut self.lines.lock())
    }
}

/// A manager that runs one controller.
struct Running {
    store: MemoryStore,
    stop: CancellationToken,
    task: JoinHandle<()>,
    holder: LeaseHolder,
}

impl Running {
    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

/// Runs a controller of the texts below `/t/`. The lease is held.
fn run<T: Send + Sync + 'static>(store: &MemoryStore, builder: ControllerBuilder<T>) -> Running {
    let running = run_without_lease(store, builder);
    running.holder.grant();
    running
}

fn run_without_lease<T: Send + Sync + 'static>(
    store: &MemoryStore,
    builder: ControllerBuilder<T>,
) -> Running {
    let (holder, lease) = Lease::manual();
    let mut manager = Manager::new(store.shared(), lease);
    manager.register(builder.build().unwrap()).unwrap();
    let stop = CancellationToken::new();
    let task = tokio::spawn(manager.run(stop.clone()));
    Running {
        store: store.clone(),
        stop,
        task,
        holder,
    }
}

/// A controller of the texts below `/t/` that logs each key, with `-` if it is deleted.
fn logging(log: &Log) -> ControllerBuilder<String> {
    let log = log.clone();
    Controller::for_type(&texts("t")).with_reconciler(move |context: Context<String>, key: Key| {
        let log = log.clone();
        async move {
            match context.cache().get(&key) {
                Some(object) => log.add(format!("{key} {}", object.value)),
                None => log.add(format!("{key} -")),
            }
            Ok(Outcome::Done)
        }
    })
}

/// Runs all tasks for a short time.
async fn settle() {
    tokio::time::sleep(ms(100)).await;
}
