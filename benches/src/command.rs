//! Commands in the calling thread's namespace. Those of the lab have a time limit of ten seconds, but loading a peer's layout
//! can take minutes.

use std::process::{Command, Stdio};

use contiv_tests::lab::{LabError, Result};

/// Runs a command and returns its output.
///
/// # Errors
/// When it cannot be started, or fails.
pub fn run(command: &[&str]) -> Result<String> {
    let text = command.join(" ");
    let (program, arguments) = command.split_first().unwrap_or((&"", &[]));
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| LabError::system(format!("run `{text}`"), error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let output_text = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(LabError::Command {
        command: text,
        status: output.status,
        output: output_text,
    })
}
