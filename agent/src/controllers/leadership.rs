//! Reports which instance is active.

use std::sync::Arc;

use contiv_controller::{Cache, Lease, ResourceType, reflector::Reflector};
use contiv_store::Store;
use serde::Serialize;
use tokio_util::task::AbortOnDropHandle;

use crate::config::controller::ELECTION_KEY;

/// The state of the election at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Leadership {
    /// Whether this instance is the active one.
    #[serde(rename = "leads")]
    pub is_leader: bool,
    /// The identity of the active instance; none if there is none, or it is unknown.
    pub holder: Option<String>,
    /// Whether the store was reached at least once.
    pub is_known: bool,
    /// Why the store cannot be watched at the moment, if it cannot.
    pub store_down: Option<String>,
}

/// Watches the election in its own task, which ends when the last clone is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Observer {
    lease: Lease,
    holder: Cache<String>,
    _task: Arc<AbortOnDropHandle<()>>,
}

impl Observer {
    /// Must be called within a tokio runtime.
    pub(crate) fn start(store: Arc<dyn Store>, lease: Lease) -> Self {
        // The value of an election is the identity and, after a space, the lease.
        let elections = ResourceType::new("election", ELECTION_KEY, |entry| {
            let value = std::str::from_utf8(&entry.value)?;
            let identity = value
                .rsplit_once(' ')
                .map_or(value, |(identity, _)| identity);
            Ok::<_, std::str::Utf8Error>(identity.to_owned())
        });
        let (mut reflector, holder) = Reflector::start(store, &elections);
        let task = tokio::spawn(async move { while reflector.next().await.is_some() {} });
        Self {
            lease,
            holder,
            _task: Arc::new(AbortOnDropHandle::new(task)),
        }
    }

    pub(crate) fn leadership(&self) -> Leadership {
        let is_known = self.holder.has_synced();
        let holder = self.holder.view();
        Leadership {
            is_leader: self.lease.is_held(),
            holder: holder.get(ELECTION_KEY).map(|holder| holder.value.clone()),
            is_known,
            store_down: holder.down().map(str::to_owned),
        }
    }
}
