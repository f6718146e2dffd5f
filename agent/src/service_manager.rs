//! What systemd is told: when the agent is ready, what it is doing, that it is alive. Source: `sd_notify(3)`.
//!
//! The loop is asked once a second. Only an answer keeps the watchdog quiet, so it is the loop's progress that counts and
//! not that of a timer beside it.

mod words;

#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc, time::Duration};

use sd_notify::NotifyState;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, MissedTickBehavior, interval, timeout},
};
use tracing::warn;

use crate::event_loop::{Query, RendererView, Reply, Request, Status};

/// Between two questions to the loop.
const INTERVAL: Duration = Duration::from_secs(1);
/// After this time a reload counts as done, even if the store or a renderer does not come to rest.
const RELOAD_LIMIT: Duration = Duration::from_secs(20);

type Send = dyn Fn(&[NotifyState<'_>]) + std::marker::Send + Sync;

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
        std::env::var_os("NOTIFY_SOCKET")?;
        Some(Self::new(|states| {
            if let Err(error) = sd_notify::notify(states) {
                // It goes on without; the service manager ends it if it has to know.
                warn!(%error, "the service manager could not be told");
            }
        }))
    }

    fn new(send: impl Fn(&[NotifyState<'_>]) + std::marker::Send + Sync + 'static) -> Self {
        Self { send: Arc::new(send) }
    }

    /// It is ready, from a start or a reload.
    pub fn ready(&self) {
        (self.send)(&[NotifyState::Ready]);
    }

    /// One line for people.
    fn status(&self, status: &str) {
        (self.send)(&[NotifyState::Status(status)]);
    }

    /// The agent reads everything again. Needs the time, so that the end of an older reload is not taken for that of this.
    fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => (self.send)(&[NotifyState::Reloading, now]),
            Err(error) => {
                warn!(%error, "the clock could not be read, so the service manager is not told of the reload");
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

    /// The loop is alive.
    fn watchdog(&self) {
        (self.send)(&[NotifyState::Watchdog]);
    }

    /// Tells how the loop is, until it is gone. Each message through `reloads` is a reload that was asked for.
    pub async fn follow(self, requests: mpsc::Sender<Request>, mut reloads: mpsc::Receiver<()>) {
        let mut told = Told::default();
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => (),
                reload = reloads.recv() => {
                    if reload.is_none() {
                        return;
                    }
                    // Before it is ready there is nothing to reload: it is starting.
                    if told.ready {
                        self.reloading();
                        told.reload_since = Some(Instant::now());
                    }
                    // The next look says how far it is: the loop has been asked to read again before.
                    ticks.reset();
                    continue;
                }
            }
            match ask(&requests).await {
                Answer::Gone => return,
                Answer::None => self.tell_status(&mut told, "the event loop does not answer".to_owned()),
                Answer::Is(status, renderers) => self.tell(&mut told, &status, &renderers),
            }
        }
    }

    fn tell(&self, told: &mut Told, status: &Status, renderers: &[RendererView]) {
        self.watchdog();
        self.tell_status(told, words::status(status, renderers));
        let is_at_rest = |renderer: &RendererView| {
            renderer.pending == "nothing" && !matches!(renderer.state, "busy" | "slow")
        };
        let is_reloaded = told
            .reload_since
            .is_some_and(|since| since.elapsed() >= RELOAD_LIMIT || renderers.iter().all(is_at_rest));
        if (status.ready && !told.ready) || is_reloaded {
            told.ready = true;
            told.reload_since = None;
            self.ready();
        }
    }

    fn tell_status(&self, told: &mut Told, status: String) {
        if told.status != status {
            self.status(&status);
            told.status = status;
        }
    }
}

/// What the service manager knows.
#[derive(Debug, Default)]
struct Told {
    ready: bool,
    status: String,
    reload_since: Option<Instant>,
}

enum Answer {
    Is(Box<Status>, Vec<RendererView>),
    /// The loop is alive no more, or busy.
    None,
    /// The loop has ended.
    Gone,
}

async fn ask(requests: &mpsc::Sender<Request>) -> Answer {
    let questions = async {
        let status = question(requests, Query::Status).await?;
        Some((status, question(requests, Query::Renderers).await?))
    };
    match timeout(INTERVAL, questions).await {
        Ok(Some((status, renderers))) => Answer::Is(Box::new(status), renderers),
        Ok(None) => Answer::Gone,
        Err(_) => Answer::None,
    }
}

async fn question<T>(requests: &mpsc::Sender<Request>, wrap: impl FnOnce(Reply<T>) -> Query) -> Option<T> {
    let (reply, answer) = oneshot::channel();
    requests.send(Request::Query(wrap(reply))).await.ok()?;
    answer.await.ok()
}
