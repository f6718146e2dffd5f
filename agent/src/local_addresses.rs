//! Reports this node's interfaces and their addresses to the node core.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use contiv_model::LocalInterfaces;
use contiv_node::Input;
use contiv_renderer::{LocalAddresses, LocalAddressesError};
use tokio::{sync::mpsc::Sender, time::sleep};
use tracing::warn;

use crate::drivers::Request;

/// The pause before the watch is opened again after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The addresses of this node's interfaces.
#[derive(Debug, Clone, Default)]
pub(crate) struct Local {
    /// All of their addresses.
    pub(crate) addresses: BTreeSet<IpAddr>,
    /// None if the kernel did not say.
    pub(crate) interfaces: Option<LocalInterfaces>,
}

impl Local {
    fn of(watch: &LocalAddresses) -> Self {
        Self {
            addresses: watch.current().clone(),
            interfaces: Some(watch.interfaces().clone()),
        }
    }
}

/// The state at the start, so that the first snapshot has it already, and the watch of later changes.
///
/// Without it the agent still works with the addresses of the Node object and of the configuration.
pub(crate) async fn open() -> (Local, Option<LocalAddresses>) {
    match LocalAddresses::open().await {
        Ok(watch) => (Local::of(&watch), Some(watch)),
        Err(error) => {
            warn_of(&error);
            (Local::default(), None)
        }
    }
}

/// Reports differences from `known` until the node core has ended.
pub(crate) async fn report_changes(
    mut watch: Option<LocalAddresses>,
    mut known: Local,
    requests: Sender<Request>,
) {
    loop {
        let changed = if let Some(watch) = &mut watch {
            watch.changed().await.map(|()| Local::of(watch))
        } else {
            sleep(RETRY_INTERVAL).await;
            reopen(&mut watch).await
        };
        match changed {
            Ok(local) => {
                if report(&known, &local, &requests).await.is_none() {
                    return;
                }
                known = local;
            }
            Err(error) => {
                warn_of(&error);
                watch = None;
            }
        }
    }
}

/// None if the node core has ended.
async fn report(known: &Local, local: &Local, requests: &Sender<Request>) -> Option<()> {
    if known.addresses != local.addresses {
        requests
            .send(Request::Input(Input::LocalAddresses(
                local.addresses.clone(),
            )))
            .await
            .ok()?;
    }
    if let Some(interfaces) = local
        .interfaces
        .as_ref()
        .filter(|new| known.interfaces.as_ref() != Some(*new))
    {
        requests
            .send(Request::Input(Input::LocalInterfaces(interfaces.clone())))
            .await
            .ok()?;
    }
    Some(())
}

async fn reopen(watch: &mut Option<LocalAddresses>) -> Result<Local, LocalAddressesError> {
    Ok(Local::of(watch.insert(LocalAddresses::open().await?)))
}

fn warn_of(error: &LocalAddressesError) {
    warn!(%error, "failed to watch the addresses of this node's interfaces; trying again");
}
