//! The state of an agent.

use contiv_model::ServiceId;

use crate::cli::views::{EventView, QuarantinedView, RendererStateView, SizesView, StatusView};

/// How many services are shown.
pub(super) const SERVICES: usize = 5;

/// The answers of the agent, decoded.
#[derive(Debug)]
pub(super) struct Overview {
    pub(super) status: StatusView,
    pub(super) sizes: SizesView,
    pub(super) renderers: Vec<RendererStateView>,
    pub(super) quarantine: Vec<QuarantinedView>,
    pub(super) connections: Result<Vec<(ServiceId, u64)>, String>,
    /// New connections that no backend could serve.
    pub(super) refused: u64,
    pub(super) history: Vec<EventView>,
}

impl Overview {
    pub(super) fn is_good(&self) -> bool {
        let status = &self.status;
        status.ready
            && status.store_down.is_none()
            && status.held_deletions.is_none()
            && self.quarantine.is_empty()
            && self.sizes.services_with_lost_frontends == 0
            && self.renderers.iter().all(|renderer| renderer.failures == 0 && renderer.state != "slow")
    }
}
