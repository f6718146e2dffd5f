//! A server as a process, whose output is shown when it or its test fails.

use std::{fs::File, io, os::unix::fs::FileExt, process::Stdio, thread};

use nix::{
    sys::{
        signal::{Signal, kill},
        wait::{Id, WaitPidFlag, waitid},
    },
    unistd::Pid,
};
use tokio::process::{Child, Command};

/// A running server. It is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    name: &'static str,
    child: Child,
    output: File,
    /// Whether the test has ended it, or has got an error that says how it ended.
    is_end_known: bool,
}

impl ServerProcess {
    /// Starts a program.
    pub(crate) fn start(name: &'static str, command: &mut Command) -> io::Result<Self> {
        let output = tempfile::tempfile()?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| not_installed(name, &error))?;
        Ok(Self {
            name,
            child,
            output,
            is_end_known: false,
        })
    }

    /// An error with everything it has printed, if it has ended.
    pub(crate) fn check(&mut self) -> io::Result<()> {
        match self.child.try_wait()? {
            Some(status) => {
                self.is_end_known = true;
                Err(io::Error::other(format!(
                    "{} ended: {status}\n{}",
                    self.name,
                    self.printed()
                )))
            }
            None => Ok(()),
        }
    }

    /// The error of a server that does not answer in time.
    pub(crate) fn timeout_error(&self) -> io::Error {
        let what = format!(
            "{} does not answer; it has printed:\n{}",
            self.name,
            self.printed()
        );
        io::Error::new(io::ErrorKind::TimedOut, what)
    }

    /// Kills it, and waits until it has ended.
    pub(crate) async fn kill(&mut self) -> io::Result<()> {
        self.is_end_known = true;
        self.child.kill().await
    }

    /// Stops all of its threads. They have stopped when this returns: the signal alone is only a request.
    pub(crate) fn pause(&self) -> io::Result<()> {
        let id = self.signal(Signal::SIGSTOP)?;
        let stopped_or_ended = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        waitid(Id::Pid(id), stopped_or_ended)?;
        Ok(())
    }

    /// Lets it continue.
    pub(crate) fn resume(&self) -> io::Result<()> {
        self.signal(Signal::SIGCONT).map(drop)
    }

    fn signal(&self, signal: Signal) -> io::Result<Pid> {
        let id = self
            .child
            .id()
            .ok_or_else(|| io::Error::other(format!("{} has ended", self.name)))?;
        let id = Pid::from_raw(id.cast_signed());
        kill(id, signal)?;
        Ok(id)
    }

    /// What it has printed.
    fn printed(&self) -> String {
        let size = self.output.metadata().map_or(0, |metadata| metadata.len());
        let mut text = vec![0; usize::try_from(size).unwrap_or(0)];
        // Read at a position: the current one is where the server goes on to write.
        match self.output.read_exact_at(&mut text, 0) {
            Ok(()) => String::from_utf8_lossy(&text).into_owned(),
            Err(error) => format!("(its output cannot be read: {error})"),
        }
    }
}

/// Shows what a server has printed that ended without being asked to, or whose test fails.
impl Drop for ServerProcess {
    #[expect(clippy::print_stderr, reason = "this is the output of a failed test")]
    fn drop(&mut self) {
        let ended = self.child.try_wait().ok().flatten();
        let ended_by_itself = ended.filter(|_| !self.is_end_known);
        if thread::panicking() || ended_by_itself.is_some() {
            let ended = ended_by_itself
                .map_or_else(String::new, |status| format!(", which ended: {status}"));
            eprintln!("--- output of {}{ended} ---\n{}", self.name, self.printed());
        }
    }
}

pub(crate) fn not_installed(name: &str, error: &io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("cannot run {name} ({error}): run scripts/deps"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn server_that_ended_says_why() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo listening; echo no such flag >&2; exit 2"]);
        let mut server = ServerProcess::start("a server", &mut command).unwrap();
        let error = loop {
            match server.check() {
                Ok(()) => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
                Err(error) => break error.to_string(),
            }
        };
        assert_eq!(
            error,
            "a server ended: exit status: 2\nlistening\nno such flag\n"
        );
    }
}
