//! The state of an agent.

use contiv_model::ServiceId;

use crate::{
    cli::source::views::{
        EventView, QuarantinedView, RendererStateView, SizesView, StatusView, WarningView,
    },
    health::{AgentHealth, HealthFacts, is_failing},
};

/// How many services are shown.
pub(super) const TOP_SERVICES: usize = 5;

/// The answers of the agent, decoded.
#[derive(Debug)]
pub(super) struct Overview {
    pub(super) status: StatusView,
    pub(super) sizes: SizesView,
    pub(super) renderers: Vec<RendererStateView>,
    pub(super) quarantine: Vec<QuarantinedView>,
    /// They are no reason for attention: the objects are used as kube-proxy would use them.
    pub(super) warnings: Vec<WarningView>,
    /// New connections of the services with the most, or why they are unknown.
    pub(super) connections: Result<Vec<(ServiceId, u64)>, String>,
    /// Attempts to connect that were refused since there was no backend.
    pub(super) refused: u64,
    pub(super) history: Vec<EventView>,
}

impl Overview {
    pub(super) fn health(&self) -> AgentHealth {
        let status = &self.status;
        let is_failing =
            |renderer: &&RendererStateView| is_failing(renderer.failures, &renderer.state);
        AgentHealth::of(HealthFacts {
            is_ready: status.ready,
            is_store_down: status.store_down.is_some(),
            holds_deletions: status.held_deletions.is_some(),
            quarantined: status.quarantined,
            lost_frontends: self.sizes.services_with_lost_frontends,
            drift: self.drift().unwrap_or(0),
            failing_renderers: self.renderers.iter().filter(is_failing).count(),
            forwarding_off: status.forwarding_off.len(),
            table_problems: status.table_problems.len(),
            failover_errors: usize::from(status.failover_problem().is_some()),
            node_problems: usize::from(status.node_problem.is_some()),
        })
    }

    pub(super) fn is_healthy(&self) -> bool {
        self.health() == AgentHealth::Healthy
    }

    /// How many revisions the store is ahead of the renderer that is furthest behind. A renderer with nothing to do is not behind,
    /// though its revision may be older: not every revision affects it.
    pub(super) fn lag(&self) -> i64 {
        let is_done = |renderer: &&RendererStateView| {
            matches!(renderer.pending.as_str(), "nothing" | "") && renderer.state == "idle"
        };
        let behind = self.renderers.iter().filter(|renderer| !is_done(renderer));
        behind
            .map(|renderer| self.status.revision - renderer.applied_revision)
            .max()
            .unwrap_or(0)
            .max(0)
    }

    /// How many elements of the kernel were found to differ from what services need; none if that is not verified.
    pub(super) fn drift(&self) -> Option<usize> {
        let verified = self
            .renderers
            .iter()
            .filter_map(|renderer| renderer.verification.as_ref());
        verified
            .map(|verification| verification.drift)
            .reduce(|one, other| one + other)
    }
}
