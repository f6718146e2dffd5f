//! Log lines about settings that keep packets from being forwarded: nothing else tells of them until someone asks.

use std::time::Duration;

use tokio::time::sleep;
use tracing::{info, warn};

use super::{Api, error::ApiError};

/// How often the settings are read.
const INTERVAL: Duration = Duration::from_secs(30);
/// When they are read first: most agents are ready then.
const FIRST: Duration = Duration::from_secs(2);

/// Logs each change until the node core has ended.
pub(crate) async fn log_forwarding(api: Api) {
    let (mut known, mut pause) = (Vec::new(), FIRST);
    loop {
        sleep(pause).await;
        pause = INTERVAL;
        let off = match api.forwarding_off().await {
            Ok(off) => off,
            Err(ApiError::Stopping) => return,
            Err(_) => continue,
        };
        for new in off.iter().filter(|off| !known.contains(*off)) {
            warn!("{new}");
        }
        for gone in known.iter().filter(|known| !off.contains(*known)) {
            info!(
                setting = gone.setting,
                "packets are forwarded again, or no service needs it any more"
            );
        }
        known = off;
    }
}
