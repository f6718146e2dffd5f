//! The thread of a renderer: it owns the renderer and its watch, does one piece of work at a time, and reports. This is the
//! only place where renderers block.

use std::{
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Weak,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Instant,
};

use contiv_node::message::{Input, Work, WorkDone};
use contiv_renderer::{Description, Renderer, Report, Verifier, Watch};
use tokio::sync::{mpsc, oneshot};
use tracing::{debug, warn};

use crate::logging::panic_message;

/// A renderer to run: its name and its constructor.
#[derive(Clone)]
pub struct RendererSpec {
    name: Arc<str>,
    create: Arc<dyn Fn() -> Box<dyn Renderer> + Send + Sync>,
}

impl RendererSpec {
    /// `create` is called where it may block, at the start and again after a panic.
    pub fn new(name: &str, create: impl Fn() -> Box<dyn Renderer> + Send + Sync + 'static) -> Self {
        Self {
            name: name.into(),
            create: Arc::new(create),
        }
    }

    /// Its name.
    pub const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The verifier of its dataplane, if there is one.
    pub(super) fn verifier(&self) -> Option<Box<dyn Verifier>> {
        (self.create)().verifier()
    }
}

impl fmt::Debug for RendererSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RendererSpec").field(&self.name).finish()
    }
}

/// A job of the thread.
#[derive(Debug)]
pub(super) enum Job {
    /// Work, which ends in a report.
    Work(Work),
    /// Describe the applied state.
    Describe(oneshot::Sender<Description>),
}

/// Starts the thread. It ends when the sender or the receiver of reports is dropped.
///
/// # Errors
/// When a thread cannot be started.
pub(super) fn start(
    spec: RendererSpec,
    reports: mpsc::UnboundedSender<Input>,
    notices: mpsc::Sender<Input>,
) -> io::Result<Sender<Job>> {
    let (sender, jobs) = channel();
    let thread = thread::Builder::new().name(spec.name.to_string());
    thread.spawn(move || {
        let watcher = Watcher {
            renderer: Arc::clone(&spec.name),
            notices,
            watch: Weak::new(),
            failure: None,
        };
        Worker {
            renderer: None,
            is_new: true,
            spec,
            watcher,
        }
        .run(&jobs, &reports);
    })?;
    Ok(sender)
}

struct Worker {
    spec: RendererSpec,
    /// None at first and after a panic.
    renderer: Option<Box<dyn Renderer>>,
    /// Whether it has not been resynced yet.
    is_new: bool,
    watcher: Watcher,
}

impl Worker {
    fn run(mut self, jobs: &Receiver<Job>, reports: &mpsc::UnboundedSender<Input>) {
        // Reads the kernel's state while the store is listed.
        let _ = self.catch_panic(|worker| {
            worker.renderer().prepare();
            Ok(())
        });
        for job in jobs {
            match job {
                Job::Work(work) => {
                    let start = Instant::now();
                    let result = self.catch_panic(|worker| worker.perform(&work));
                    let (renderer, is_watched) =
                        (Arc::clone(&self.spec.name), self.watcher.is_watching());
                    let done = WorkDone {
                        renderer,
                        result,
                        is_watched,
                        duration: start.elapsed(),
                    };
                    if reports.send(Input::WorkDone(done)).is_err() {
                        return;
                    }
                }
                // The caller may have given up while the renderer was busy.
                Job::Describe(reply) if reply.is_closed() => {}
                Job::Describe(reply) => {
                    match self.catch_panic(|worker| Ok(worker.renderer().describe())) {
                        // A dropped receiver is ignored.
                        Ok(description) => drop(reply.send(description)),
                        Err(error) => {
                            let _ = reports
                                .send(Input::RendererLost(Arc::clone(&self.spec.name), error));
                        }
                    }
                }
            }
        }
    }

    /// A panic ends the renderer, not the thread: the next work creates a new one.
    fn catch_panic<T>(
        &mut self,
        call: impl FnOnce(&mut Self) -> Result<T, String>,
    ) -> Result<T, String> {
        // A panic may leave the renderer in an invalid state, so it is dropped.
        match catch_unwind(AssertUnwindSafe(|| call(self))) {
            Ok(result) => result,
            Err(panic) => {
                self.is_new = true;
                self.watcher.forget();
                let broken = self.renderer.take();
                // Dropping it may panic too.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(broken)));
                Err(format!("panicked: {}", panic_message(&*panic)))
            }
        }
    }

    fn renderer(&mut self) -> &mut dyn Renderer {
        &mut **self.renderer.get_or_insert_with(|| (self.spec.create)())
    }

