//! Checks that no active object goes back to an older revision: clients write each endpoint once, in rising order, so the
//! newest endpoint of a service shows how old its active state is.

use std::{collections::BTreeMap, net::IpAddr};

use contiv_agent::node::Core;
use contiv_model::ServiceId;

/// The newest endpoint that each service has had.
#[derive(Debug, Default)]
pub(crate) struct NewestEndpoints {
    of: BTreeMap<ServiceId, IpAddr>,
    /// Older states are allowed until the agent has applied the whole store again.
    is_void: bool,
}

impl NewestEndpoints {
    /// The store was restored from a backup, or the disk lost unsynced data.
    pub(crate) fn forget(&mut self) {
        self.of.clear();
        self.is_void = true;
    }

    /// Compares the active services. `has_all`: the agent has applied the whole store.
    pub(crate) fn check(&mut self, core: &Core, has_all: bool) -> Result<(), String> {
        self.is_void &= !has_all;
        if self.is_void {
            return Ok(());
        }
        for service in core.services() {
            let backends = service.ports.iter().flat_map(|port| &port.backends);
            let Some(active) = backends.map(|backend| backend.address).max() else { continue };
            let newest = self.of.entry(service.id.clone()).or_insert(active);
            if active < *newest {
                return Err(format!("service {} went back to endpoint {active} after {newest}", service.id));
            }
            *newest = active;
        }
        Ok(())
    }
}
