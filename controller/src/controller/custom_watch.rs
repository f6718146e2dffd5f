//! Watches of what is not in the store: events from a channel.

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use tokio::sync::{Mutex, mpsc};

use super::{
    RunError,
    map_loop::{MapLoop, Requests, unique},
};
use crate::{BoxError, cache::Caches, resource::Key};

/// A custom watch of whatever events.
pub(super) trait AnyCustomWatch: Send + Sync {
    fn run(&self, caches: Caches, requests: Requests) -> BoxFuture<'static, Result<(), RunError>>;
}

pub(super) type EventMapper<E> = dyn Fn(&Caches, &E) -> Result<Vec<Key>, BoxError> + Send + Sync;

pub(super) struct Channel<E> {
    /// Locked by the run of the controller that listens. What comes while none does waits for the next.
    pub(super) events: Arc<Mutex<mpsc::Receiver<E>>>,
    pub(super) mapper: Arc<EventMapper<E>>,
}

impl<E: Send + 'static> AnyCustomWatch for Channel<E> {
    fn run(&self, caches: Caches, requests: Requests) -> BoxFuture<'static, Result<(), RunError>> {
        let (events, mapper) = (Arc::clone(&self.events), Arc::clone(&self.mapper));
        listen(events, mapper, caches, requests).boxed()
    }
}

async fn listen<E: Send>(
    events: Arc<Mutex<mpsc::Receiver<E>>>,
    mapper: Arc<EventMapper<E>>,
    caches: Caches,
    requests: Requests,
) -> Result<(), RunError> {
    let mut events = events.lock().await;
    let mut maps = MapLoop::<u64, E>::new("custom watch", requests);
    let queue = maps.queue();
    let mut count = 0;
    loop {
        tokio::select! {
            // A source that is gone leaves only what failed so far.
            Some(event) = events.recv() => {
                count += 1;
                maps.add(count, std::iter::once(event));
            }
            Some(work) = queue.get() => maps.map(&work, |events| {
                let mut keys = Vec::new();
                for event in events {
                    keys.extend(mapper(&caches, event)?);
                }
                Ok(unique(keys))
            }),
        }
    }
}
