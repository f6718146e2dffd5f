//! When the dataplane of each renderer is verified, and the results. Pure: `verifier_thread` reads the kernel.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use contiv_renderer::{Confirmation, Deviation, Drift, Rejected, Verification};
use jiff::Timestamp;
use serde::Serialize;

use super::history::milliseconds;
use crate::message::{Now, VerifierReport};

/// The pause between two readings of one verification.
const REREAD_DELAY: Duration = Duration::from_millis(300);
/// How many deviations are shown.
const MAX_SHOWN: usize = 20;

/// When dataplanes are verified, and whether they are repaired.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VerificationConfig {
    /// The interval of verifications; none disables them.
    pub interval: Option<Duration>,
    /// Whether a renderer whose dataplane has drifted is resynced.
    pub resync_on_drift: bool,
}

/// The last verification of a renderer's dataplane.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct VerificationView {
    /// The number of verifications.
    pub verifications: u64,
    /// When the last one ended; none before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// The duration of its last reading of the kernel.
    pub duration_ms: f64,
    /// The number of compared elements.
    pub checked: usize,
    /// The number of deviations.
    pub drift: usize,
    /// The first deviations.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Drift>,
    /// Why the kernel could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The result of a verification.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct VerificationResult {
    /// The deviations found in every reading.
    pub(super) drift: BTreeSet<Drift>,
    /// Whether the verification before found some.
    pub(super) had_drift: bool,
}

/// The verifications of all renderers that support it.
#[derive(Debug)]
pub(super) struct Verifications {
    interval: Duration,
    all: Vec<RendererVerification>,
}

#[derive(Debug)]
struct RendererVerification {
    renderer: Arc<str>,
    is_busy: bool,
    /// After how many calls of the renderer the last reading began.
    read_after: u64,
    next: Instant,
    confirmation: Confirmation,
    view: VerificationView,
}

impl Verifications {
    /// For these renderers; without an interval nothing is verified.
    pub(super) fn new(renderers: Vec<Arc<str>>, interval: Option<Duration>, now: Instant) -> Self {
        let Some(interval) = interval else {
            return Self {
                interval: Duration::ZERO,
                all: Vec::new(),
            };
        };
        let new = |renderer| RendererVerification {
            renderer,
            is_busy: false,
            read_after: 0,
            next: now + interval,
            confirmation: Confirmation::default(),
            view: VerificationView::default(),
        };
        Self {
            interval,
            all: renderers.into_iter().map(new).collect(),
        }
    }

    /// When the next reading is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.all
            .iter()
            .filter(|state| !state.is_busy)
            .map(|state| state.next)
            .min()
    }

    /// The renderers to be read now. `calls_if_settled` returns after how many calls one has applied everything. Others wait: changes
    /// that are not applied yet would look like deviations.
    pub(super) fn take_due(
        &mut self,
        now: Instant,
        calls_if_settled: impl Fn(&str) -> Option<u64>,
    ) -> Vec<Arc<str>> {
        let mut due = Vec::new();
        for state in self
            .all
            .iter_mut()
            .filter(|state| !state.is_busy && state.next <= now)
        {
            state.next = now + REREAD_DELAY;
            let calls_if_settled = calls_if_settled(&state.renderer);
            state.is_busy = calls_if_settled.is_some();
            if let Some(calls) = calls_if_settled {
                state.read_after = calls;
                due.push(Arc::clone(&state.renderer));
            }
        }
        due
    }

    /// Handles the result of a reading, which is discarded unless the renderer has applied everything (`calls_if_settled`). Services
    /// that it has rejected are not expected in the kernel. None if another reading is needed, an error if the kernel could not be read.
    pub(super) fn on_report(
        &mut self,
        report: VerifierReport,
        calls_if_settled: Option<u64>,
        rejected: &[Rejected],
        now: Now,
    ) -> Option<Result<VerificationResult, String>> {
        let interval = self.interval;
        let state = self
            .all
            .iter_mut()
            .find(|state| state.renderer == report.renderer)?;
        state.is_busy = false;
        state.next = now.instant + REREAD_DELAY;
        let during_changes = calls_if_settled? != state.read_after;
        let view = &mut state.view;
        let found = match report.result {
            Err(error) => Err(error),
            Ok(Verification { checked, mut drift }) => {
                view.checked = checked;
                drift.retain(|drift| !is_due_to(rejected, drift));
                Ok(state.confirmation.add(drift, during_changes)?)
            }
        };
        let had_drift = view.drift > 0;
        view.error = found.as_ref().err().cloned();
        if let Ok(drift) = &found {
            view.drift = drift.len();
            view.examples = drift.iter().take(MAX_SHOWN).cloned().collect();
        }
        view.verifications += 1;
        view.at = Some(now.time);
        view.duration_ms = milliseconds(report.duration);
        state.confirmation = Confirmation::default();
        state.next = now.instant + interval;
        Some(found.map(|drift| VerificationResult { drift, had_drift }))
    }

    /// The last verification of a renderer; none if it is not verified.
    pub(super) fn view(&self, renderer: &str) -> Option<VerificationView> {
        self.all
            .iter()
            .find(|state| &*state.renderer == renderer)
            .map(|state| state.view.clone())
    }
}

/// The last good state of a rejected service may be active instead, of which the snapshot has nothing.
fn is_due_to(rejected: &[Rejected], drift: &Drift) -> bool {
    match &drift.service {
        Some(service) => rejected.iter().any(|rejected| rejected.service == *service),
        None => !rejected.is_empty() && drift.deviation == Deviation::Foreign,
    }
}

#[cfg(test)]
mod tests;
