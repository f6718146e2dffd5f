//! A renderer's own task. It does what it is given, one thing at a time, and reports.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use contiv_model::{ChangeSet, Snapshot};
use contiv_renderer::{Description, RenderError, Renderer, Report, Verifier};
use tokio::{
    sync::{mpsc, oneshot},
    task::{JoinHandle, spawn_blocking},
};

use super::{
    standby::Standby,
    watcher::{Notice, Watcher},
};
use crate::logging::panic_message;

/// A renderer to run: its name, and how to make one.
#[derive(Clone)]
pub struct RendererSpec {
    name: Arc<str>,
    create: Arc<dyn Fn() -> Box<dyn Renderer> + Send + Sync>,
}

impl RendererSpec {
    /// `create` is called where it may block, at the start and again after a panic.
    pub fn new(name: &str, create: impl Fn() -> Box<dyn Renderer> + Send + Sync + 'static) -> Self {
        Self { name: name.into(), create: Arc::new(create) }
    }

    /// Its name.
    pub const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// What reads its dataplane back, if there is anything to read.
    pub(in crate::event_loop) fn verifier(&self) -> Option<Box<dyn Verifier>> {
        (self.create)().verifier()
    }
}

impl fmt::Debug for RendererSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RendererSpec").field(&self.name).finish()
    }
}

/// What a renderer can be given to do.
#[derive(Debug)]
pub(super) enum Work {
    Resync(Arc<Snapshot>),
    Update(Arc<ChangeSet>),
    /// Undo what others did. With everything, in case it is needed.
    Heal(Arc<Snapshot>),
    /// Describe what is applied, to everybody who asked.
    Describe(Vec<oneshot::Sender<Description>>),
}

/// The report that a piece of work is done.
#[derive(Debug)]
pub(in crate::event_loop) struct Done {
    pub(super) renderer: Arc<str>,
    pub(super) result: Result<Report, String>,
    /// Whether it is heard what others do to the dataplane.
    pub(super) watched: bool,
    pub(super) duration: Duration,
}

/// Starts the task. It ends when the sender of work is dropped, or nobody takes reports.
pub(super) fn start(
    spec: RendererSpec,
    standby: Option<Arc<Standby>>,
    reports: mpsc::Sender<Done>,
    notices: mpsc::Sender<Notice>,
) -> mpsc::Sender<Work> {
    let (sender, work) = mpsc::channel(1);
    let watcher = Watcher::new(Arc::clone(&spec.name), notices);
    // At once, and not only when the task has its turn.
    let worker = spawn_blocking(move || Worker { renderer: prepare(&spec), spec, watcher });
    tokio::spawn(run(worker, standby, work, reports));
    sender
}

/// A renderer, and all that is its own.
struct Worker {
    spec: RendererSpec,
    /// None after a panic.
    renderer: Option<Box<dyn Renderer>>,
    watcher: Watcher,
}

async fn run(
    worker: JoinHandle<Worker>,
    standby: Option<Arc<Standby>>,
    mut work: mpsc::Receiver<Work>,
    reports: mpsc::Sender<Done>,
) {
    let Ok(mut worker) = worker.await else { return };
    while let Some(work) = work.recv().await {
        // All but changes takes long.
        let here = standby.as_ref().filter(|_| matches!(work, Work::Update(_)));
        let done = if let Some(standby) = here {
            standby.run(|| worker.perform(work))
        } else {
            let performed = spawn_blocking(move || {
                let done = worker.perform(work);
                (worker, done)
            });
            // Only the end of the runtime keeps it from being done.
            let Ok((back, done)) = performed.await else { return };
            worker = back;
            done
        };
        if reports.send(done).await.is_err() {
            return;
        }
    }
}

/// A renderer that has read what is there. None if it panics; the first work gets another one.
fn prepare(spec: &RendererSpec) -> Option<Box<dyn Renderer>> {
    let attempt = catch_unwind(AssertUnwindSafe(|| {
        let mut renderer = (spec.create)();
        renderer.prepare();
        renderer
    }));
    attempt.ok()
}

impl Worker {
    /// Does one thing and reports. A panic ends the renderer, not the task: the next work gets a new one.
    fn perform(&mut self, work: Work) -> Done {
        let start = Instant::now();
        // Whatever a panic leaves half done is in the renderer, and that is thrown away.
        let attempt = catch_unwind(AssertUnwindSafe(|| self.attempt(work)));
        let result = match attempt {
            Ok(result) => result.map_err(|error| error.to_string()),
            Err(panic) => {
                self.watcher.forget();
                let broken = self.renderer.take();
                // Dropping it may panic too.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(broken)));
                Err(format!("panicked: {}", panic_message(&*panic)))
            }
        };
        Done {
            renderer: Arc::clone(&self.spec.name),
            result,
            watched: self.watcher.is_watching(),
            duration: start.elapsed(),
        }
    }

    fn attempt(&mut self, work: Work) -> Result<Report, RenderError> {
        let renderer = self.renderer.get_or_insert_with(|| (self.spec.create)());
        if matches!(work, Work::Resync(_) | Work::Heal(_)) {
            self.watcher.watch(&mut **renderer);
        }
        match work {
            Work::Resync(snapshot) => renderer.resync(&snapshot),
            Work::Update(changes) => renderer.update(&changes),
            Work::Heal(snapshot) => renderer.heal(&snapshot),
            Work::Describe(askers) => {
                let description = renderer.describe();
                for asker in askers {
                    // One who no longer waits does not need it.
                    let _ = asker.send(description.clone());
                }
                Ok(Report::default())
            }
        }
    }
}
