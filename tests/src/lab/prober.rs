//! Continuous connections during a change.

use std::{
    net::SocketAddr,
    ops::AddAssign,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{
    LabError, Namespace, Outcome, Protocol, Result,
    client::{TIME_LIMIT, ask_from_here},
};

/// The pause between two connections of [`Namespace::probe`], which leaves processor time for others.
const CONNECTION_INTERVAL: Duration = Duration::from_millis(4);
/// A client repeats a lost SYN after a second, so a connection that took longer lost a packet, or the machine was busy.
const LOST_PACKET_TIME: Duration = Duration::from_millis(900);

/// The behaviour of a client that gets no answer.
#[derive(Debug, Clone, Copy)]
pub enum RetryMode {
    /// It waits this long for the answer to its one connection.
    Once(Duration),
    /// It connects repeatedly, for this long in all.
    Again(Duration),
}

/// The outcomes of connections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Probes {
    /// Answered.
    pub opened: usize,
    /// Answered, but later than after a lost packet.
    pub slow: usize,
    /// Answered only after the client connected again.
    pub retried: usize,
    /// Not answered, each with its outcome.
    pub failed: Vec<String>,
}

impl AddAssign for Probes {
    fn add_assign(&mut self, other: Self) {
        self.opened += other.opened;
        self.slow += other.slow;
        self.retried += other.retried;
        self.failed.extend(other.failed);
    }
}

impl Namespace {
    /// Opens one connection after the other until `done` is set.
    ///
    /// # Errors
    /// When the namespace cannot be entered. Failed connections are counted.
    pub fn probe(
        &self,
        protocol: Protocol,
        server: SocketAddr,
        retry_mode: RetryMode,
        done: &AtomicBool,
    ) -> Result<Probes> {
        self.run(|| {
            let mut probes = Probes::default();
            while !done.load(Ordering::Relaxed) {
                let start = Instant::now();
                match ask_with_retries(protocol, server, retry_mode) {
                    Ok(tries) => {
                        probes.opened += 1;
                        probes.retried += usize::from(tries > 1);
                        probes.slow += usize::from(start.elapsed() > LOST_PACKET_TIME);
                    }
                    Err(reason) => probes.failed.push(format!(
                        "{} -> {server} ({protocol:?}) after {} answers: {reason}",
                        self.host.name, probes.opened
                    )),
                }
                thread::sleep(CONNECTION_INTERVAL);
            }
            Ok(probes)
        })
    }

    /// Sends requests as fast as possible during `work`, each on a new connection or from a new UDP port. Returns how many were
    /// answered.
    ///
    /// # Errors
    /// When one got anything but an answer; otherwise that of `work`.
    pub fn ask_while(
        &self,
        protocol: Protocol,
        server: SocketAddr,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<usize> {
        let done = AtomicBool::new(false);
        let ask = || {
            let mut answered = 0;
            while !done.load(Ordering::Relaxed) {
                ask_from_here(protocol, server, TIME_LIMIT)?
                    .answer()
                    .map_err(|error| {
                        LabError::Unexpected(format!(
                            "after {answered} answers from {server} ({protocol:?}): {error}"
                        ))
                    })?;
                answered += 1;
            }
            Ok(answered)
        };
        thread::scope(|scope| {
            let prober = scope.spawn(|| self.run(ask));
            let outcome = {
                // The scope waits for the prober even if the work panics.
                let _end = SetAtEnd(&done);
                work()
            };
            let answered = prober
                .join()
                .unwrap_or_else(|cause| std::panic::resume_unwind(cause));
            outcome.and(answered)
        })
    }
}

/// Is true once this is dropped.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns the number of attempts, or the outcome of the last one.
fn ask_with_retries(
    protocol: Protocol,
    server: SocketAddr,
    retry_mode: RetryMode,
) -> Result<usize, String> {
    let start = Instant::now();
    let (limit, more) = match retry_mode {
        RetryMode::Once(limit) => (limit, Duration::ZERO),
        RetryMode::Again(limit) => (TIME_LIMIT, limit),
    };
    for tries in 1.. {
        let instead = match ask_from_here(protocol, server, limit) {
            Ok(Outcome::Answered { .. }) => return Ok(tries),
            Ok(other) => format!("{other:?}"),
            Err(error) => error.to_string(),
        };
        if start.elapsed() >= more {
            return Err(format!(
                "{instead}, {:?} and {tries} tries after the first packet",
                start.elapsed()
            ));
        }
        thread::sleep(CONNECTION_INTERVAL);
    }
    unreachable!("there are more numbers than tries")
}
