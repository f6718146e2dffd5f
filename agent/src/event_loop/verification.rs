//! What the loop does to verify dataplanes, and when one has drifted.

use std::{collections::BTreeSet, sync::Arc};

use contiv_renderer::Drift;
use tracing::{info, warn};

use super::{
    EventLoop,
    verifiers::{Looked, Verdict},
};

/// How many things that are wrong are named in the log and in the history.
const NAMED: usize = 3;

impl EventLoop {
    /// Looks at the dataplanes whose time has come.
    pub(super) fn verify_due(&mut self) {
        let mut shared = None;
        for renderer in self.verifiers.due() {
            // What is not programmed yet cannot be there.
            if self.store.is_synced && self.renderers.is_settled(&renderer) {
                let snapshot = shared
                    .get_or_insert_with(|| Arc::new(self.handover.corrected(self.processor.snapshot())));
                self.verifiers.look(&renderer, Arc::clone(snapshot));
            } else {
                self.verifiers.postpone(&renderer);
            }
        }
    }

    /// Takes in what a look has shown.
    pub(super) fn take_look(&mut self, looked: Looked) {
        let renderer = Arc::clone(&looked.renderer);
        let counts = self.renderers.is_settled(&renderer);
        let had_drift = self.verifiers.view(&renderer).is_some_and(|view| view.drift > 0);
        let verdict = self.verifiers.take(looked, counts, self.renderers.rejected(&renderer));
        match verdict {
            Verdict::Open => {}
            Verdict::Good => {
                self.renderers.verified(&renderer, 0);
                if had_drift {
                    info!(renderer = &*renderer, "the dataplane is as it must be again");
                }
            }
            Verdict::Failed(error) => {
                warn!(renderer = &*renderer, error, "the dataplane could not be verified");
            }
            Verdict::Drift(drift) => self.take_drift(&renderer, &drift),
        }
    }

    fn take_drift(&mut self, renderer: &Arc<str>, drift: &BTreeSet<Drift>) {
        self.renderers.verified(renderer, drift.len());
        let what = describe(drift);
        let count = drift.len();
        let heals = self.heals_drift;
        let then = if heals { "programming everything again" } else { "leaving it, as verify-heal says" };
        warn!(renderer = &**renderer, count, what, "the dataplane is not as it must be; {then}");
        let description = format!("dataplane of renderer {renderer} is not as it must be: {what}; {then}");
        let renderers = if heals { vec![Arc::clone(renderer)] } else { Vec::new() };
        let event = self.record("drift", description, None, renderers);
        if heals {
            self.renderers.retry(renderer, event);
            self.dispatch();
        }
    }
}

/// The first few, in words.
fn describe(drift: &BTreeSet<Drift>) -> String {
    let named = drift.iter().take(NAMED).map(ToString::to_string);
    let more = drift.len().saturating_sub(NAMED);
    let more = (more > 0).then(|| format!("{more} more"));
    named.chain(more).collect::<Vec<_>>().join("; ")
}
