//! The caches of one run, and what fills them.

use std::sync::Arc;

use futures::future::try_join_all;

use super::{Context, Controller, Environment, RunError, Setup, typed_watch::OpenWatch};
use crate::{cache::Caches, reflector::Reflector, resource::Event};

/// A controller whose types are followed, and nothing else yet.
pub(crate) struct Opened<T> {
    pub(crate) context: Context<T>,
    pub(super) managed: Reflector<T>,
    pub(super) watches: Vec<Box<dyn OpenWatch>>,
}

impl<T: Send + Sync + 'static> Opened<T> {
    /// Starts to follow the types.
    pub(crate) fn new(controller: &Controller<T>, environment: &Environment) -> Self {
        let mut caches = Caches::new(Arc::clone(&controller.queries));
        let store = || Arc::clone(&environment.store);
        let (managed, cache) = Reflector::start(store(), &controller.managed, controller.indexes.clone());
        caches.insert(&controller.managed, cache.clone());
        let watches = controller.watches.iter().map(|watch| watch.open(store(), &mut caches)).collect();
        Self { context: Context::new(Setup::new(environment), cache, caches), managed, watches }
    }

    /// Reads the first list of every type, and returns what there is of the managed one.
    pub(crate) async fn prime(&mut self, controller: &Controller<T>) -> Result<Vec<Event<T>>, RunError> {
        let ended = || RunError::ReflectorEnded { resource_type: controller.managed.name().to_owned() };
        let first = async { self.managed.next().await.ok_or_else(ended) };
        let others = try_join_all(self.watches.iter_mut().map(|watch| watch.prime()));
        tokio::try_join!(first, others).map(|(first, _)| first)
    }
}
