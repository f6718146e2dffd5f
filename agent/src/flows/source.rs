//! The thread that receives conntrack's events while somebody watches.

use std::{
    io,
    sync::mpsc::{self as threads, Receiver},
    thread,
    time::{Duration, Instant},
};

use contiv_node::{
    Core,
    flows::{EventBudget, FlowList, FlowTracker, FrontendIndex, RefusedTracker, ServiceFlow},
};
use contiv_renderer::{
    nftables::{
        InspectError,
        counters::{self, RefusedAttempt},
    },
    packet_path::{FlowEventKind, FlowEvents, PathError, SampleRate},
};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::watcher::Watcher;
use crate::drivers::{Question, Request};

/// Who comes when there are so many is turned away: each costs time for each connection.
const MAX_WATCHERS: usize = 8;
/// Events are read together: a thread that wakes for each would cost several times as much.
const READ_INTERVAL: Duration = Duration::from_millis(50);
/// How many messages are read together. More wait, and are lost when the receive buffer is full.
const MAX_READ: usize = 8_192;
/// How long to wait for an event before looking whether somebody watches.
const IDLE_WAIT: Duration = Duration::from_millis(250);
/// How many refused attempts are told at a time; of more, a sample.
const MAX_REFUSED: usize = 1_000;
/// The interval of decisions by the number of events, and of looking for refused attempts and changed services.
const TICK: Duration = Duration::from_secs(1);
/// Looking for them takes at most one part in so many of the time.
const TICK_SHARE: u32 = 100;
/// How often a watcher is told something, if only nothing.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// The thread's state.
pub(super) struct Source {
    requests: mpsc::Sender<Request>,
    arrivals: Receiver<Watcher>,
    watchers: Vec<Watcher>,
    events: FlowEvents,
    index: FrontendIndex,
    /// The revision of the store that the index has.
    revision: Option<i64>,
    tracker: FlowTracker,
    refused: RefusedTracker,
    budget: EventBudget,
    /// New connections since the last tick, of those that are received.
    new: u32,
    has_lost: bool,
}

impl Source {
    /// Starts the thread. The first watcher is answered when its first event can come.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(super) fn start(
        first: Watcher,
        requests: mpsc::Sender<Request>,
    ) -> io::Result<threads::Sender<Watcher>> {
        let (sender, arrivals) = threads::channel();
        thread::Builder::new()
            .name("flows".to_owned())
            .spawn(move || run(first, requests, arrivals))?;
        Ok(sender)
    }

    fn open(requests: mpsc::Sender<Request>, arrivals: Receiver<Watcher>) -> Result<Self, String> {
        let mut source = Self {
            requests,
            arrivals,
            watchers: Vec::new(),
            events: FlowEvents::open().map_err(|error| error.to_string())?,
            index: FrontendIndex::default(),
            revision: None,
            tracker: FlowTracker::default(),
            refused: RefusedTracker::default(),
            budget: EventBudget::default(),
            new: 0,
            has_lost: false,
        };
        source.apply_budget()?;
        source.refresh_index()?;
        // Those of before are no news.
        source.list_refused()?;
        Ok(source)
    }

    /// Works until nobody watches, or something fails.
    fn work(&mut self) -> Result<(), String> {
        let (mut ticked, mut spoke) = (Instant::now(), Instant::now());
        let mut tick = TICK;
        loop {
            admit(&mut self.watchers, &self.arrivals, self.budget.rate);
            if self.watchers.is_empty() || self.requests.is_closed() {
                return Ok(());
            }
            let failed = |error: PathError| error.to_string();
            if self.events.wait(IDLE_WAIT).map_err(failed)? {
                self.read_events()?;
            }
            if ticked.elapsed() >= tick {
                let start = Instant::now();
                self.on_tick(start - ticked)?;
                ticked = start;
                tick = TICK.max(start.elapsed() * TICK_SHARE);
            }
            if spoke.elapsed() >= KEEP_ALIVE_INTERVAL {
                spoke = Instant::now();
                self.watchers.iter_mut().for_each(Watcher::keep_alive);
            }
            self.watchers.iter_mut().for_each(Watcher::flush);
            thread::sleep(READ_INTERVAL);
        }
    }

    fn read_events(&mut self) -> Result<(), String> {
        let Self {
            events,
            watchers,
            index,
            tracker,
            new,
            ..
        } = self;
        let at = Timestamp::now();
        let read = events.read(MAX_READ, |event| {
            *new += u32::from(event.kind == FlowEventKind::New);
            if let Some(flow) = tracker.on_event(&event, index, at) {
                for watcher in &mut *watchers {
                    watcher.add(&flow);
                }
            }
        });
        let read = read.map_err(|error| error.to_string())?;
        if read.has_lost {
            self.has_lost = true;
            self.tracker.forget();
        }
        Ok(())
    }

    fn on_tick(&mut self, took: Duration) -> Result<(), String> {
        if std::mem::take(&mut self.has_lost) {
            self.notify(&json!({
                "event": "notice",
                "text": "the kernel had no room for all events: some connections are missing",
                "kernel_lost": true,
            }));
            self.decide(took, true)?;
        } else {
            self.decide(took, false)?;
        }
        self.refresh_index()?;
        let mut list = FlowList::with_limit(MAX_REFUSED);
        for flow in self.list_refused()? {
            list.add(flow);
        }
        let (refused, rate) = list.finish();
        for watcher in &mut self.watchers {
            for flow in &refused {
                watcher.add(flow);
            }
        }
        let one_in = rate.one_in();
        if one_in > 1 {
            let text = format!("too many refused attempts: one in {one_in} was shown");
            self.notify(&json!({"event": "notice", "text": text, "refused_one_in": one_in}));
        }
        Ok(())
    }

    /// Decides what is received from now on.
    fn decide(&mut self, took: Duration, has_lost: bool) -> Result<(), String> {
        let new = std::mem::take(&mut self.new);
        let before = self.budget;
        self.budget = before.after(new, took, has_lost);
        if before == self.budget {
            return Ok(());
        }
        self.apply_budget()?;
        if before.rate != self.budget.rate {
            self.tracker.sample(self.budget.rate);
            self.notify(&sample_notice(self.budget.rate));
        }
        if before.has_changes != self.budget.has_changes {
            let text = if self.budget.has_changes {
                "the end of a TCP connection is shown at once again"
            } else {
                "many connections: the end of one of TCP is shown when the kernel forgets it, minutes later"
            };
            let has_changes = self.budget.has_changes;
            self.notify(&json!({"event": "notice", "text": text, "ends_at_once": has_changes}));
        }
        Ok(())
    }

    fn apply_budget(&mut self) -> Result<(), String> {
        let Self { events, budget, .. } = self;
        let applied = events
            .sample(budget.rate)
            .and_then(|()| events.receive_changes(budget.has_changes));
        applied.map_err(|error| error.to_string())
    }

    fn notify(&mut self, notice: &Value) {
        for watcher in &mut self.watchers {
            watcher.notify(notice);
        }
    }

    /// Asks the core for its services, if they may have changed.
    fn refresh_index(&mut self) -> Result<(), String> {
        let known = self.revision;
        let (question, answer) = Question::new(move |core: &Core| {
            let revision = core.status().revision;
            (known != Some(revision)).then(|| (revision, core.snapshot()))
        });
        let stopping = |()| "the agent is stopping".to_owned();
        let sent = self.requests.blocking_send(Request::Ask(question));
        sent.map_err(|_| stopping(()))?;
        let Some((revision, snapshot)) = answer.blocking_recv().map_err(|_| stopping(()))? else {
            return Ok(());
        };
        let snapshot =
            snapshot.ok_or_else(|| "the store has not been read yet; see /readiness".to_owned())?;
        (self.index, self.revision) = (FrontendIndex::new(snapshot), Some(revision));
        Ok(())
    }

    /// The attempts that were refused since this was called the last time.
    fn list_refused(&mut self) -> Result<Vec<ServiceFlow>, String> {
        let attempts = refused_attempts()?;
        Ok(self
            .refused
            .on_list(attempts, &self.index, Timestamp::now()))
    }
}

