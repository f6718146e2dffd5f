//! Keys that the user presses while a command keeps the screen up to date.

use std::{
    io::{self, IsTerminal},
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant},
};

use console::{Key, Term};
use rustix::{
    process::{Signal, getpgrp, getpid, kill_process},
    termios::tcgetpgrp,
};

/// Ctrl-Z, which arrives as a key while one is read.
const SUSPEND: char = '\x1a';

/// The keys of the terminal.
///
/// One key is read at a time, on request: the terminal has its usual mode whenever the command does not wait for a key, also when
/// it ends. Ctrl-C ends the process, as without this.
#[derive(Debug)]
pub(crate) struct Keys {
    /// None if input or output is no terminal.
    reader: Option<Reader>,
}

#[derive(Debug)]
struct Reader {
    requests: SyncSender<()>,
    keys: Receiver<io::Result<Key>>,
    is_awaited: bool,
}

impl Keys {
    /// The keys of this process's terminal; none without one.
    pub(crate) fn of_terminal() -> Self {
        let has_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
        Self {
            reader: has_terminal.then(Reader::start).flatten(),
        }
    }

    /// No keys.
    pub(crate) const fn none() -> Self {
        Self { reader: None }
    }

    /// Waits for a key, at most this long. Always this long without a terminal.
    pub(crate) fn wait(&mut self, limit: Duration) -> Option<Key> {
        let until = Instant::now() + limit;
        if let Some(reader) = &mut self.reader {
            match reader.wait(limit) {
                Ok(Some(Key::Char(SUSPEND))) => {
                    // If it cannot be stopped, it goes on.
                    let _ = kill_process(getpid(), Signal::TSTP);
                }
                Ok(Some(key)) => return Some(key),
                Ok(None) => {}
                // The terminal is gone.
                Err(_) => self.reader = None,
            }
        }
        thread::sleep(until.saturating_duration_since(Instant::now()));
        None
    }
}

/// True for keys that end a command.
pub(crate) fn ends(key: &Key) -> bool {
    matches!(key, Key::Char('q' | 'Q') | Key::Escape)
}

/// Only the foreground may read keys: others would be stopped.
fn is_in_foreground() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp())
}

impl Reader {
    fn start() -> Option<Self> {
        let (requests, requested) = sync_channel::<()>(1);
        let (sender, keys) = sync_channel(1);
        let read = move || {
            for () in requested {
                if sender.send(Term::stdout().read_key()).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new()
            .name("keys".to_owned())
            .spawn(read)
            .ok()?;
        Some(Self {
            requests,
            keys,
            is_awaited: false,
        })
    }

    fn wait(&mut self, limit: Duration) -> Result<Option<Key>, RecvTimeoutError> {
        if !self.is_awaited {
            if !is_in_foreground() {
                return Ok(None);
            }
            self.requests
                .send(())
                .map_err(|_| RecvTimeoutError::Disconnected)?;
            self.is_awaited = true;
        }
        match self.keys.recv_timeout(limit) {
            Ok(key) => {
                self.is_awaited = false;
                key.map(Some).map_err(|_| RecvTimeoutError::Disconnected)
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
