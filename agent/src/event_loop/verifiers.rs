//! The verifiers: each reads the dataplane of one renderer back from the kernel, on a thread of its own, so that it holds
//! up nobody.

use std::{
    collections::BTreeSet,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use contiv_model::Snapshot;
use contiv_renderer::{Confirmation, Deviation, Drift, Rejected, Verification, Verifier};
use jiff::Timestamp;
use serde::Serialize;
use tokio::{sync::mpsc, time::Instant};

use super::{history::milliseconds, renderers::RendererSpec};

/// Between two looks of one verification.
const PAUSE: Duration = Duration::from_millis(300);
/// How many things that are wrong are shown.
const SHOWN: usize = 20;

/// When dataplanes are verified, and what comes of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VerificationConfig {
    /// The time between two verifications; none for never.
    pub interval: Option<Duration>,
    /// A renderer whose dataplane has drifted gets everything again.
    pub heal: bool,
}

/// The last verification of a renderer's dataplane.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct VerificationView {
    /// How many have been made.
    pub verifications: u64,
    /// When the last one ended; none before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// How long its last look at the kernel took.
    pub duration_ms: f64,
    /// How many things were compared.
    pub checked: usize,
    /// How many of them are not as they must be.
    pub drift: usize,
    /// The first of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Drift>,
    /// Why the kernel could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What one look has shown.
#[derive(Debug)]
pub(super) struct Looked {
    pub(super) renderer: Arc<str>,
    result: Result<Verification, String>,
    duration: Duration,
}

/// What a verification has come to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It takes another look.
    Open,
    /// All is as it must be.
    Good,
    /// It is not: what was wrong at every look.
    Drift(BTreeSet<Drift>),
    /// The kernel could not be read.
    Failed(String),
}

/// All of them.
#[derive(Debug)]
pub(super) struct Verifiers {
    interval: Duration,
    all: Vec<State>,
}

#[derive(Debug)]
struct State {
    renderer: Arc<str>,
    looks: SyncSender<Arc<Snapshot>>,
    is_busy: bool,
    next: Instant,
    confirmation: Confirmation,
    view: VerificationView,
}

impl Verifiers {
    /// Starts a thread for each renderer that has something to verify, if that is to be done at all.
    pub(super) fn start(
        specs: &[RendererSpec],
        interval: Option<Duration>,
    ) -> io::Result<(Self, mpsc::Receiver<Looked>)> {
        // Each has at most one look to tell of.
        let (sender, receiver) = mpsc::channel(specs.len().max(1));
        let Some(interval) = interval else {
            return Ok((Self { interval: Duration::ZERO, all: Vec::new() }, receiver));
        };
        let mut all = Vec::new();
        for spec in specs {
            let Some(verifier) = spec.verifier() else { continue };
            let renderer = Arc::clone(spec.name());
            let (looks, work) = sync_channel(1);
            let thread = thread::Builder::new().name(format!("verify-{renderer}"));
            let (name, spec, reports) = (Arc::clone(&renderer), spec.clone(), sender.clone());
            thread.spawn(move || run(&name, &spec, verifier, &work, &reports))?;
            let next = Instant::now() + interval;
            let (confirmation, view) = (Confirmation::default(), VerificationView::default());
            all.push(State { renderer, looks, is_busy: false, next, confirmation, view });
        }
        Ok((Self { interval, all }, receiver))
    }

    /// When the next look is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.all.iter().filter(|state| !state.is_busy).map(|state| state.next).min()
    }

    /// The renderers of which a look is due.
    pub(super) fn due(&self) -> Vec<Arc<str>> {
        let now = Instant::now();
        let is_due = |state: &&State| !state.is_busy && state.next <= now;
        self.all.iter().filter(is_due).map(|state| Arc::clone(&state.renderer)).collect()
    }

    /// Looks at the kernel.
    pub(super) fn look(&mut self, renderer: &str, snapshot: Arc<Snapshot>) {
        if let Some(state) = self.find(renderer) {
            state.is_busy = state.looks.try_send(snapshot).is_ok();
            state.next = Instant::now() + PAUSE;
        }
    }

    /// Not now: the renderer is at work.
    pub(super) fn postpone(&mut self, renderer: &str) {
        if let Some(state) = self.find(renderer) {
            state.next = Instant::now() + PAUSE;
        }
    }

    /// Takes in what a look has shown. It does not count if the renderer was at work then. What it has rejected cannot be
    /// in the kernel.
    pub(super) fn take(&mut self, looked: Looked, counts: bool, rejected: &[Rejected]) -> Verdict {
        let interval = self.interval;
        let Some(state) = self.find(&looked.renderer) else { return Verdict::Open };
        state.is_busy = false;
        state.next = Instant::now() + PAUSE;
        if !counts {
            return Verdict::Open;
        }
        let verdict = match looked.result {
            Err(error) => {
                state.view.error = Some(error.clone());
                Verdict::Failed(error)
            }
            Ok(Verification { checked, mut drift }) => {
                state.view.checked = checked;
                drift.retain(|drift| !is_due_to(rejected, drift));
                match state.confirmation.take(drift) {
                    None => return Verdict::Open,
                    Some(drift) if drift.is_empty() => Verdict::Good,
                    Some(drift) => Verdict::Drift(drift),
                }
            }
        };
        if !matches!(verdict, Verdict::Failed(_)) {
            state.view.error = None;
        }
        if let Verdict::Drift(drift) = &verdict {
            state.view.drift = drift.len();
            state.view.examples = drift.iter().take(SHOWN).cloned().collect();
        } else if verdict == Verdict::Good {
            state.view.drift = 0;
            state.view.examples.clear();
        }
        state.confirmation = Confirmation::default();
        state.view.verifications += 1;
        state.view.at = Some(Timestamp::now());
        state.view.duration_ms = milliseconds(looked.duration);
        state.next = Instant::now() + interval;
        verdict
    }

    /// The last verification of a renderer; none if it is not verified.
    pub(super) fn view(&self, renderer: &str) -> Option<VerificationView> {
        self.all.iter().find(|state| &*state.renderer == renderer).map(|state| state.view.clone())
    }

    fn find(&mut self, renderer: &str) -> Option<&mut State> {
        self.all.iter_mut().find(|state| &*state.renderer == renderer)
    }
}

/// Its last good state may be in force instead, of which nobody asks for anything.
fn is_due_to(rejected: &[Rejected], drift: &Drift) -> bool {
    match &drift.service {
        Some(service) => rejected.iter().any(|rejected| rejected.service == *service),
        None => !rejected.is_empty() && drift.deviation == Deviation::Foreign,
    }
}

fn run(
    renderer: &Arc<str>,
    spec: &RendererSpec,
    verifier: Box<dyn Verifier>,
    work: &Receiver<Arc<Snapshot>>,
    reports: &mpsc::Sender<Looked>,
) {
    let mut slot = Some(verifier);
    for snapshot in work {
        let start = std::time::Instant::now();
        // Whatever a panic leaves half done is in the verifier, and that is thrown away.
        let attempt = catch_unwind(AssertUnwindSafe(|| {
            let verifier = slot.take().or_else(|| spec.verifier());
            let mut verifier = verifier.ok_or_else(|| "there is nothing to verify any more".to_owned())?;
            let result = verifier.verify(&snapshot).map_err(|error| error.to_string());
            slot = Some(verifier);
            result
        }));
        let result = attempt.unwrap_or_else(|_| Err("verification panicked; the log says where".to_owned()));
        let looked = Looked { renderer: Arc::clone(renderer), result, duration: start.elapsed() };
        if reports.blocking_send(looked).is_err() {
            return;
        }
    }
}
