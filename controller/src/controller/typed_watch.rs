//! Watches of types other than the managed one.

use std::sync::Arc;

use contiv_store::Store;
use futures::{FutureExt, future::BoxFuture};

use super::{
    RunError,
    cache_sync::{keep_synced, next_events, wait_for_sync},
    map_loop::{MapLoop, Requests},
};
use crate::{
    cache::{Cache, Caches},
    mapper::Mapper,
    reflector::Reflector,
    resource::{Event, Key, Object, ResourceType},
};

/// A watch of any type that was not started.
pub(super) trait AnyWatch: Send + Sync {
    fn type_name(&self) -> &str;
    /// The name of two indexes of its type.
    fn duplicate_index(&self) -> Option<&str>;
    /// Starts to watch the type and adds its cache.
    fn open(&self, store: Arc<dyn Store>, caches: &mut Caches) -> Box<dyn OpenWatch>;
}

/// A running watch of any type.
pub(super) trait OpenWatch: Send {
    /// Waits until the type was listed.
    fn wait_for_sync(&mut self) -> BoxFuture<'_, Result<(), RunError>>;
    /// Keeps the cache up to date and returns when it can no longer be.
    fn keep_synced(&mut self) -> BoxFuture<'_, RunError>;
    /// Maps the listed objects and all later events.
    fn run(
        self: Box<Self>,
        caches: Caches,
        requests: Requests,
    ) -> BoxFuture<'static, Result<(), RunError>>;
}

/// Decides whether an event is mapped.
type EventFilter<U> = Arc<dyn Fn(&Event<U>) -> bool + Send + Sync>;

pub(super) struct TypedWatch<U> {
    pub(super) resource_type: ResourceType<U>,
    pub(super) is_relevant: EventFilter<U>,
    pub(super) mapper: Mapper<U>,
}

impl<U: Send + Sync + 'static> AnyWatch for TypedWatch<U> {
    fn type_name(&self) -> &str {
        self.resource_type.name()
    }

    fn duplicate_index(&self) -> Option<&str> {
        self.resource_type.duplicate_index()
    }

    fn open(&self, store: Arc<dyn Store>, caches: &mut Caches) -> Box<dyn OpenWatch> {
        let (reflector, cache) = Reflector::start(store, &self.resource_type);
        caches.insert(&self.resource_type, cache.clone());
        let (is_relevant, mapper) = (Arc::clone(&self.is_relevant), self.mapper.clone());
        Box::new(StartedWatch {
            is_relevant,
            mapper,
            reflector,
            cache,
        })
    }
}

struct StartedWatch<U> {
    is_relevant: EventFilter<U>,
    mapper: Mapper<U>,
    reflector: Reflector<U>,
    cache: Cache<U>,
}

impl<U: Send + Sync + 'static> StartedWatch<U> {
    async fn map_events(mut self, caches: Caches, requests: Requests) -> Result<(), RunError> {
        let mut maps = MapLoop::<Key, Arc<Object<U>>>::new(&self.cache.resource_type(), requests);
        let queue = maps.queue();
        for object in self.cache.view().iter() {
            maps.add(Arc::clone(&object.key), std::iter::once(Arc::clone(object)));
        }
        loop {
            tokio::select! {
                events = next_events(&mut self.reflector, &self.cache) => {
                    for event in events?.into_iter().filter(|event| (self.is_relevant)(event)) {
                        maps.add(Arc::clone(event.key()), event.states().map(Arc::clone));
                    }
                },
                Some(work) = queue.get() => {
                    maps.map(&work, |states| self.mapper.map_all(&caches, states));
                }
            }
        }
    }
}

impl<U: Send + Sync + 'static> OpenWatch for StartedWatch<U> {
    fn wait_for_sync(&mut self) -> BoxFuture<'_, Result<(), RunError>> {
        wait_for_sync(&mut self.reflector, &self.cache).boxed()
    }

    fn keep_synced(&mut self) -> BoxFuture<'_, RunError> {
        keep_synced(&mut self.reflector, &self.cache).boxed()
    }

    fn run(
        self: Box<Self>,
        caches: Caches,
        requests: Requests,
    ) -> BoxFuture<'static, Result<(), RunError>> {
        self.map_events(caches, requests).boxed()
    }
}
