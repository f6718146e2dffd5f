//! Network namespaces and commands in them.

use std::{
    fs::File,
    io::{Read, Seek, Write},
    panic,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use nix::sched::{CloneFlags, setns};

use super::{Host, LabError, Result, wait::scaled};

/// The time limit of a command in a namespace.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);

/// A network namespace of the lab: a machine or a pod.
#[derive(Debug)]
pub struct Namespace {
    /// Its name and addresses.
    pub host: &'static Host,
}

impl Namespace {
    pub(crate) const fn new(host: &'static Host) -> Self {
        Self { host }
    }

    /// Runs `work` on a thread in this namespace. Sockets made there stay in the namespace.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let path = PathBuf::from("/run/netns").join(self.host.name);
        let in_namespace = || {
            let file = File::open(&path)
                .map_err(|error| LabError::system(format!("open {}", path.display()), error))?;
            setns(file, CloneFlags::CLONE_NEWNET)
                .map_err(|error| LabError::system(format!("enter {}", path.display()), error))?;
            work()
        };
        thread::scope(|scope| {
            scope
                .spawn(in_namespace)
                .join()
                .unwrap_or_else(|cause| panic::resume_unwind(cause))
        })
    }

    /// Runs a command in this namespace and returns its output; a failure is an error.
    pub fn exec(&self, command: &[&str]) -> Result<String> {
        self.run(|| run_command(command, ""))
    }

    /// The same with standard input.
    pub fn exec_with_input(&self, command: &[&str], input: &str) -> Result<String> {
        self.run(|| run_command(command, input))
    }
}

/// Runs a command in the namespace of the calling thread; see [`Namespace::exec`].
pub(crate) fn run_command(command: &[&str], input: &str) -> Result<String> {
    let text = command.join(" ");
    let failed = |error| LabError::system(format!("run `{text}`"), error);
    // Files rather than pipes: a command cannot block on them.
    let scratch = |content: &str| {
        let mut file = tempfile::tempfile()?;
        file.write_all(content.as_bytes())?;
        file.rewind()?;
        Ok(file)
    };
    let mut output = scratch("").map_err(failed)?;
    let mut errors = scratch("").map_err(failed)?;
    let status = Command::new("timeout")
        .arg("--kill-after=1")
        .arg(scaled(COMMAND_LIMIT).as_secs().to_string())
        .args(command)
        .stdin(Stdio::from(scratch(input).map_err(failed)?))
        .stdout(output.try_clone().map_err(failed)?)
        .stderr(errors.try_clone().map_err(failed)?)
        .status()
        .map_err(failed)?;
    let text_of = |file: &mut File| {
        let mut bytes = Vec::new();
        file.rewind()
            .and_then(|()| file.read_to_end(&mut bytes))
            .map_err(failed)?;
        Ok::<_, LabError>(String::from_utf8_lossy(&bytes).into_owned())
    };
    let printed = text_of(&mut output)?;
    if status.success() {
        return Ok(printed);
    }
    let output = printed + &text_of(&mut errors)?;
    Err(LabError::Command {
        command: text,
        status,
        output,
    })
}
