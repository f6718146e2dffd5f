//! Watches of types other than the managed one.

use std::{any::Any, sync::Arc};

use contiv_store::Store;
use futures::{FutureExt, future::BoxFuture};

use super::{
    RunError,
    map_loop::{MapLoop, Requests},
};
use crate::{
    cache::{Caches, Index},
    mapper::Mapper,
    reflector::Reflector,
    resource::{Event, Key, Object, ResourceType},
};

/// A watch of whatever type, before it runs.
pub(super) trait AnyWatch: Send + Sync {
    fn type_name(&self) -> &str;
    #[cfg(any(test, feature = "testing"))]
    fn as_any(&self) -> &dyn Any;
    /// Takes an index of its type; gives back one of another.
    fn take_index(&mut self, index: Box<dyn Any>) -> Result<(), Box<dyn Any>>;
    /// Starts to follow the type, and adds its cache.
    fn open(&self, store: Arc<dyn Store>, caches: &mut Caches) -> Box<dyn OpenWatch>;
}

/// A watch of whatever type that runs.
pub(super) trait OpenWatch: Send {
    /// Reads the first list.
    fn prime(&mut self) -> BoxFuture<'_, Result<(), RunError>>;
    /// Maps what happens, for ever.
    fn run(self: Box<Self>, caches: Caches, requests: Requests) -> BoxFuture<'static, Result<(), RunError>>;
}

pub(super) struct TypedWatch<U> {
    pub(super) resource_type: ResourceType<U>,
    pub(super) mapper: Mapper<U>,
    pub(super) indexes: Vec<Index<U>>,
}

impl<U: Send + Sync + 'static> AnyWatch for TypedWatch<U> {
    fn type_name(&self) -> &str {
        self.resource_type.name()
    }

    #[cfg(any(test, feature = "testing"))]
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn take_index(&mut self, index: Box<dyn Any>) -> Result<(), Box<dyn Any>> {
        self.indexes.push(*index.downcast::<Index<U>>()?);
        Ok(())
    }

    fn open(&self, store: Arc<dyn Store>, caches: &mut Caches) -> Box<dyn OpenWatch> {
        let (reflector, cache) = Reflector::start(store, &self.resource_type, self.indexes.clone());
        caches.insert(&self.resource_type, cache);
        let type_name = self.type_name().to_owned();
        Box::new(Following { type_name, mapper: self.mapper.clone(), reflector, first: Vec::new() })
    }
}

struct Following<U> {
    type_name: String,
    mapper: Mapper<U>,
    reflector: Reflector<U>,
    /// The events of the first list.
    first: Vec<Event<U>>,
}

impl<U: Send + Sync + 'static> Following<U> {
    async fn next(&mut self) -> Result<Vec<Event<U>>, RunError> {
        let ended = || RunError::ReflectorEnded { resource_type: self.type_name.clone() };
        self.reflector.next().await.ok_or_else(ended)
    }

    async fn follow(mut self, caches: Caches, requests: Requests) -> Result<(), RunError> {
        let mut maps = MapLoop::<Key, Arc<Object<U>>>::new(&self.type_name, requests);
        let queue = maps.queue();
        let add = |maps: &mut MapLoop<_, _>, events: Vec<Event<U>>| {
            for event in events {
                maps.add(Arc::clone(event.key()), event.states().map(Arc::clone));
            }
        };
        add(&mut maps, std::mem::take(&mut self.first));
        loop {
            tokio::select! {
                events = self.next() => add(&mut maps, events?),
                Some(work) = queue.get() => {
                    let map = |states: &[Arc<Object<U>>]| {
                        self.mapper.map_all(&caches, states).map(|keys| keys.into_iter().collect())
                    };
                    maps.map(&work, map);
                }
            }
        }
    }
}

impl<U: Send + Sync + 'static> OpenWatch for Following<U> {
    fn prime(&mut self) -> BoxFuture<'_, Result<(), RunError>> {
        async {
            self.first = self.next().await?;
            Ok(())
        }
        .boxed()
    }

    fn run(self: Box<Self>, caches: Caches, requests: Requests) -> BoxFuture<'static, Result<(), RunError>> {
        self.follow(caches, requests).boxed()
    }
}
