//! Executes the outputs of the core, and collects the health checks and metrics that the agent reports.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use contiv_model::ServiceId;
use contiv_node::{
    health::{HealthCheck, HealthUpdate},
    message::{Watch, Work},
};
use contiv_renderer::{RenderError, Renderer, Report};

use crate::metrics::Metrics;

/// Calls a renderer for a unit of work.
pub(crate) fn render(renderer: &mut dyn Renderer, work: &Work) -> Result<Report, RenderError> {
    match work {
        Work::Resync(snapshot) => renderer.resync(snapshot),
        Work::Update(changes) => renderer.update(changes),
        Work::Heal(snapshot) => renderer.heal(snapshot),
    }
}

/// The receivers of outputs.
#[derive(Debug, Default)]
pub(crate) struct Receivers {
    pub(crate) health_checks: HealthChecks,
    pub(crate) metrics: Metrics,
    /// The backends whose attempts are counted.
    pub(crate) watched: BTreeMap<SocketAddr, Watch>,
}

impl Receivers {
    /// Changes which backends are watched.
    pub(crate) fn watch(
        &mut self,
        changes: BTreeMap<SocketAddr, Option<Watch>>,
    ) -> Result<(), String> {
        for (backend, watch) in changes {
            let before = match watch {
                Some(watch) => self.watched.insert(backend, watch),
                None => self.watched.remove(&backend),
            };
            if before == watch {
                return Err(format!("{backend} is to be watched as it is"));
            }
        }
        Ok(())
    }
}

/// The health checks that the agent serves.
#[derive(Debug, Default)]
pub(crate) struct HealthChecks {
    pub(crate) services: BTreeMap<ServiceId, HealthCheck>,
    /// The addresses on which they are served.
    pub(crate) node_ips: BTreeSet<IpAddr>,
}

impl HealthChecks {
    /// Applies an update.
    pub(crate) fn update(&mut self, HealthUpdate { services, node_ips }: HealthUpdate) {
        for (id, check) in services {
            match check {
                Some(check) => drop(self.services.insert(id, check)),
                None => drop(self.services.remove(&id)),
            }
        }
        self.node_ips = node_ips.unwrap_or_else(|| std::mem::take(&mut self.node_ips));
    }
}
