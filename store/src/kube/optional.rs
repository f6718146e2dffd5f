//! Types that an API server may not have: those of custom resource definitions.
//!
//! A server without the type (HTTP 404), and one that does not let this client read it (403; also the answer to a client without
//! the permission on a server without the type), has no objects of it. That is no outage: the other types are followed, and the
//! type is looked for from time to time.

use std::time::Duration;

use futures::{Stream, stream};
use parking_lot::Mutex;
use tokio::time::sleep;
use tracing::{info, warn};

use super::{
    client::Client,
    failure::{Denial, Failure},
    list::newest_version,
    resource::Resource,
    watch::{ResourceEvent, expired},
};
use crate::StoreError;

/// How often a missing type is looked for.
const LOOK_INTERVAL: Duration = if cfg!(test) {
    Duration::from_millis(100)
} else {
    Duration::from_secs(300)
};

/// Whether the API server has the optional type. A lock, held for one comparison.
#[derive(Debug, Default)]
pub(super) struct OptionalType(Mutex<Option<bool>>);

impl OptionalType {
    /// Records that the type was listed.
    pub(super) fn mark_found(&self, resource: &Resource) {
        if self.0.lock().replace(true) == Some(false) {
            info!(
                resource = resource.name(),
                "the API server has the type now"
            );
        }
    }

    /// A list was denied. False if it counts as a failure: a type that was readable is not empty because a permission is gone.
    pub(super) fn is_missing(&self, resource: &Resource, denial: &Denial) -> bool {
        let mut known = self.0.lock();
        if *known == Some(true) && !denial.is_missing {
            return false;
        }
        if known.replace(false) == Some(false) {
            return true;
        }
        let (resource, error) = (resource.name(), &denial.error);
        if denial.is_missing {
            info!(
                resource,
                "the API server does not have the type; it is looked for every {LOOK_INTERVAL:?}"
            );
        } else {
            warn!(resource, %error, "the type is left out; it is looked for every {LOOK_INTERVAL:?}");
        }
        true
    }
}

/// Ends with an expired version as soon as the API server has the type, so that it is listed.
pub(super) fn wait_for_type(
    client: Client,
    resource: Resource,
    revision: i64,
) -> impl Stream<Item = Result<ResourceEvent, StoreError>> + Send {
    stream::once(async move {
        loop {
            sleep(LOOK_INTERVAL).await;
            match newest_version(&client, &resource).await {
                Ok(_) | Err(Failure::Gone | Failure::TooNew) => return Err(expired(revision)),
                Err(Failure::Denied(_)) => {}
                Err(Failure::Store(error)) => return Err(error),
            }
        }
    })
}
