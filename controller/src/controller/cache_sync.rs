//! Reads a reflector to keep its cache up to date.

use super::RunError;
use crate::{cache::Cache, reflector::Reflector, resource::Event};

/// The next events of a type, after they are visible in its cache.
pub(super) async fn next_events<T: Send + Sync + 'static>(
    reflector: &mut Reflector<T>,
    cache: &Cache<T>,
) -> Result<Vec<Event<T>>, RunError> {
    let ended = || RunError::ReflectorEnded {
        resource_type: cache.resource_type(),
    };
    reflector.next().await.ok_or_else(ended)
}

/// Waits until the type was listed. The events are dropped: the caller reads the objects from the cache.
pub(super) async fn wait_for_sync<T: Send + Sync + 'static>(
    reflector: &mut Reflector<T>,
    cache: &Cache<T>,
) -> Result<(), RunError> {
    while !cache.has_synced() {
        next_events(reflector, cache).await?;
    }
    Ok(())
}

/// Keeps a cache up to date, and returns the error when the type can no longer be watched.
pub(super) async fn keep_synced<T: Send + Sync + 'static>(
    reflector: &mut Reflector<T>,
    cache: &Cache<T>,
) -> RunError {
    loop {
        if let Err(error) = next_events(reflector, cache).await {
            return error;
        }
    }
}
