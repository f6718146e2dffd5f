//! Connections without end while something happens.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use super::{
    LabError, Namespace, Protocol, Result,
    client::{TIME_LIMIT, ask_from_here},
};

impl Namespace {
    /// Asks again and again as fast as it can, each time on a new connection or from a new UDP port, from the start of
    /// `work` to its end.
    /// Returns how many were answered.
    ///
    /// # Errors
    /// When a single one got anything but an answer; else that of `work`.
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
                ask_from_here(protocol, server, TIME_LIMIT)?.answer().map_err(|error| {
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
            let outcome = work();
            done.store(true, Ordering::Relaxed);
            let answered = prober.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause));
            outcome.and(answered)
        })
    }
}
