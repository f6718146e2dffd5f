//! Reports the addresses of this node's interfaces to the node core.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use contiv_renderer::{LocalAddresses, LocalAddressesError};
use tokio::{sync::mpsc::Sender, time::sleep};
use tracing::warn;

use crate::node::Request;

/// The pause before the kernel is asked again after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The addresses at the start, so that the first snapshot has them already, and the watch that follows them.
///
/// Without them the agent still works with the addresses of the Node object and of the configuration.
pub(crate) async fn open() -> (BTreeSet<IpAddr>, Option<LocalAddresses>) {
    match LocalAddresses::open().await {
        Ok(addresses) => (addresses.current().clone(), Some(addresses)),
        Err(error) => {
            warn_of(&error);
            (BTreeSet::new(), None)
        }
    }
}

/// Follows the addresses until the node is gone.
pub(crate) async fn follow(mut addresses: Option<LocalAddresses>, requests: Sender<Request>) {
    loop {
        let changed = if let Some(addresses) = &mut addresses {
            addresses.changed().await.cloned()
        } else {
            sleep(RETRY_INTERVAL).await;
            reopen(&mut addresses).await
        };
        match changed {
            Ok(ips) => {
                if requests.send(Request::LocalAddresses(ips)).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                warn_of(&error);
                addresses = None;
            }
        }
    }
}

async fn reopen(addresses: &mut Option<LocalAddresses>) -> Result<BTreeSet<IpAddr>, LocalAddressesError> {
    Ok(addresses.insert(LocalAddresses::open().await?).current().clone())
}

fn warn_of(error: &LocalAddressesError) {
    warn!(%error, "the addresses of this node's interfaces are not followed; trying again");
}
