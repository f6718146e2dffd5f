//! The state of an agent.

use contiv_model::ServiceId;

use crate::{
    cli::source::views::{
        EventView, LostFrontendView, QuarantinedView, RendererStateView, SizesView, StatusView,
        WarningView,
    },
    health::{AgentHealth, HealthFacts, RendererFacts},
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
    /// What decides whether it is healthy.
    pub(super) fn health_facts(&self) -> HealthFacts<'_> {
        let Self { status, sizes, .. } = self;
        let down = status.store_down.as_ref();
        HealthFacts {
            is_ready: status.ready,
            is_synced: status.synced,
            store_down: down.map(|down| (down.since, &*down.reason)),
            holds_deletions: status.held_deletions.is_some(),
            node_problem: status.node_problem.as_deref(),
            forwarding_off: &status.forwarding_off,
            table_problems: &status.table_problems,
            self_check: (status.self_check.as_ref()).map(|it| (it.since, &*it.reason)),
            failover: status.failover.as_ref(),
            renderers: self.renderers.iter().map(RendererFacts::from).collect(),
            quarantined: status.quarantined,
            first_quarantined: self.quarantine.first().map(QuarantinedView::summary),
            conflicts: sizes.services_with_lost_frontends,
            first_conflict: sizes.lost_frontends.first().map(
                |LostFrontendView {
                     service,
                     frontend,
                     holder,
                 }| (service, *frontend, holder),
            ),
        }
    }

    pub(super) fn health(&self) -> AgentHealth {
        self.health_facts().health()
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

impl<'a> From<&'a RendererStateView> for RendererFacts<'a> {
    fn from(renderer: &'a RendererStateView) -> Self {
        let verification = renderer.verification.as_ref();
        Self {
            name: &renderer.name,
            state: &renderer.state,
            failures: renderer.failures,
            last_error: renderer
                .last_error
                .as_ref()
                .map(|last| (last.at, &*last.error)),
            verified: verification.map(|it| (it.checked, it.drift)),
        }
    }
}
