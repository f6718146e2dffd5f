//! The state shared by the server and the test.

use parking_lot::Mutex;
use tokio::sync::watch;

use super::state::State;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    /// Counts changes and wakes waiting queries.
    pub(super) changed: watch::Sender<u64>,
    /// Counts restarts; connections of an earlier count end. None when the server has ended.
    pub(super) connection_epoch: watch::Sender<Option<u64>>,
}
