//! Reports to systemd: readiness, a status line, and watchdog messages. See `sd_notify(3)`.
//!
//! Once a second the worker is queried: the agent's node core, or the controllers and their election. Only an answer causes a
//! watchdog message, so it depends on their progress and not on a separate timer.
//!
//! Nothing waits for the service manager: a message that does not fit into its socket is sent again at the next tick, with the
//! state of that time.

mod controllers;
mod node;
mod process_status;
mod socket;
mod status_line;

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
pub(crate) use node::{node_status, readiness_of_node};
use process_status::{ProcessStatus, STATUS_QUERY_INTERVAL};
use socket::Socket;

use crate::environment::variable;

/// After this time a reload counts as complete, even if the store or a renderer is still busy.
const RELOAD_LIMIT: Duration = Duration::from_secs(20);

/// Sends one message with these states. Returns false if it could not be sent.
type SendFn = dyn Fn(&[NotifyState<'_>]) -> bool + Send + Sync;

/// The socket of the service manager. Clones share it.
#[derive(Clone)]
pub struct ServiceManager {
    send: Arc<SendFn>,
}

impl fmt::Debug for ServiceManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceManager").finish_non_exhaustive()
    }
}

impl ServiceManager {
    /// The socket that the environment names (`NOTIFY_SOCKET`); none without that variable.
    pub fn of_environment() -> Option<Self> {
        let address = variable("NOTIFY_SOCKET")?;
        match Socket::new(&address) {
            Ok(socket) => Some(Self::new(move |states| socket.send(states))),
            Err(error) => {
                // Continues without it; the service manager ends the process if it depends on the messages.
                warn!(%error, address = %address.display(), "failed to open the socket of the service manager; it gets no messages");
                None
            }
        }
    }

    fn new(send: impl Fn(&[NotifyState<'_>]) -> bool + Send + Sync + 'static) -> Self {
        Self {
            send: Arc::new(send),
        }
    }

    /// Reports that a start or a reload is complete.
    fn ready(&self) -> bool {
        (self.send)(&[NotifyState::Ready])
    }

    /// Sends the status line of `systemctl status`.
    fn status(&self, status: &str) -> bool {
        (self.send)(&[NotifyState::Status(status)])
    }

    /// Reports that a reload has begun, and when, so that the end of an earlier reload is not taken for that of this one.
    fn reloading(&self) -> bool {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => (self.send)(&[NotifyState::Reloading, now]),
            Err(error) => {
                warn!(%error, "failed to read the clock, so the service manager gets no message of the reload");
                false
            }
        }
    }

    /// Reports that the process is about to end.
    pub fn stopping(&self) {
        (self.send)(&[
            NotifyState::Stopping,
            NotifyState::Status("stopping; the programmed state stays"),
        ]);
    }

    /// The process ends because of this error.
    pub fn failed(&self, error: &str) {
        self.status(&format!("failed: {}", status_line::one_line(error)));
    }

    /// The worker is alive.
    fn watchdog(&self) {
        (self.send)(&[NotifyState::Watchdog]);
    }

    /// Sends the result of every query until `query` returns none. When `readiness` completes it queries immediately: other
    /// units wait for that. Each message through `reloads` is a requested reload; when the channel closes, this ends.
    pub(crate) async fn run<L>(
        self,
        mut query: impl FnMut() -> L,
        readiness: impl Future<Output = ()>,
        mut reloads: mpsc::Receiver<()>,
    ) where
        L: Future<Output = Option<ProcessStatus>>,
    {
        let mut notified = NotifiedState::default();
        let mut readiness = pin!(readiness.fuse());
        let mut ticks = interval(STATUS_QUERY_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => (),
                // After its completion it is never polled again.
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
                    // The next tick reports the progress: the worker has received the request already.
                    ticks.reset();
                    continue;
                }
            }
            match query().await {
                Some(status) => self.notify(&mut notified, status),
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

    fn notify(&self, notified: &mut NotifiedState, process: ProcessStatus) {
        if process.alive {
            self.watchdog();
        }
        if notified.status != process.status && self.status(&process.status) {
            notified.status = process.status;
        }
        self.notify_reload(notified);
        let is_reloaded = notified
            .reload_since
            .is_some_and(|since| since.elapsed() >= RELOAD_LIMIT || process.at_rest);
        if process.alive && ((process.ready && !notified.ready) || is_reloaded) && self.ready() {
            notified.ready = true;
            notified.reload_since = None;
        }
    }
}

/// The state that the service manager was notified of.
#[derive(Debug, Default)]
struct NotifiedState {
    ready: bool,
    status: String,
    /// A reload was requested, and could not be sent yet.
    reload_is_pending: bool,
    reload_since: Option<Instant>,
}
