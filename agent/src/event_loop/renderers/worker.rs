//! A renderer's own thread. It does what it is given, one thing at a time, and reports.

use std::{
    any::Any,
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use contiv_model::{ChangeSet, Snapshot};
use contiv_renderer::{Description, Renderer, Report, Verifier};
use tokio::sync::{mpsc, oneshot};

use super::{
    queue::{WorkReceiver, WorkSender, queue},
    watcher::{Notice, Watcher},
};

/// A renderer to run: its name, and how to make one.
#[derive(Clone)]
pub struct RendererSpec {
    name: Arc<str>,
    create: Arc<dyn Fn() -> Box<dyn Renderer> + Send + Sync>,
}

impl RendererSpec {
    /// `create` is called in the renderer's thread, at the start and again after a panic.
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

/// Starts the thread. It ends when the sender of work is dropped, or nobody takes reports.
pub(super) fn start(
    spec: RendererSpec,
    reports: mpsc::Sender<Done>,
    notices: mpsc::Sender<Notice>,
) -> io::Result<WorkSender> {
    let (sender, work) = queue();
    let thread = thread::Builder::new().name(format!("renderer-{}", spec.name));
    let watcher = Watcher::new(Arc::clone(&spec.name), notices);
    thread.spawn(move || run(&spec, &work, &reports, watcher))?;
    Ok(sender)
}

fn run(spec: &RendererSpec, work: &WorkReceiver, reports: &mpsc::Sender<Done>, mut watcher: Watcher) {
    let mut renderer = prepare(spec);
    while let Some(work) = work.next() {
        let start = Instant::now();
        let result = perform(spec, &mut renderer, &mut watcher, work);
        let done = Done {
            renderer: Arc::clone(&spec.name),
            result,
            watched: watcher.is_watching(),
            duration: start.elapsed(),
        };
        if reports.blocking_send(done).is_err() {
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

/// Does one thing. A panic ends that renderer, not the thread: the next work gets a new one.
fn perform(
    spec: &RendererSpec,
    slot: &mut Option<Box<dyn Renderer>>,
    watcher: &mut Watcher,
    work: Work,
) -> Result<Report, String> {
    // Whatever a panic leaves half done is in the renderer, and that is thrown away.
    let attempt = catch_unwind(AssertUnwindSafe(|| {
        let renderer = slot.get_or_insert_with(|| (spec.create)());
        if matches!(work, Work::Resync(_) | Work::Heal(_)) {
            watcher.watch(&mut **renderer);
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
    }));
    match attempt {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(panic) => {
            watcher.forget();
            let broken = slot.take();
            // Dropping it may panic too.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(broken)));
            Err(format!("panicked: {}", message(&*panic)))
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}
