//! Hooks that are called when a controller begins and ends.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::BoxError;

/// A hook that is awaited before the reconcilers start, or runs concurrently with them.
pub(super) type HookFn<A> =
    Arc<dyn Fn(A) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;
pub(super) type NotifyFn = Arc<dyn Fn() + Send + Sync>;
