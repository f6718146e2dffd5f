//! The state of a renderer as it is shown to people.

use std::{sync::Arc, time::Instant};

use jiff::Timestamp;
use serde::Serialize;

use super::schedule::{LastError, LastReport, Pending, RendererSchedule};
use crate::node::core::{history::milliseconds, verification::VerificationView};

/// The state of a renderer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RendererView {
    /// Its name.
    pub name: Arc<str>,
    /// What it does: `waiting` for the first snapshot, `idle`, `busy`, `slow` (busy for more than 10 s), `retrying`
    /// after a failure, or `damped` while it waits to undo what others do again and again.
    pub state: &'static str,
    /// It has applied its first snapshot.
    pub ready: bool,
    /// The store's revision that its dataplane has.
    pub applied_revision: i64,
    /// What waits for it: `nothing`, `changes`, `resync`, or `repair` of what others did.
    pub pending: &'static str,
    /// How many changed services wait for it.
    pub pending_services: usize,
    /// Since when it has been busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_since: Option<Timestamp>,
    /// After how long it is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<f64>,
    /// Failures since the last success.
    pub failures: u32,
    /// Changes of others to its dataplane are noticed.
    pub watched: bool,
    /// How often others have changed its dataplane.
    pub foreign_changes: u64,
    /// Others do so again and again, and repairs wait.
    pub damped: bool,
    /// After how long the next repair is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair_in_ms: Option<f64>,
    /// How its dataplane was when it was last verified; none if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verification: Option<VerificationView>,
    /// The last call that succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_report: Option<LastReport>,
    /// The last call that did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
}

impl RendererView {
    pub(super) fn of(renderer: &RendererSchedule, now: Instant) -> Self {
        let (pending, pending_services) = match &renderer.pending {
            Pending::Nothing if renderer.repairs.due().is_some() => ("repair", 0),
            Pending::Nothing => ("nothing", 0),
            Pending::Changes { changes, .. } => ("changes", changes.services.len()),
            Pending::Resync { .. } => ("resync", 0),
        };
        let state = match &renderer.busy {
            Some(busy) if busy.is_slow => "slow",
            Some(_) => "busy",
            None if renderer.retry_at.is_some() => "retrying",
            None if !renderer.is_ready => "waiting",
            None if renderer.repairs.due().is_some() => "damped",
            None => "idle",
        };
        let until = |at: Instant| milliseconds(at.saturating_duration_since(now));
        Self {
            name: Arc::clone(&renderer.name),
            state,
            ready: renderer.is_ready,
            applied_revision: renderer.applied_revision,
            pending,
            pending_services,
            busy_since: renderer.busy.as_ref().map(|busy| busy.started),
            retry_in_ms: renderer.retry_at.map(until),
            failures: renderer.backoff.failures(),
            watched: renderer.is_watched,
            foreign_changes: renderer.repairs.total(),
            damped: renderer.repairs.is_damped(now),
            repair_in_ms: renderer.repairs.due().map(|due| until(due.at)),
            verification: None,
            last_report: renderer.last_report.clone(),
            last_error: renderer.last_error.clone(),
        }
    }
}
