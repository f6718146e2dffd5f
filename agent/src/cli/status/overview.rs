//! The state of an agent.

use contiv_model::ServiceId;

use crate::cli::views::{EventView, QuarantinedView, RendererStateView, SizesView, StatusView};

/// How many services are shown.
pub(super) const TOP_SERVICES: usize = 5;

/// The answers of the agent, decoded.
#[derive(Debug)]
pub(super) struct Overview {
    pub(super) status: StatusView,
    pub(super) sizes: SizesView,
    pub(super) renderers: Vec<RendererStateView>,
    pub(super) quarantine: Vec<QuarantinedView>,
    /// New connections of the services with the most, or why they are unknown.
    pub(super) connections: Result<Vec<(ServiceId, u64)>, String>,
    /// New connections that no backend could serve.
    pub(super) refused: u64,
    pub(super) history: Vec<EventView>,
}

impl Overview {
    pub(super) fn is_healthy(&self) -> bool {
        let status = &self.status;
        status.ready
            && status.store_down.is_none()
            && status.held_deletions.is_none()
            && self.quarantine.is_empty()
            && self.sizes.services_with_lost_frontends == 0
            && self.drift().unwrap_or(0) == 0
            && self.renderers.iter().all(|renderer| renderer.failures == 0 && renderer.state != "slow")
    }

    /// How many revisions the store is ahead of the renderer that is furthest behind. A renderer with nothing to do is not behind,
    /// though its revision may be older: not every revision affects it.
    pub(super) fn lag(&self) -> i64 {
        let is_done = |renderer: &&RendererStateView| {
            matches!(renderer.pending.as_str(), "nothing" | "") && renderer.state == "idle"
        };
        let behind = self.renderers.iter().filter(|renderer| !is_done(renderer));
        behind.map(|renderer| self.status.revision - renderer.applied_revision).max().unwrap_or(0).max(0)
    }

    /// How many elements of the kernel were found to differ from what services need; none if that is not verified.
    pub(super) fn drift(&self) -> Option<usize> {
        let verified = self.renderers.iter().filter_map(|renderer| renderer.verification.as_ref());
        verified.map(|verification| verification.drift).reduce(|one, other| one + other)
    }
}
