//! A renderer that runs beside the real ones, and fails, panics or hangs on demand.

use std::{collections::BTreeSet, time::Instant};

use contiv_model::{ChangeSet, Snapshot};
use contiv_renderer::{
    Description, Drift, ForeignChange, RenderError, Renderer, Report, Verification, Verifier, Watch,
    dry_run::DryRun,
};
use futures::executor::block_on;
use tokio::sync::{broadcast, mpsc, watch};

use super::harness::LIMIT;
use crate::node::RendererSpec;

/// The behaviour of the renderer, from its next call on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Work,
    Fail,
    Panic,
    /// Calls block until the mode changes.
    Hang,
}

/// A call that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Call {
    /// With the names of all services.
    Resync(Vec<String>),
    /// With the names of the services that changed.
    Update(Vec<String>),
    /// After a foreign change.
    Heal,
}

/// The test's handle of a renderer.
#[derive(Debug)]
pub(crate) struct Scripted {
    mode: watch::Sender<Mode>,
    calls: mpsc::UnboundedReceiver<Call>,
    others: broadcast::Sender<Result<ForeignChange, ()>>,
    drift: watch::Sender<BTreeSet<Drift>>,
    can_watch: watch::Sender<bool>,
}

impl Scripted {
    /// A renderer with this name, and the test's handle of it.
    pub(crate) fn new(name: &'static str) -> (RendererSpec, Self) {
        let (mode, receiver) = watch::channel(Mode::Work);
        let (sender, calls) = mpsc::unbounded_channel();
        let others = broadcast::Sender::new(64);
        let heard = others.clone();
        let (drift, seen) = watch::channel(BTreeSet::new());
        let (can_watch, may_watch) = watch::channel(true);
        let create = move || {
            let (mode, calls, others) = (receiver.clone(), sender.clone(), heard.clone());
            let (seen, may_watch) = (seen.clone(), may_watch.clone());
            let inner = DryRun::new();
            Box::new(Faulty { name, mode, calls, others, seen, may_watch, inner }) as Box<dyn Renderer>
        };
        (RendererSpec::new(name, create), Self { mode, calls, others, drift, can_watch })
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// Simulates a foreign change of the dataplane.
    pub(crate) fn inject_foreign_change(&self, what: &str) {
        let change = ForeignChange { what: what.to_owned(), by: None };
        self.others.send(Ok(change)).expect("a watch exists");
    }

    /// The verifier finds this from now on.
    pub(crate) fn set_drift(&self, drift: BTreeSet<Drift>) {
        self.drift.send_replace(drift);
    }

    /// The watch ends.
    pub(crate) fn end_watch(&self) {
        self.others.send(Err(())).expect("a watch exists");
    }

    /// No watch can be started from now on.
    pub(crate) fn refuse_watches(&self) {
        self.can_watch.send_replace(false);
    }

    /// Waits for the next call.
    pub(crate) async fn call(&mut self) -> Call {
        let start = Instant::now();
        loop {
            if let Some(call) = self.started_call() {
                return call;
            }
            assert!(start.elapsed() < LIMIT, "no call of the renderer comes");
            tokio::task::yield_now().await;
        }
    }

    /// A call that has begun already.
    pub(crate) fn started_call(&mut self) -> Option<Call> {
        self.calls.try_recv().ok()
    }
}

struct Faulty {
    name: &'static str,
    mode: watch::Receiver<Mode>,
    calls: mpsc::UnboundedSender<Call>,
    others: broadcast::Sender<Result<ForeignChange, ()>>,
    seen: watch::Receiver<BTreeSet<Drift>>,
    may_watch: watch::Receiver<bool>,
    inner: DryRun,
}

impl Faulty {
    fn begin(&mut self, call: Call) -> Result<(), RenderError> {
        let _ = self.calls.send(call);
        // A finished test has dropped its handle; then nothing hangs any more.
        let mode = block_on(self.mode.wait_for(|mode| *mode != Mode::Hang)).map_or(Mode::Work, |mode| *mode);
        match mode {
            Mode::Work | Mode::Hang => Ok(()),
            Mode::Panic => panic!("failure injected by the test"),
            Mode::Fail => {
                let reason = "failure injected by the test".to_owned();
                Err(RenderError::Kernel { action: "do anything".to_owned(), reason })
            }
        }
    }
}

impl Renderer for Faulty {
    fn name(&self) -> &'static str {
        self.name
    }

    fn resync(&mut self, snapshot: &Snapshot) -> Result<Report, RenderError> {
        self.begin(Call::Resync(snapshot.services.keys().map(ToString::to_string).collect()))?;
        self.inner.resync(snapshot)
    }

    fn update(&mut self, changes: &ChangeSet) -> Result<Report, RenderError> {
        self.begin(Call::Update(changes.services.keys().map(ToString::to_string).collect()))?;
        let sent = Some(Instant::now());
        Ok(Report { sent, ..self.inner.update(changes)? })
    }

    fn watch(&mut self) -> Result<Option<Box<dyn Watch>>, RenderError> {
        if !*self.may_watch.borrow() {
            let reason = "failure injected by the test".to_owned();
            return Err(RenderError::Kernel { action: "watch".to_owned(), reason });
        }
        Ok(Some(Box::new(ForeignChangeWatch(self.others.subscribe()))))
    }

    fn heal(&mut self, snapshot: &Snapshot) -> Result<Report, RenderError> {
        self.begin(Call::Heal)?;
        self.inner.resync(snapshot)
    }

    fn verifier(&self) -> Option<Box<dyn Verifier>> {
        Some(Box::new(ObservedState { mode: self.mode.clone(), drift: self.seen.clone() }))
    }

    fn describe(&self) -> Description {
        assert!(*self.mode.borrow() != Mode::Panic, "failure injected by the test");
        self.inner.describe()
    }

    fn cleanup(&mut self) -> Result<Report, RenderError> {
        self.inner.cleanup()
    }
}

struct ForeignChangeWatch(broadcast::Receiver<Result<ForeignChange, ()>>);

impl Watch for ForeignChangeWatch {
    fn next(&mut self) -> Result<Option<ForeignChange>, RenderError> {
        match self.0.blocking_recv() {
            Ok(Ok(change)) => Ok(Some(change)),
            Ok(Err(())) => {
                let reason = "failure injected by the test".to_owned();
                Err(RenderError::Kernel { action: "tell anything".to_owned(), reason })
            }
            // The renderer is gone.
            Err(_) => Ok(None),
        }
    }
}

struct ObservedState {
    mode: watch::Receiver<Mode>,
    drift: watch::Receiver<BTreeSet<Drift>>,
}

impl Verifier for ObservedState {
    fn verify(&mut self, _: &Snapshot) -> Result<Verification, RenderError> {
        assert!(*self.mode.borrow() != Mode::Panic, "failure injected by the test");
        Ok(Verification { checked: 7, drift: self.drift.borrow().clone() })
    }
}
