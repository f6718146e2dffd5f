//! What systemd is told: when the process is ready, what it is doing, that it is alive. Source: `sd_notify(3)`.
//!
//! Whoever does the work is asked once a second: the agent's event loop, or the controllers and their election. Only an answer
//! keeps the watchdog quiet, so it is their progress that counts and not that of a timer beside them.
//!
//! Nothing waits for the service manager: what it has no room for is told again at the next look, as it is then.

mod controllers;
mod event_loop;
mod socket;
mod words;

#[cfg(test)]
mod tests;

use std::{fmt, pin::pin, sync::Arc, time::Duration};

use futures::FutureExt;
use sd_notify::NotifyState;
use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval},
};
use tracing::warn;

pub(crate) use controllers::controllers_status;
pub(crate) use event_loop::{event_loop_status, readiness_of_event_loop};
use socket::Socket;

/// Between two questions.
const INTERVAL: Duration = Duration::from_secs(1);
/// After this time a reload counts as done, even if the store or a renderer does not come to rest.
const RELOAD_LIMIT: Duration = Duration::from_secs(20);

/// False if it could not be told.
type Send = dyn Fn(&[NotifyState<'_>]) -> bool + std::marker::Send + Sync;

/// The socket of the service manager. Clones are the same.
#[derive(Clone)]
pub struct ServiceManager {
    send: Arc<Send>,
}

impl fmt::Debug for ServiceManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceManager").finish_non_exhaustive()
    }
}

impl ServiceManager {
    /// That of the environment (`NOTIFY_SOCKET`); none if nothing there has to be told.
    pub fn of_environment() -> Option<Self> {
        let address = std::env::var_os("NOTIFY_SOCKET")?;
        match Socket::new(&address) {
            Ok(socket) => Some(Self::new(move |states| socket.send(states))),
            Err(error) => {
                // It goes on without; the service manager ends it if it has to know.
                warn!(%error, address = %address.display(), "the service manager cannot be told anything");
                None
            }
        }
    }

    fn new(send: impl Fn(&[NotifyState<'_>]) -> bool + std::marker::Send + Sync + 'static) -> Self {
        Self { send: Arc::new(send) }
    }

    /// It is ready, from a start or a reload.
    fn ready(&self) -> bool {
        (self.send)(&[NotifyState::Ready])
    }

    /// One line for people.
    fn status(&self, status: &str) -> bool {
        (self.send)(&[NotifyState::Status(status)])
    }

    /// Everything is read again. Needs the time, so that the end of an older reload is not taken for that of this.
    fn reloading(&self) -> bool {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => (self.send)(&[NotifyState::Reloading, now]),
            Err(error) => {
                warn!(%error, "the clock could not be read, so the service manager is not told of the reload");
                false
            }
        }
    }

    /// It is about to end.
    pub fn stopping(&self) {
        (self.send)(&[NotifyState::Stopping, NotifyState::Status("stopping; what is in place stays")]);
    }

    /// It ends, because of this.
    pub fn failed(&self, error: &str) {
        self.status(&format!("failed: {}", words::one_line(error)));
    }

    /// Whoever does the work is alive.
    fn watchdog(&self) {
        (self.send)(&[NotifyState::Watchdog]);
    }

    /// Tells what each look finds, until there is nothing to look at any more. At the end of `readiness` it looks at once: others
    /// wait for that. Each message through `reloads` is a reload that was asked for; their end is the end of this.
    pub(crate) async fn follow<L>(
        self,
        mut look: impl FnMut() -> L,
        readiness: impl Future<Output = ()>,
        mut reloads: mpsc::Receiver<()>,
    ) where
        L: Future<Output = Option<ProcessStatus>>,
    {
        let mut notified = NotifiedState::default();
        let mut readiness = pin!(readiness.fuse());
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => (),
                // Once it has ended it stays silent.
                () = &mut readiness => (),
                reload = reloads.recv() => {
                    if reload.is_none() {
                        return;
                    }
                    // Before it is ready there is nothing to reload: it is starting.
                    if notified.ready {
                        notified.reload_is_pending = true;
                        self.notify_reload(&mut notified);
                    }
                    // The next look says how far it is: whoever does the work has been asked to read again before.
                    ticks.reset();
                    continue;
                }
            }
            match look().await {
                Some(look) => self.notify(&mut notified, look),
                None => return,
            }
        }
    }

    fn notify_reload(&self, notified: &mut NotifiedState) {
        if notified.reload_is_pending && self.reloading() {
            notified.reload_is_pending = false;
            notified.reload_since = Some(Instant::now());
        }
    }

    fn notify(&self, notified: &mut NotifiedState, look: ProcessStatus) {
        if look.alive {
            self.watchdog();
        }
        if notified.status != look.status && self.status(&look.status) {
            notified.status = look.status;
        }
        self.notify_reload(notified);
        let is_reloaded =
            notified.reload_since.is_some_and(|since| since.elapsed() >= RELOAD_LIMIT || look.at_rest);
        if look.alive && ((look.ready && !notified.ready) || is_reloaded) && self.ready() {
            notified.ready = true;
            notified.reload_since = None;
        }
    }
}

/// How a process is, at one moment.
#[derive(Debug)]
pub(crate) struct ProcessStatus {
    /// Whether what does the work answers.
    alive: bool,
    /// Whether it has begun to do what it is for.
    ready: bool,
    /// Whether it has nothing left to do.
    at_rest: bool,
    status: String,
}

impl ProcessStatus {
    /// What does the work does not answer.
    fn silent(status: String) -> Self {
        Self { alive: false, ready: false, at_rest: false, status }
    }
}

/// What the service manager knows.
#[derive(Debug, Default)]
struct NotifiedState {
    ready: bool,
    status: String,
    /// A reload was asked for, and could not be told yet.
    reload_is_pending: bool,
    reload_since: Option<Instant>,
}