    fn perform(&mut self, work: &Work) -> Result<Report, String> {
        let is_new = self.is_new;
        let renderer = self.renderer.get_or_insert_with(|| (self.spec.create)());
        if let Work::Resync(snapshot) | Work::Heal(snapshot) = work {
            debug!(renderer = &**self.spec.name(), %snapshot, "a snapshot for the renderer");
            self.watcher.watch(&mut **renderer);
        }
        let result = match work {
            Work::Update(_) if is_new => {
                return Err("it was created again after a panic and has no state yet".to_owned());
            }
            Work::Update(changes) => renderer.update(changes),
            // Without a watch the renderer does not know what has changed.
            Work::Heal(snapshot) if !is_new && self.watcher.failure.is_none() => {
                renderer.heal(snapshot)
            }
            Work::Resync(snapshot) | Work::Heal(snapshot) => renderer.resync(snapshot),
        };
        self.is_new &= result.is_err();
        result.map_err(|error| error.to_string())
    }
}

/// The watch of the renderer, on a separate thread that blocks in it; restarted whenever it has ended.
struct Watcher {
    renderer: Arc<str>,
    notices: mpsc::Sender<Input>,
    /// Alive as long as the watch.
    watch: Weak<()>,
    /// Why the last start failed.
    failure: Option<String>,
}

impl Watcher {
    /// Starts the watch unless it is running. If that fails, foreign changes are not detected until the next attempt.
    fn watch(&mut self, renderer: &mut dyn Renderer) {
        if self.is_watching() {
            return;
        }
        let started = match renderer.watch() {
            Ok(None) => return,
            Ok(Some(watch)) => self.start(watch).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let failure = started.err();
        if let Some(error) = &failure
            && self.failure != failure
        {
            warn!(
                renderer = &*self.renderer,
                error, "changes of the dataplane by other processes will not be noticed"
            );
        }
        self.failure = failure;
    }

    fn is_watching(&self) -> bool {
        self.watch.strong_count() > 0
    }

    /// The renderer is dropped, and its watch ends by itself.
    fn forget(&mut self) {
        self.watch = Weak::new();
    }

    fn start(&mut self, watch: Box<dyn Watch>) -> io::Result<()> {
        let life = Arc::new(());
        let alive = Arc::downgrade(&life);
        let (renderer, notices) = (Arc::clone(&self.renderer), self.notices.clone());
        let thread = thread::Builder::new().name(format!("watch-{renderer}"));
        thread.spawn(move || listen(&renderer, watch, &notices, life))?;
        self.watch = alive;
        Ok(())
    }
}

fn listen(
    renderer: &Arc<str>,
    mut watch: Box<dyn Watch>,
    notices: &mpsc::Sender<Input>,
    mut life: Arc<()>,
) {
    loop {
        let change = match watch.next() {
            Ok(None) => return,
            Ok(Some(change)) => Ok(change),
            Err(error) => Err(error.to_string()),
        };
        let has_ended = change.is_err();
        if has_ended {
            // A receiver of the end must be able to start a new watch.
            drop(std::mem::take(&mut life));
        }
        let notice = Input::ForeignChange(Arc::clone(renderer), change);
        if notices.blocking_send(notice).is_err() || has_ended {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{Call, TestRenderer};

    #[test]
    fn renderer_after_panic_begins_anew_with_a_watch_of_its_own() {
        let (spec, mut renderer) = TestRenderer::new("test");
        let (notices, _notices) = mpsc::channel(1);
        let watcher = Watcher {
            renderer: Arc::clone(spec.name()),
            notices,
            watch: Weak::new(),
            failure: None,
        };
        let mut worker = Worker {
            renderer: None,
            is_new: true,
            spec,
            watcher,
        };
        let (resync, update, heal) = (
            Work::Resync(Arc::default()),
            Work::Update(Arc::default()),
            Work::Heal(Arc::default()),
        );
        for _ in 0..2 {
            let perform = |worker: &mut Worker, work| {
                worker.catch_panic(|worker| worker.perform(work)).is_ok()
            };
            assert!(!perform(&mut worker, &update), "it has no state yet");
            assert!(
                perform(&mut worker, &heal),
                "so there is nothing that can be healed"
            );
            assert_eq!(renderer.started_call(), Some(Call::Resync(Vec::new())));
            assert!(
                [&update, &heal, &resync]
                    .iter()
                    .all(|work| perform(&mut worker, work))
            );
            let expected = [
                Call::Update(Vec::new()),
                Call::Heal,
                Call::Resync(Vec::new()),
            ];
            assert_eq!([(); 3].map(|()| renderer.started_call().unwrap()), expected);
            assert!(worker.watcher.is_watching());
            let error = worker.catch_panic::<()>(|_| panic!("test error"));
            assert_eq!(error, Err("panicked: test error".to_owned()));
            assert!(!worker.watcher.is_watching());
        }
    }
}
