//! Long-running programs of the lab, with their output in a file.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use nix::{
    sys::{
        signal::{Signal, kill},
        wait::{Id, WaitPidFlag, waitid},
    },
    unistd::Pid,
};

use super::{LabError, Namespace, Result, wait_for};

/// The folder for the files of the lab's programs. It is on the lab's own tmpfs.
const SCRATCH: &str = "/run/contiv-lab";

/// The path for a file or folder of the lab's programs. Its parent folder is created; the file itself is not.
pub fn scratch(name: &str) -> Result<PathBuf> {
    let path = PathBuf::from(SCRATCH).join(name);
    let parent = path.parent().unwrap_or(&path);
    fs::create_dir_all(parent)
        .map_err(|error| LabError::system(format!("make {}", parent.display()), error))?;
    Ok(path)
}

/// A program that runs in a namespace until it is stopped or this value is dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program. A second one of the same name appends to the log of the first.
    pub fn start(namespace: &Namespace, name: &str, command: &mut Command) -> Result<Self> {
        let log = scratch(&format!("log/{name}"))?;
        let failed =
            |error| LabError::system(format!("start {name} in {}", namespace.host.name), error);
        let output = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .map_err(failed)?;
        let errors = output.try_clone().map_err(failed)?;
        // In its own process group, so that signals from the terminal do not reach it.
        command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .process_group(0);
        let child = namespace.run(|| command.spawn().map_err(failed))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log,
        })
    }

    /// Its process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its output so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends a signal to it. After SIGSTOP all of its threads have stopped when this returns: the signal alone is only a request,
    /// and on a busy machine threads go on for a while.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let id = Pid::from_raw(self.child.id().cast_signed());
        let stopped = match kill(id, signal) {
            Ok(()) if signal == Signal::SIGSTOP => waitid(
                Id::Pid(id),
                WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT,
            )
            .map(drop),
            result => result,
        };
        stopped.map_err(|error| LabError::system(format!("send {signal} to {}", self.name), error))
    }

    /// Waits until it has ended by itself.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        wait_for(&format!("{} ends", self.name), limit, || {
            self.child.try_wait().transpose()
        })?
        .map_err(|error| LabError::system(format!("wait for {}", self.name), error))
    }

    /// Sends SIGTERM and waits until it has ended.
    pub fn terminate(&mut self, limit: Duration) -> Result<ExitStatus> {
        self.signal(Signal::SIGTERM)?;
        self.wait(limit)
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) -> Result<()> {
        let failed = |error| LabError::system(format!("kill {}", self.name), error);
        self.child.kill().map_err(failed)?;
        self.child.wait().map(drop).map_err(failed)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A failure is harmless: the process ends with its namespace in any case.
        let _ = self.kill();
    }
}

/// Prints the logs of all programs of the lab.
#[expect(clippy::print_stderr, reason = "this is the output of a failed test")]
pub(crate) fn print_logs() {
    let Ok(logs) = fs::read_dir(PathBuf::from(SCRATCH).join("log")) else {
        return;
    };
    for log in logs.flatten() {
        let text = fs::read(log.path()).unwrap_or_default();
        eprintln!(
            "--- log of {} ---\n{}",
            log.file_name().display(),
            String::from_utf8_lossy(&text)
        );
    }
}
