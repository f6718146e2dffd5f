//! Watchers as agents open them: each is a feed of `contiv-store` with its own connection.
//!
//! So they have all of an agent's options: the prefix of all objects, progress notifications, fragments, requests for progress
//! while nothing changes, and replays of the last changes.

use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use contiv_proto::key::ROOT;
use contiv_store::{
    Change, Delivery, Feed, FeedEvent, FeedHandle,
    etcd::{EtcdAccess, EtcdStore},
};
use contiv_tests::lab::{Lab, LabError, Result};
use futures::{StreamExt, TryStreamExt, stream};
use tokio::{
    runtime::{self, Runtime},
    sync::mpsc,
    time::timeout,
};

use super::arrivals::Arrivals;
use crate::cluster::unexpected;

/// How many watches are being opened at a time.
const CONCURRENT_STARTS: usize = 64;
/// How long all of them may take.
const OPENING_LIMIT: Duration = Duration::from_secs(180);
/// How long they may take to end.
const END_LIMIT: Duration = Duration::from_secs(60);

/// Watchers that run until this is dropped.
pub(super) struct Watchers {
    runtime: Option<Runtime>,
    counts: Arc<WatcherCounts>,
}

/// What has happened to all watchers.
#[derive(Debug, Default)]
struct WatcherCounts {
    opened: AtomicU32,
    outages: AtomicU32,
    lists: AtomicU32,
}

impl Watchers {
    /// Opens so many, in turns at these endpoints, and waits until all of them watch. After a time limit some may be missing.
    pub(super) fn open(
        lab: &Lab,
        endpoints: &[String],
        number: usize,
        arrivals: &Arc<Arrivals>,
    ) -> Result<Self> {
        let counts = Arc::new(WatcherCounts::default());
        // The threads of the runtime are made here, so they are in the namespace.
        let runtime = lab.node.run(|| {
            let runtime = start_runtime()?;
            let starts = stream::iter(endpoints.iter().cycle().take(number).cloned())
                .map(start)
                .buffer_unordered(CONCURRENT_STARTS);
            let all = starts.try_for_each(|feed| {
                counts.opened.fetch_add(1, Relaxed);
                tokio::spawn(follow(feed, Arc::clone(arrivals), Arc::clone(&counts)));
                ready(Ok(()))
            });
            runtime.block_on(async {
                // What is missing is counted.
                timeout(OPENING_LIMIT, all).await.unwrap_or(Ok(()))
            })?;
            Ok(runtime)
        })?;
        Ok(Self {
            runtime: Some(runtime),
            counts,
        })
    }

    /// How many watches have been opened.
    pub(super) fn opened(&self) -> u32 {
        self.counts.opened.load(Relaxed)
    }

    /// How often a watch was lost, and how often a list had to replace changes.
    pub(super) fn interruptions(&self) -> (u32, u32) {
        let WatcherCounts { outages, lists, .. } = &*self.counts;
        (outages.load(Relaxed), lists.load(Relaxed))
    }
}

impl Drop for Watchers {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(END_LIMIT);
        }
    }
}

/// With a thread for each processor, so that the clients are not slower than they must be.
fn start_runtime() -> Result<Runtime> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .map_err(|error| LabError::system("start a runtime for the watchers", error))
}

/// A feed that watches.
struct OpenFeed {
    events: mpsc::Receiver<Delivery>,
    _handle: FeedHandle,
}

async fn start(endpoint: String) -> Result<OpenFeed> {
    let store = EtcdStore::new(&[endpoint], EtcdAccess::default()).map_err(unexpected)?;
    let (mut events, handle) = Feed::start(Arc::new(store), ROOT);
    // What the store says of itself is published when the watch has been opened.
    let mut identity = handle.identity();
    while let Some(delivery) = events.recv().await {
        if let FeedEvent::Snapshot(_) = delivery.event {
            break;
        }
    }
    identity.changed().await.map_err(unexpected)?;
    Ok(OpenFeed {
        events,
        _handle: handle,
    })
}

async fn follow(mut feed: OpenFeed, arrivals: Arc<Arrivals>, counts: Arc<WatcherCounts>) {
    while let Some(Delivery { event, received }) = feed.events.recv().await {
        match event {
            FeedEvent::Changed(batch) => {
                for change in batch.changes {
                    if let Change::Put(entry) = change {
                        arrivals.record(entry.mod_revision, received.into_std());
                    }
                }
            }
            FeedEvent::Snapshot(_) => {
                counts.lists.fetch_add(1, Relaxed);
            }
            FeedEvent::Down { .. } => {
                counts.outages.fetch_add(1, Relaxed);
            }
            _ => {}
        }
    }
}
