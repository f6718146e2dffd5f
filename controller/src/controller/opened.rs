//! The caches of one run, and what fills them.

use std::sync::Arc;

use contiv_store::Store;
use futures::{
    FutureExt,
    future::{select_all, try_join_all},
};

use super::{Controller, RunError, typed_watch::OpenWatch};
use crate::{
    cache::{Cache, Caches},
    reflector::Reflector,
    resource::Event,
};

/// The types of a controller, followed, and nothing else yet.
pub(crate) struct OpenedCaches<T> {
    pub(crate) cache: Cache<T>,
    pub(crate) caches: Caches,
    pub(super) managed: Reflector<T>,
    pub(super) watches: Vec<Box<dyn OpenWatch>>,
}

impl<T: Send + Sync + 'static> OpenedCaches<T> {
    /// Starts to follow the types.
    pub(crate) fn new(controller: &Controller<T>, store: &Arc<dyn Store>) -> Self {
        let mut caches = Caches::new(Arc::clone(&controller.queries));
        let (managed, cache) =
            Reflector::start(Arc::clone(store), &controller.managed, controller.indexes.clone());
        caches.insert(&controller.managed, cache.clone());
        let watches =
            controller.watches.iter().map(|watch| watch.open(Arc::clone(store), &mut caches)).collect();
        Self { cache, caches, managed, watches }
    }

    /// Returns when every type was listed.
    pub(crate) async fn prime(&mut self) -> Result<(), RunError> {
        let managed = prime(&mut self.managed, &self.cache);
        let watches = try_join_all(self.watches.iter_mut().map(|watch| watch.prime()));
        tokio::try_join!(managed, watches).map(|_| ())
    }

    /// Keeps the caches up to date, until one cannot be. Nothing is lost when it is dropped.
    pub(super) async fn keep_warm(&mut self) -> RunError {
        let Self { managed, cache, watches, .. } = self;
        let watches = watches.iter_mut().map(|watch| watch.keep_warm());
        select_all(watches.chain([keep_warm(managed, cache).boxed()])).await.0
    }
}

/// What happens to a type next, after its cache shows it.
pub(super) async fn next<T: Send + Sync + 'static>(
    reflector: &mut Reflector<T>,
    cache: &Cache<T>,
) -> Result<Vec<Event<T>>, RunError> {
    let ended = || RunError::ReflectorEnded { resource_type: cache.resource_type() };
    reflector.next().await.ok_or_else(ended)
}

/// Returns when the type was listed. What is in the cache is read there.
pub(super) async fn prime<T: Send + Sync + 'static>(
    reflector: &mut Reflector<T>,
    cache: &Cache<T>,
) -> Result<(), RunError> {
    while !cache.has_synced() {
        next(reflector, cache).await?;
    }
    Ok(())
}

/// Keeps a cache up to date until it cannot be.
pub(super) async fn keep_warm<T: Send + Sync + 'static>(
    reflector: &mut Reflector<T>,
    cache: &Cache<T>,
) -> RunError {
    loop {
        if let Err(error) = next(reflector, cache).await {
            return error;
        }
    }
}
