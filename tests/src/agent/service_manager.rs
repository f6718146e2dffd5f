//! The part of systemd that the agent sees: its priority and the notification socket.

use std::{
    fs,
    io::{self, ErrorKind},
    net::Shutdown,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    process::Command,
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::lab::{LabError, Result, scaled, scratch};

/// The unit that the package installs.
const UNIT: &str = include_str!("../../../systemd/contiv-agent.service");

/// The agent's service manager. It listens until it is dropped.
#[derive(Debug)]
pub(super) struct ServiceManager {
    path: PathBuf,
    socket: UnixDatagram,
    listener: Option<JoinHandle<()>>,
}

impl ServiceManager {
    /// Opens the socket.
    pub(super) fn start() -> Result<Self> {
        let path = scratch("agent.notify")?;
        let failed = |error| LabError::system(format!("listen at {}", path.display()), error);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let socket = UnixDatagram::bind(&path).map_err(failed)?;
        Ok(Self {
            path,
            socket,
            listener: None,
        })
    }

    /// A command that starts `program` as the unit does. The unit's priority is set only if the process may do so.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nice");
        command
            .args(["-n", priority()])
            .arg(program)
            .env_clear()
            .env("NOTIFY_SOCKET", &self.path);
        command
    }

    /// Waits until the agent reports that it is ready, and keeps reading so that later messages do not fill the socket.
    pub(super) fn wait_until_ready(&mut self, limit: Duration) -> Result<()> {
        let failed = |error: io::Error| match error.kind() {
            ErrorKind::WouldBlock => LabError::TooLate {
                event: "the agent says that it is ready".to_owned(),
                limit,
            },
            _ => LabError::system(format!("listen at {}", self.path.display()), error),
        };
        self.socket
            .set_read_timeout(Some(scaled(limit)))
            .map_err(failed)?;
        let mut message = [0; 4096];
        loop {
            let length = self.socket.recv(&mut message).map_err(failed)?;
            let message = message.get(..length).unwrap_or_default();
            if message
                .split(|byte| *byte == b'\n')
                .any(|line| line == b"READY=1")
            {
                break;
            }
        }
        self.socket.set_read_timeout(None).map_err(failed)?;
        let socket = self.socket.try_clone().map_err(failed)?;
        self.listener = Some(thread::spawn(move || {
            // An empty message is never sent, so it marks the end.
            while socket.recv(&mut message).is_ok_and(|length| length > 0) {}
        }));
        Ok(())
    }
}

impl Drop for ServiceManager {
    fn drop(&mut self) {
        // Wakes the listener.
        let _ = self.socket.shutdown(Shutdown::Both);
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

fn priority() -> &'static str {
    UNIT.lines()
        .find_map(|line| line.strip_prefix("Nice="))
        .unwrap_or("0")
}
