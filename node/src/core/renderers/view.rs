//! The state of a renderer for users.

use std::{sync::Arc, time::Instant};

use jiff::Timestamp;
use serde::Serialize;

use super::schedule::{LastError, LastReport, Pending, RendererSchedule};
use crate::core::{history::milliseconds, verification::VerificationView};

/// The state of a renderer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RendererView {
    /// Its name.
    pub name: Arc<str>,
    /// Its state: `waiting` for the first snapshot, `idle`, `busy`, `slow` (busy for more than 10 s), `retrying` after a
    /// failure, or `damped` while a repair of repeated foreign changes is delayed.
    pub state: &'static str,
    /// Whether it has applied its first snapshot.
    pub ready: bool,
    /// The store's revision in its dataplane.
    pub applied_revision: i64,
    /// Its pending work: `nothing`, `changes`, `resync`, or `repair` of foreign changes.
    pub pending: &'static str,
    /// The number of changed services in its pending work.
    pub pending_services: usize,
    /// Since when it has been busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_since: Option<Timestamp>,
    /// The time until it is retried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<f64>,
    /// Failures since the last success.
    pub failures: u32,
    /// Whether foreign changes of its dataplane are detected.
    pub watched: bool,
    /// The number of foreign changes of its dataplane.
    pub foreign_changes: u64,
    /// Whether repairs are delayed because foreign changes are repeated.
    pub damped: bool,
    /// The time until the next repair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair_in_ms: Option<f64>,
    /// The last verification of its dataplane; none if it is not verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verification: Option<VerificationView>,
    /// The last call that succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_report: Option<LastReport>,
    /// The last call that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
}

impl RendererView {
    pub(super) fn of(
        renderer: &RendererSchedule,
        verification: Option<VerificationView>,
        now: Instant,
    ) -> Self {
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
            busy_since: renderer.busy.as_ref().map(|busy| busy.since.time),
            retry_in_ms: renderer.retry_at.map(until),
            failures: renderer.backoff.failures(),
            watched: renderer.is_watched,
            foreign_changes: renderer.repairs.total(),
            damped: renderer.repairs.is_damped(now),
            repair_in_ms: renderer.repairs.due().map(|due| until(due.at)),
            verification,
            last_report: renderer.last_report.clone(),
            last_error: renderer.last_error.clone(),
        }
    }
}
