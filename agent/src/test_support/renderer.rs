//! A renderer whose behaviour a test controls: it works, fails, panics or hangs, and reports its calls to the test.

use std::{collections::BTreeSet, time::Instant};

use contiv_model::{ChangeSet, Snapshot};
use contiv_renderer::{
    Description, Drift, ForeignChange, RenderError, Renderer, Report, Verification, Verifier,
    Watch, dry_run::DryRun,
};
use futures::executor::block_on;
use tokio::sync::{broadcast, mpsc, watch};

use super::harness::TEST_TIMEOUT;
use crate::drivers::RendererSpec;

/// How the renderer's next calls behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Work,
    Fail,
    Panic,
    /// Calls block until the mode changes.
    Hang,
}

/// A call of the renderer that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Call {
    /// With the names of all services.
    Resync(Vec<String>),
    /// With the names of the services that changed.
    Update(Vec<String>),
    /// After a foreign change.
    Heal,
}

/// A test's handle to a renderer: controls its behaviour and receives its calls.
#[derive(Debug)]
pub(crate) struct TestRenderer {
    mode: watch::Sender<Mode>,
    calls: mpsc::UnboundedReceiver<Call>,
    /// An error ends the watches.
    foreign_changes: broadcast::Sender<Result<ForeignChange, ()>>,
    drift: watch::Sender<BTreeSet<Drift>>,
    can_watch: watch::Sender<bool>,
}

impl TestRenderer {
    /// A renderer with this name, and the test's handle to it.
    pub(crate) fn new(name: &'static str) -> (RendererSpec, Self) {
        let (mode, mode_receiver) = watch::channel(Mode::Work);
        let (call_sender, calls) = mpsc::unbounded_channel();
        let foreign_changes = broadcast::Sender::new(64);
        let foreign_change_sender = foreign_changes.clone();
        let (drift, drift_receiver) = watch::channel(BTreeSet::new());
        let (can_watch, can_watch_receiver) = watch::channel(true);
        let create = move || {
            Box::new(ScriptedRenderer {
                name,
                mode: mode_receiver.clone(),
                calls: call_sender.clone(),
                foreign_changes: foreign_change_sender.clone(),
                drift: drift_receiver.clone(),
                can_watch: can_watch_receiver.clone(),
                inner: DryRun::new(),
            }) as Box<dyn Renderer>
        };
        (
            RendererSpec::new(name, create),
            Self {
                mode,
                calls,
                foreign_changes,
                drift,
                can_watch,
            },
        )
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// Simulates a foreign change of the dataplane.
    pub(crate) fn inject_foreign_change(&self, what: &str) {
        let change = ForeignChange {
            what: what.to_owned(),
            by: None,
        };
        self.foreign_changes
            .send(Ok(change))
            .expect("a watch exists");
    }

    /// Sets the drift that the verifier finds from now on.
    pub(crate) fn set_drift(&self, drift: BTreeSet<Drift>) {
        self.drift.send_replace(drift);
    }

    /// Ends the renderer's watches with an error.
    pub(crate) fn end_watch(&self) {
        self.foreign_changes.send(Err(())).expect("a watch exists");
    }

    /// Lets all attempts to start a watch fail from now on.
    pub(crate) fn refuse_watches(&self) {
        self.can_watch.send_replace(false);
    }

    /// Lets watches start again.
    pub(crate) fn allow_watches(&self) {
        self.can_watch.send_replace(true);
    }

    /// Waits for the next call.
    pub(crate) async fn call(&mut self) -> Call {
        let start = Instant::now();
        loop {
            if let Some(call) = self.started_call() {
                return call;
            }
            assert!(
                start.elapsed() < TEST_TIMEOUT,
                "the renderer was not called in time"
            );
            tokio::task::yield_now().await;
        }
    }

    /// The next call, if it has begun already.
    pub(crate) fn started_call(&mut self) -> Option<Call> {
        self.calls.try_recv().ok()
    }
}

/// The renderer that the node runs.
struct ScriptedRenderer {
    name: &'static str,
    mode: watch::Receiver<Mode>,
    calls: mpsc::UnboundedSender<Call>,
    foreign_changes: broadcast::Sender<Result<ForeignChange, ()>>,
    drift: watch::Receiver<BTreeSet<Drift>>,
    can_watch: watch::Receiver<bool>,
    inner: DryRun,
}

impl ScriptedRenderer {
    /// Reports a call to the test, and does what the mode says: fails, panics or hangs.
    fn begin(&mut self, call: Call) -> Result<(), RenderError> {
        let _ = self.calls.send(call);
        // A finished test has dropped its handle. Nothing must hang then, or the node's threads would not end.
        let mode = block_on(self.mode.wait_for(|mode| *mode != Mode::Hang))
            .map_or(Mode::Work, |mode| *mode);
        match mode {
            Mode::Work | Mode::Hang => Ok(()),
            Mode::Panic => panic!("failure injected by the test"),
            Mode::Fail => {
                let reason = "failure injected by the test".to_owned();
                Err(RenderError::Kernel {
                    action: "do anything".to_owned(),
                    reason,
                })
            }
        }
    }
}

impl Renderer for ScriptedRenderer {
    fn name(&self) -> &'static str {
        self.name
    }

    fn resync(&mut self, snapshot: &Snapshot) -> Result<Report, RenderError> {
        self.begin(Call::Resync(
            snapshot.services.keys().map(ToString::to_string).collect(),
        ))?;
        self.inner.resync(snapshot)
    }

    fn update(&mut self, changes: &ChangeSet) -> Result<Report, RenderError> {
        self.begin(Call::Update(
            changes.services.keys().map(ToString::to_string).collect(),
        ))?;
        let sent = Some(Instant::now());
        Ok(Report {
            sent,
            ..self.inner.update(changes)?
        })
    }

    fn watch(&mut self) -> Result<Option<Box<dyn Watch>>, RenderError> {
        if !*self.can_watch.borrow() {
            let reason = "failure injected by the test".to_owned();
            return Err(RenderError::Kernel {
                action: "watch".to_owned(),
                reason,
            });
        }
        Ok(Some(Box::new(ForeignChangeWatch(
            self.foreign_changes.subscribe(),
        ))))
    }

    fn heal(&mut self, snapshot: &Snapshot) -> Result<Report, RenderError> {
        self.begin(Call::Heal)?;
        self.inner.resync(snapshot)
    }

    fn verifier(&self) -> Option<Box<dyn Verifier>> {
        Some(Box::new(ScriptedVerifier {
            mode: self.mode.clone(),
            drift: self.drift.clone(),
        }))
    }

    fn describe(&self) -> Description {
        assert!(
            *self.mode.borrow() != Mode::Panic,
            "failure injected by the test"
        );
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
                Err(RenderError::Kernel {
                    action: "tell anything".to_owned(),
                    reason,
                })
            }
            // The renderer is gone.
            Err(_) => Ok(None),
        }
    }
}

struct ScriptedVerifier {
    mode: watch::Receiver<Mode>,
    drift: watch::Receiver<BTreeSet<Drift>>,
}

impl Verifier for ScriptedVerifier {
    fn verify(&mut self, _: &Snapshot) -> Result<Verification, RenderError> {
        assert!(
            *self.mode.borrow() != Mode::Panic,
            "failure injected by the test"
        );
        Ok(Verification {
            checked: 7,
            drift: self.drift.borrow().clone(),
        })
    }
}
