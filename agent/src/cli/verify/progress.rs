//! How far the kernel has been read, on a terminal.

use std::{
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

/// What is done before is not worth telling.
const PATIENCE: Duration = Duration::from_millis(500);
const BETWEEN: Duration = Duration::from_millis(100);

/// A line on standard error that counts up, and is gone at the end.
#[derive(Debug)]
pub(super) struct Progress {
    what: &'static str,
    next: Instant,
    is_shown: bool,
}

impl Progress {
    /// What is called with the number of elements read so far; it does nothing where nobody watches.
    pub(super) fn start(what: &'static str) -> Box<dyn FnMut(usize) + Send> {
        if !io::stderr().is_terminal() {
            return Box::new(|_| ());
        }
        let mut progress = Self { what, next: Instant::now() + PATIENCE, is_shown: false };
        Box::new(move |count| progress.tell(count))
    }

    fn tell(&mut self, count: usize) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + BETWEEN;
        self.is_shown = true;
        // It is of no consequence if it cannot be shown.
        let _ = write!(io::stderr(), "\r{}: {count} elements", self.what);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
