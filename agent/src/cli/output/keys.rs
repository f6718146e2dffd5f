//! Keys that the user presses while a command keeps the screen up to date.

use std::{
    io::{self, IsTerminal},
    process,
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant},
};

use console::{Key, Term};
use futures::future::select_all;
use rustix::{
    process::{Signal, getpgrp, getpid, kill_process},
    termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr},
};
use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{self, SignalKind},
};

/// Ctrl-Z, which arrives as a key while one is read.
const SUSPEND: char = '\x1a';

/// What is added to the number of a signal in the exit code, as in a shell.
const SIGNAL_EXIT_CODE: i32 = 128;

/// The keys of the terminal.
///
/// One key is read at a time, on request: while it is awaited the terminal is in raw mode. It gets its own mode back when the command
/// ends, also by an error, a panic or a signal. Ctrl-C ends the process, with the exit code that
/// a shell gives it.
#[derive(Debug)]
pub(crate) struct Keys {
    /// None if input or output is no terminal.
    reader: Option<Reader>,
    /// Restores the terminal after the last key.
    _mode: Option<TerminalMode>,
}

/// The mode that the terminal had before. Dropping it restores that.
#[derive(Debug, Clone)]
struct TerminalMode(Termios);

impl Drop for TerminalMode {
    fn drop(&mut self) {
        // The kernel stops a process of the background that sets the mode; it is the shell's by then.
        if is_in_foreground() {
            // A terminal that is gone needs none.
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
        }
    }
}

impl TerminalMode {
    /// Also restores it when a signal ends the process.
    fn save() -> Option<Self> {
        let mode = Self(tcgetattr(io::stdin()).ok()?);
        let runtime = Builder::new_current_thread().enable_all().build().ok()?;
        let signals = ending_signals(&runtime).ok()?;
        let restored = mode.clone();
        let wait = move || {
            let number = runtime.block_on(async {
                let received = signals.into_iter().map(|(kind, mut signal)| {
                    Box::pin(async move {
                        signal.recv().await;
                        kind.as_raw_value()
                    })
                });
                select_all(received).await.0
            });
            drop(restored);
            process::exit(SIGNAL_EXIT_CODE + number);
        };
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(wait)
            .ok()?;
        Some(mode)
    }
}

/// The signals that end a process.
fn ending_signals(runtime: &Runtime) -> io::Result<Vec<(SignalKind, unix::Signal)>> {
    let _context = runtime.enter();
    let kinds = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
        SignalKind::quit(),
    ];
    kinds
        .into_iter()
        .map(|kind| Ok((kind, unix::signal(kind)?)))
        .collect()
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
        // Without a way to restore the terminal no key is read.
        let mode = has_terminal.then(TerminalMode::save).flatten();
        Self {
            reader: mode.as_ref().and_then(|_| Reader::start()),
            _mode: mode,
        }
    }

    /// No keys.
    pub(crate) const fn none() -> Self {
        Self {
            reader: None,
            _mode: None,
        }
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
