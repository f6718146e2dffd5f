//! Follows one type.

use super::RunError;
use crate::{cache::Cache, reflector::Reflector, resource::Event};

/// The next events of a type, after they are visible in its cache.
pub(super) async fn next<T: Send + Sync + 'static>(
    reflector: &mut Reflector<T>,
    cache: &Cache<T>,
) -> Result<Vec<Event<T>>, RunError> {
    let ended = || RunError::ReflectorEnded { resource_type: cache.resource_type() };
    reflector.next().await.ok_or_else(ended)
}

/// Waits until the type was listed. The content is read from the cache.
pub(super) async fn prime<T: Send + Sync + 'static>(
    reflector: &mut Reflector<T>,
    cache: &Cache<T>,
) -> Result<(), RunError> {
    while !cache.has_synced() {
        next(reflector, cache).await?;
    }
    Ok(())
}

/// Keeps a cache up to date and returns when it can no longer be.
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
