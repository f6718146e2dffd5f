//! Carries out the outputs of the core.

use std::collections::BTreeMap;

use contiv_agent::{health::HealthCheck, node::message::Work};
use contiv_model::ServiceId;
use contiv_renderer::{RenderError, Renderer, Report};

/// Lets a renderer do its work.
pub(crate) fn render(renderer: &mut dyn Renderer, work: &Work) -> Result<Report, RenderError> {
    match work {
        Work::Resync(snapshot) => renderer.resync(snapshot),
        Work::Update(changes) => renderer.update(changes),
        Work::Heal(snapshot) => renderer.heal(snapshot),
    }
}

/// Tells the server of health checks what changes.
pub(crate) fn update_health_checks(
    checks: &mut BTreeMap<ServiceId, HealthCheck>,
    changes: Vec<(ServiceId, Option<HealthCheck>)>,
) {
    for (id, check) in changes {
        match check {
            Some(check) => drop(checks.insert(id, check)),
            None => drop(checks.remove(&id)),
        }
    }
}
