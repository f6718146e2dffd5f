//! The content of the page.

use std::sync::Arc;

use contiv_model::{ContivService, UnservedService};
use contiv_node::metrics::ServiceSizes;
use contiv_node::{FailoverStatus, Quarantined, Record, RendererView, Status, Warning};
use contiv_renderer::{ForwardingOff, shared_tables::TableProblem};

use crate::{
    counters::ServiceConnections,
    health::{AgentHealth, HealthFacts, is_failing},
};

/// The content of the page.
pub(super) struct Content {
    pub(super) status: Status,
    pub(super) forwarding_off: Vec<ForwardingOff>,
    pub(super) table_problems: Vec<TableProblem>,
    pub(super) sizes: ServiceSizes,
    pub(super) renderers: Vec<RendererView>,
    pub(super) services: Vec<Arc<ContivService>>,
    /// Stored services that are not served.
    pub(super) unserved: Vec<UnservedService>,
    /// None if nothing is counted.
    pub(super) connections: Option<Vec<ServiceConnections>>,
    pub(super) quarantine: Vec<Quarantined>,
    pub(super) warnings: Vec<Warning>,
    pub(super) history: Vec<Record>,
}

impl Content {
    /// As `contiv status` has it.
    pub(super) fn health(&self) -> AgentHealth {
        let is_failing = |renderer: &&RendererView| is_failing(renderer.failures, renderer.state);
        AgentHealth::of(HealthFacts {
            is_ready: self.status.ready,
            is_store_down: self.status.store_down.is_some(),
            holds_deletions: self.status.held_deletions.is_some(),
            quarantined: self.status.quarantined,
            lost_frontends: self.sizes.services_with_lost_frontends,
            drift: self.drift(),
            failing_renderers: self.renderers.iter().filter(is_failing).count(),
            forwarding_off: self.forwarding_off.len(),
            table_problems: self.table_problems.len(),
            failover_errors: usize::from(self.failover().is_some_and(|it| it.error.is_some())),
            node_problems: usize::from(self.status.node_problem.is_some()),
        })
    }

    /// The state of failover, if a service has it.
    pub(super) const fn failover(&self) -> Option<&FailoverStatus> {
        self.status.failover.as_ref()
    }

    /// How many elements of the kernel differ, by the last verification.
    pub(super) fn drift(&self) -> usize {
        self.renderers
            .iter()
            .filter_map(|renderer| renderer.verification.as_ref())
            .map(|it| it.drift)
            .sum()
    }

    /// New connections that no backend could serve, of all services. None if nothing is counted.
    pub(super) fn refused(&self) -> Option<u64> {
        Some(self.connections.as_ref()?.iter().map(|of| of.refused).sum())
    }
}
