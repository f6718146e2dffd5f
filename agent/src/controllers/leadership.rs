//! Who is the active instance, for those who ask.

use std::sync::Arc;

use contiv_controller::{Cache, Lease, ResourceType, reflector::Reflector};
use contiv_store::Store;
use serde::Serialize;
use tokio_util::task::AbortOnDropHandle;

use crate::config::controller::ELECTION_KEY;

/// What can be said of the election at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Leadership {
    /// Whether this instance is the active one.
    pub leads: bool,
    /// What the active instance calls itself; none while there is none, or before it is known.
    pub holder: Option<String>,
    /// Whether the store was reached once.
    pub is_known: bool,
    /// Why the store cannot be followed at the moment, if it cannot.
    pub store_down: Option<String>,
}

/// Follows the election, on a task of its own that ends with the last clone of it.
#[derive(Debug, Clone)]
pub(crate) struct Observer {
    lease: Lease,
    holder: Cache<String>,
    _following: Arc<AbortOnDropHandle<()>>,
}

impl Observer {
    /// Must be called within a tokio runtime.
    pub(crate) fn start(store: Arc<dyn Store>, lease: Lease) -> Self {
        // The election writes the identity and, after a space, the lease.
        let elections = ResourceType::new("election", ELECTION_KEY, |entry| {
            let value = std::str::from_utf8(&entry.value)?;
            let identity = value.rsplit_once(' ').map_or(value, |(identity, _)| identity);
            Ok::<_, std::str::Utf8Error>(identity.to_owned())
        });
        let (mut reflector, holder) = Reflector::start(store, &elections, Vec::new());
        let following = tokio::spawn(async move { while reflector.next().await.is_some() {} });
        Self { lease, holder, _following: Arc::new(AbortOnDropHandle::new(following)) }
    }

    pub(crate) fn leadership(&self) -> Leadership {
        let is_known = self.holder.has_synced();
        let holder = self.holder.view();
        Leadership {
            leads: self.lease.held(),
            holder: holder.get(ELECTION_KEY).map(|holder| holder.value.clone()),
            is_known,
            store_down: holder.down().map(str::to_owned),
        }
    }
}