/// Lets those watch that have come. Those that have gone make room first.
fn admit(watchers: &mut Vec<Watcher>, arrivals: &Receiver<Watcher>, rate: SampleRate) {
    watchers.retain(|watcher| !watcher.is_gone());
    while let Ok(mut watcher) = arrivals.try_recv() {
        if watchers.len() >= MAX_WATCHERS {
            watcher.answer(Err(format!(
                "{MAX_WATCHERS} watch already, which is the most; end one of them"
            )));
            continue;
        }
        if rate != SampleRate::ALL {
            watcher.notify(&sample_notice(rate));
        }
        watcher.answer(Ok(()));
        watchers.push(watcher);
    }
}

fn run(mut first: Watcher, requests: mpsc::Sender<Request>, arrivals: Receiver<Watcher>) {
    let mut source = match Source::open(requests, arrivals) {
        Ok(source) => source,
        Err(error) => {
            first.answer(Err(error));
            return;
        }
    };
    first.answer(Ok(()));
    source.watchers.push(first);
    if let Err(error) = source.work() {
        source
            .notify(&json!({"event": "notice", "text": format!("ended: {error}"), "ended": true}));
        source.watchers.iter_mut().for_each(Watcher::flush);
    }
}

/// The attempts that were refused lately; none without the table of the renderer `nftables`.
pub(super) fn refused_attempts() -> Result<Vec<RefusedAttempt>, String> {
    match counters::refused_attempts() {
        Err(InspectError::NoTable) => Ok(Vec::new()),
        result => result.map_err(|error| error.to_string()),
    }
}

/// That connections are a sample.
pub(super) fn sample_notice(rate: SampleRate) -> serde_json::Value {
    let one_in = rate.one_in();
    let text = match one_in {
        1 => "every connection is shown again".to_owned(),
        _ => format!("too many connections: one in {one_in} is shown; a filter shows others"),
    };
    json!({"event": "notice", "text": text, "one_in": one_in})
}

#[cfg(test)]
mod tests {
    use contiv_node::flows::FlowFilter;
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn watcher_that_has_gone_makes_room_for_one_that_comes() {
        let (sender, arrivals) = threads::channel();
        let mut watchers = Vec::new();
        let mut come = || {
            let (reply, mut answer) = oneshot::channel();
            let (watcher, pieces) = Watcher::new(FlowFilter::default(), reply);
            sender.send(watcher).unwrap();
            admit(&mut watchers, &arrivals, SampleRate::ALL);
            (answer.try_recv().unwrap(), pieces)
        };
        let mut watched: Vec<_> = (0..MAX_WATCHERS).map(|_| come()).collect();
        assert!(watched.iter().all(|(answer, _)| answer.is_ok()));
        let (answer, _) = come();
        assert!(answer.unwrap_err().contains("8 watch already"));
        drop(watched.pop());
        assert_eq!(come().0, Ok(()));
    }
}
