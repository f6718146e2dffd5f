//! The thread that watches attempts at backends: it programs the table of failover, reads its counters and the log of refusals, and
//! passes both to [`AttemptJudge`], whose reports go to the core.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::mpsc::{self, Receiver, Sender},
    thread,
    time::{Duration, Instant},
};

use contiv_node::{
    attempts::{AttemptJudge, Findings},
    message::{Input, Watch},
};
use contiv_renderer::{
    RenderError,
    nftables::{FailoverTable, Refusals},
};
use tokio::{runtime::Handle, sync::mpsc::Sender as InputSender};
use tracing::warn;

use super::prober::Prober;

/// The pause between two readings of the counters, unless these are large.
const PAUSE: Duration = Duration::from_millis(50);
/// Readings take at most one part in so many of a processor's time.
const SHARE: u32 = 50;
/// The pause after a failure.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// Changes of the watched backends.
type Changes = BTreeMap<SocketAddr, Option<Watch>>;

/// A handle of the thread, which ends with it.
#[derive(Debug)]
pub(super) struct AttemptWatcher {
    requests: Sender<Request>,
}

#[derive(Debug)]
enum Request {
    Watch(Changes),
    Refused(Vec<SocketAddr>),
    Probed {
        backend: SocketAddr,
        is_answered: bool,
    },
    /// Refusals are not received any more, for this reason.
    Deaf(String),
    End,
}

impl AttemptWatcher {
    /// Starts the thread. Must be called in a runtime.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(super) fn start(inputs: InputSender<Input>, prober: Prober) -> io::Result<Self> {
        let (sender, requests) = mpsc::channel();
        let worker = Worker {
            inputs,
            own: sender.clone(),
            runtime: Handle::current(),
            table: FailoverTable::new(prober.answer_within()),
            judge: AttemptJudge::new(prober.answer_within()),
            prober,
            is_listening: false,
            state: None,
        };
        thread::Builder::new()
            .name("failover".to_owned())
            .spawn(move || worker.run(&requests))?;
        Ok(Self { requests: sender })
    }

    /// Changes which backends are watched.
    pub(super) fn watch(&self, changes: Changes) {
        // The thread lives as long as this.
        let _ = self.requests.send(Request::Watch(changes));
    }
}

impl Drop for AttemptWatcher {
    fn drop(&mut self) {
        let _ = self.requests.send(Request::End);
    }
}

struct Worker {
    inputs: InputSender<Input>,
    /// For the thread that receives refusals, and for probes.
    own: Sender<Request>,
    runtime: Handle,
    prober: Prober,
    table: FailoverTable,
    judge: AttemptJudge,
    is_listening: bool,
    /// The state as last reported.
    state: Option<Result<(), String>>,
}

impl Worker {
    fn run(mut self, requests: &Receiver<Request>) {
        let mut due = Instant::now();
        loop {
            // Without watched backends there is nothing to read.
            let first = if self.judge.is_idle() {
                requests.recv().ok()
            } else {
                let wait = due.saturating_duration_since(Instant::now());
                requests.recv_timeout(wait).ok()
            };
            let mut failure = None;
            for request in first.into_iter().chain(requests.try_iter()) {
                let now = Instant::now();
                match request {
                    Request::Watch(changes) => self.judge.watch(changes, now),
                    Request::Refused(backends) => {
                        let findings = self.judge.on_refused(backends, now);
                        self.execute(findings);
                    }
                    Request::Probed {
                        backend,
                        is_answered,
                    } => {
                        let findings = self.judge.on_probed(backend, is_answered, now);
                        self.execute(findings);
                    }
                    Request::Deaf(reason) => {
                        self.is_listening = false;
                        failure = Some(reason);
                    }
                    Request::End => return,
                }
            }
            let start = Instant::now();
            let is_due = start >= due;
            let is_failing = matches!(self.state, Some(Err(_)));
            if is_failing && !is_due && failure.is_none() {
                continue;
            }
            match failure.map_or_else(|| self.work(is_due), Err) {
                Ok(()) => {
                    if is_due {
                        due = Instant::now() + PAUSE.max(start.elapsed() * SHARE);
                    }
                    self.report_state(Ok(()));
                }
                Err(error) => {
                    // Without this thread nobody would let a backend leave: so nothing is kept from clients.
                    self.table.suspend();
                    self.judge.forget_reports();
                    due = Instant::now() + RETRY_AFTER;
                    self.report_state(Err(error));
                }
            }
        }
    }

    /// Programs what has changed, and if it is due reads the counters.
    fn work(&mut self, is_due: bool) -> Result<(), String> {
        let failed = |error: RenderError| error.to_string();
        // Before the table, which keeps refusals from clients.
        self.listen()?;
        let places = self.judge.take_places(Instant::now());
        let is_missing = !self.table.exists() && self.judge.is_watching();
        if !places.is_empty() || is_missing {
            self.table.watch(places).map_err(failed)?;
        }
        if is_due {
            let attempts = self.table.read().map_err(failed)?;
            let findings = self.judge.on_reading(attempts, Instant::now());
            self.execute(findings);
        }
        Ok(())
    }

    /// Begins probes, and reports to the core.
    fn execute(&self, findings: Findings) {
        for backend in findings.probes {
            let own = self.own.clone();
            let report = async move |is_answered| {
                // The thread may have ended.
                let _ = own.send(Request::Probed {
                    backend,
                    is_answered,
                });
            };
            self.prober.probe(&self.runtime, backend, report);
        }
        if let Some(report) = findings.report {
            self.send(report);
        }
    }

    /// Receives refusals, on a thread of its own that blocks in it.
    fn listen(&mut self) -> Result<(), String> {
        if self.is_listening || !self.judge.is_watching() {
            return Ok(());
        }
        let mut refusals = Refusals::listen().map_err(|error| error.to_string())?;
        let own = self.own.clone();
        let receive = move || {
            loop {
                let (request, is_last) = match refusals.wait() {
                    Ok(backends) => (Request::Refused(backends), false),
                    Err(error) => (Request::Deaf(error.to_string()), true),
                };
                if own.send(request).is_err() || is_last {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("refusals".to_owned());
        let started = thread.spawn(receive);
        started
            .map_err(|error| format!("cannot start the thread that receives refusals: {error}"))?;
        self.is_listening = true;
        Ok(())
    }

    fn report_state(&mut self, state: Result<(), String>) {
        if self.state.as_ref() == Some(&state) {
            return;
        }
        if state.is_ok() && !self.table.forgets_attempts() {
            warn!(
                "the kernel lacks nfnetlink_cttimeout: attempts at a silent backend are not forgotten in time, so only later \
                 connections reach another one"
            );
        }
        self.state = Some(state.clone());
        self.send(Input::FailoverState(state));
    }

    fn send(&self, input: Input) {
        // The node ends before its drivers.
        let _ = self.inputs.blocking_send(input);
    }
}
