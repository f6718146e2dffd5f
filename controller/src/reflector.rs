//! Reflectors: what fills a cache, and says what changed.
//!
//! A reflector uses [`contiv_store::Feed`], which lists and watches: there is one implementation of that
//! in the project. The reflector adds the type: it decodes, keeps a [`Cache`], and compares each list with it so that
//! no deletion is lost.
//!
//! ```
//! use contiv_controller::{ResourceType, reflector::Reflector};
//! use contiv_store_testing::MemoryStore;
//! use contiv_store::{Operation, Store};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! let names = ResourceType::new("name", "/names/", |entry| String::from_utf8(entry.value.to_vec()));
//! let store = MemoryStore::new();
//! store.commit(vec![Operation::Put { key: "/names/1".into(), value: "Ada".into() }]).await?;
//!
//! let (mut reflector, cache) = Reflector::start(store.shared(), &names);
//! let events = reflector.next().await.expect("the reflector runs");
//! assert_eq!(events.len(), 1);
//! assert_eq!(cache.get("/names/1").expect("it was listed").value, "Ada");
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;

use contiv_store::{Delivery, Feed, FeedEvent, FeedHandle, Store};
use tokio::sync::{mpsc, watch};

use crate::{
    cache::{Cache, Contents},
    resource::{Event, ResourceType},
};

/// Watches one type of objects. Its cache stays up to date as long as [`Reflector::next`] is called.
pub struct Reflector<T> {
    feed: mpsc::Receiver<Delivery>,
    handle: FeedHandle,
    contents: watch::Sender<Contents<T>>,
}

impl<T> std::fmt::Debug for Reflector<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reflector")
            .field("handle", &self.handle)
            .finish_non_exhaustive()
    }
}

impl<T: Send + Sync + 'static> Reflector<T> {
    /// Starts to watch a type. Must be called within a tokio runtime.
    pub fn start(store: Arc<dyn Store>, resource_type: &ResourceType<T>) -> (Self, Cache<T>) {
        let (feed, handle) = Feed::start(store, resource_type.prefix());
        let (contents, cache) = Cache::new(resource_type.clone());
        (
            Self {
                feed,
                handle,
                contents,
            },
            cache,
        )
    }

    /// The next events, after they are visible in the cache: those of one list, or of one or more transactions.
    ///
    /// The first are those of the first list and may be empty. Dropping the future loses nothing. None when the store can never
    /// be watched again.
    pub async fn next(&mut self) -> Option<Vec<Event<T>>> {
        loop {
            let delivery = self.feed.recv().await?;
            if let Some(events) = self.on_event(delivery.event) {
                return Some(events);
            }
        }
    }

    /// Requests a new list. Differences from the cache become events.
    #[cfg(test)]
    fn request_resync(&self) {
        self.handle.request_resync();
    }

    fn on_event(&self, event: FeedEvent) -> Option<Vec<Event<T>>> {
        let mut events = None;
        self.contents.send_modify(|contents| match event {
            FeedEvent::Snapshot(snapshot) => events = Some(contents.replace(snapshot)),
            FeedEvent::Changed(batch) => events = Some(contents.apply(batch)),
            FeedEvent::Down { reason } => contents.set_down(Some(reason)),
            FeedEvent::Up => contents.set_down(None),
            // These problems are of the whole store, of all types, and its owner reports them. The objects stay.
            FeedEvent::Problems(_)
            | FeedEvent::Replaced { .. }
            | FeedEvent::Inconsistent { .. }
            | FeedEvent::Resumed { .. }
            | FeedEvent::Progress { .. }
            | FeedEvent::List(_) => {}
        });
        events
    }
}

#[cfg(test)]
mod tests;
