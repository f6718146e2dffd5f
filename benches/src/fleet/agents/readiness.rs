//! A notification socket that many agents share: each sends `READY=1` once.

use std::{
    fs,
    io::ErrorKind,
    net::Shutdown,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    sync::mpsc::{self, Receiver},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use contiv_tests::lab::{LabError, Result, scratch};

/// How many messages may wait in a socket: 10 unless it is set, and each of many agents sends one or two at once.
const QUEUE_LENGTH: &str = "/proc/sys/net/unix/max_dgram_qlen";

/// The service manager of all agents. It reads their messages until it is dropped, since an agent warns if nobody does.
pub(super) struct ReadinessListener {
    path: PathBuf,
    socket: UnixDatagram,
    ready: Receiver<Instant>,
    reader: Option<JoinHandle<()>>,
}

impl ReadinessListener {
    /// Opens a new socket.
    pub(super) fn start() -> Result<Self> {
        let path = scratch("fleet.notify")?;
        let failed = |error| LabError::system(format!("listen at {}", path.display()), error);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        fs::write(QUEUE_LENGTH, "512")
            .map_err(|error| LabError::system(format!("write {QUEUE_LENGTH}"), error))?;
        let socket = UnixDatagram::bind(&path).map_err(failed)?;
        let read = socket.try_clone().map_err(failed)?;
        let (sender, ready) = mpsc::channel();
        let reader = thread::spawn(move || {
            let mut message = [0; 4096];
            // An empty message is never sent, so it marks the end.
            while let Some(length) = read.recv(&mut message).ok().filter(|length| *length > 0) {
                if is_ready(message.get(..length).unwrap_or_default()) {
                    // Nobody waits any more if this fails.
                    let _ = sender.send(Instant::now());
                }
            }
        });
        Ok(Self {
            path,
            socket,
            ready,
            reader: Some(reader),
        })
    }

    /// Where agents send to.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// When each of so many agents said that it is ready.
    pub(super) fn wait(&self, agents: usize, limit: Duration) -> Result<Vec<Instant>> {
        let deadline = Instant::now() + limit;
        let wait = |number: usize| {
            let left = deadline.saturating_duration_since(Instant::now());
            self.ready
                .recv_timeout(left)
                .map_err(|_| LabError::TooLate {
                    event: format!("agent {number} of {agents} is ready"),
                    limit,
                })
        };
        (1..=agents).map(wait).collect()
    }
}

impl Drop for ReadinessListener {
    fn drop(&mut self) {
        // Wakes the reader.
        let _ = self.socket.shutdown(Shutdown::Both);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// Whether a message of `sd_notify(3)` says that a start is complete.
fn is_ready(message: &[u8]) -> bool {
    message
        .split(|byte| *byte == b'\n')
        .any(|line| line == b"READY=1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_line_says_ready() {
        assert!(is_ready(b"READY=1\nSTATUS=serving"));
        assert!(is_ready(b"STATUS=serving\nREADY=1\n"));
        assert!(!is_ready(b"STATUS=READY=1"));
        assert!(!is_ready(b"READY=10"));
    }
}
