//! The state of `contiv controller`, from its election and its controllers.

use contiv_controller::manager::Progress;

use super::{ProcessStatus, status_line};
use crate::controllers::{Observer, Reports};

/// Queries everything that must make progress.
pub(crate) async fn controllers_status(
    progress: Progress,
    observer: Observer,
    reports: Reports,
) -> Option<ProcessStatus> {
    if let Some(stall) = progress.stall().await {
        return Some(ProcessStatus::silent(stall.to_string()));
    }
    let leadership = observer.leadership();
    let waiting: Vec<&str> = reports
        .iter()
        .filter(|(_, report)| !report().has_synced)
        .map(|(name, _)| name.as_str())
        .collect();
    Some(ProcessStatus {
        alive: true,
        // A standby is ready too. Registries of a connector need not answer for that.
        ready: leadership.is_known && (leadership.is_leader || leadership.holder.is_some()),
        at_rest: true,
        status: status_line::controllers(&leadership, &waiting),
    })
}
