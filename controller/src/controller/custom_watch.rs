//! Watches of events that do not come from the store but from a channel.

use std::{collections::BTreeSet, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use tokio::sync::{Mutex, mpsc};

use super::{
    RunError,
    map_loop::{MapLoop, Requests},
};
use crate::{BoxError, cache::Caches, resource::Key};

/// A custom watch of any event type.
pub(super) trait AnyCustomWatch: Send + Sync {
    fn run(&self, caches: Caches, requests: Requests) -> BoxFuture<'static, Result<(), RunError>>;
}

pub(super) type EventMapper<E> = dyn Fn(&Caches, &E) -> Result<Vec<Key>, BoxError> + Send + Sync;

pub(super) struct Channel<E> {
    /// Locked by the current run of the controller. Events that arrive between two runs stay in the channel for the next one.
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
            // When the channel is closed, only events whose mapping failed remain.
            Some(event) = events.recv() => {
                count += 1;
                maps.add(count, std::iter::once(event));
            }
            Some(work) = queue.get() => maps.map(&work, |events| {
                let mut keys = BTreeSet::new();
                for event in events {
                    keys.extend(mapper(&caches, event)?);
                }
                Ok(keys)
            }),
        }
    }
}
