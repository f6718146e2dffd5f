//! The caches of one run and the reflectors that fill them.

use std::sync::Arc;

use contiv_store::Store;
use futures::{
    FutureExt,
    future::{select_all, try_join_all},
};

use super::{
    Controller, RunError,
    cache_sync::{keep_synced, wait_for_sync},
    typed_watch::OpenWatch,
};
use crate::{
    cache::{Cache, Caches},
    reflector::Reflector,
};

/// The watched types of a controller with their caches, before anything is reconciled.
pub(crate) struct OpenedCaches<T> {
    pub(crate) cache: Cache<T>,
    pub(crate) caches: Caches,
    pub(super) managed: Reflector<T>,
    pub(super) watches: Vec<Box<dyn OpenWatch>>,
}

impl<T: Send + Sync + 'static> OpenedCaches<T> {
    /// Starts to watch the types.
    pub(crate) fn new(controller: &Controller<T>, store: &Arc<dyn Store>) -> Self {
        let mut caches = Caches::default();
        let (managed, cache) = Reflector::start(Arc::clone(store), &controller.managed);
        caches.insert(&controller.managed, cache.clone());
        let watches = controller
            .watches
            .iter()
            .map(|watch| watch.open(Arc::clone(store), &mut caches))
            .collect();
        Self {
            cache,
            caches,
            managed,
            watches,
        }
    }

    /// Waits until every type was listed.
    pub(crate) async fn wait_for_sync(&mut self) -> Result<(), RunError> {
        let managed = wait_for_sync(&mut self.managed, &self.cache);
        let watches = try_join_all(self.watches.iter_mut().map(|watch| watch.wait_for_sync()));
        tokio::try_join!(managed, watches).map(|_| ())
    }

    /// Keeps the caches up to date and returns when one can no longer be. Dropping the future loses nothing.
    pub(super) async fn keep_synced(&mut self) -> RunError {
        let Self {
            managed,
            cache,
            watches,
            ..
        } = self;
        let watches = watches.iter_mut().map(|watch| watch.keep_synced());
        select_all(watches.chain([keep_synced(managed, cache).boxed()]))
            .await
            .0
    }
}
