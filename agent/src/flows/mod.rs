//! Connections through services, for those that watch them. The kernel makes its events only while somebody watches.
//!
//! ```text
//!  conntrack's events ─┐
//!  refused attempts ───┼─► thread `flows` ─ FlowTracker ─► filter of each watcher ─► its bounded channel ─► HTTP, OTLP
//!  frontends (core) ───┘
//! ```
//!
//! The first watcher starts the thread, and it ends with the last one.

mod source;
mod watcher;

use std::{
    fmt,
    sync::{Arc, mpsc as threads},
};

use contiv_node::flows::{FlowFilter, FlowList, FlowTracker, FrontendIndex, RefusedTracker};
use contiv_renderer::packet_path::{SampleRate, list_flows};
use jiff::Timestamp;
use tokio::{
    sync::{Mutex, Semaphore, mpsc, oneshot},
    task::spawn_blocking,
};

use crate::drivers::{Request, snapshot};
use source::{Source, refused_attempts, sample_notice};
use watcher::Watcher;
#[cfg(feature = "otlp")]
pub(crate) use watcher::add_notice;
pub(crate) use watcher::{Piece, Pieces};

/// How often a watcher comes anew that came just as the thread ended.
const MAX_STARTS: usize = 3;

/// Tells of connections. Clones share the thread.
#[derive(Clone)]
pub(crate) struct Flows {
    requests: mpsc::Sender<Request>,
    /// Where the thread receives watchers, while it runs.
    thread: Arc<Mutex<Option<threads::Sender<Watcher>>>>,
    /// A list reads the whole table of conntrack: one at a time.
    lister: Arc<Semaphore>,
}

impl fmt::Debug for Flows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flows").finish_non_exhaustive()
    }
}

impl Flows {
    /// Asks the node for its services through `requests`.
    pub(crate) fn new(requests: mpsc::Sender<Request>) -> Self {
        Self {
            requests,
            thread: Arc::default(),
            lister: Arc::new(Semaphore::new(1)),
        }
    }

    /// The connections that are there, and the attempts that were refused lately. Of more than `limit` it is a sample.
    ///
    /// # Errors
    /// When the node has no services yet, or the kernel cannot be read; as text.
    pub(crate) async fn list(&self, filter: FlowFilter, limit: usize) -> Result<Piece, String> {
        let snapshot = snapshot(&self.requests).await?;
        let _permit = self
            .lister
            .acquire()
            .await
            .map_err(|error| error.to_string())?;
        spawn_blocking(move || list(&FrontendIndex::new(snapshot), &filter, limit))
            .await
            .map_err(|error| error.to_string())?
    }

    /// The connections from now on.
    ///
    /// # Errors
    /// When there are too many watchers, the node has no services yet, or the kernel does not tell of connections; as text.
    pub(crate) async fn watch(&self, filter: FlowFilter) -> Result<Pieces, String> {
        for _ in 0..MAX_STARTS {
            let (reply, answer) = oneshot::channel();
            let (watcher, pieces) = Watcher::new(filter.clone(), reply);
            self.enter(watcher).await?;
            // The thread may have ended just now.
            if let Ok(answer) = answer.await {
                return answer.map(|()| pieces);
            }
        }
        Err("the watch ended before it began; try again".to_owned())
    }

    /// Hands a watcher to the thread, which is started if it does not run.
    async fn enter(&self, watcher: Watcher) -> Result<(), String> {
        let mut thread = self.thread.lock().await;
        let rejected = match &*thread {
            Some(running) => running.send(watcher).err().map(|error| error.0),
            None => Some(watcher),
        };
        if let Some(watcher) = rejected {
            let requests = self.requests.clone();
            *thread = Some(Source::start(watcher, requests).map_err(|error| error.to_string())?);
        }
        Ok(())
    }
}

fn list(index: &FrontendIndex, filter: &FlowFilter, limit: usize) -> Result<Piece, String> {
    let (mut tracker, at) = (FlowTracker::default(), Timestamp::now());
    let mut list = FlowList::with_limit(limit);
    list_flows(|event| {
        if let Some(flow) = tracker.on_event(&event, index, at)
            && filter.matches(&flow)
        {
            list.add(flow);
        }
    })
    .map_err(|error| error.to_string())?;
    let refused = refused_attempts()?;
    let refused = RefusedTracker::default().on_list(refused, index, at);
    for flow in refused.into_iter().filter(|flow| filter.matches(flow)) {
        list.add(flow);
    }
    let (flows, rate) = list.finish();
    let mut notices = Vec::new();
    if rate != SampleRate::ALL {
        notices.push(sample_notice(rate));
    }
    Ok(Piece { flows, notices })
}
