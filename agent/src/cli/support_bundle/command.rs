//! Runs programs of the system, for information that no kernel interface provides.

use std::process::{Command, Stdio};

use anyhow::{Context, bail};

/// How many lines of a journal are included: weeks, for a quiet agent.
const JOURNAL_LINES: &str = "20000";

/// The output of a program.
///
/// # Errors
/// When it cannot be run, or fails.
pub(super) fn run(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(program);
    let output = command.args(arguments).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("failed to run {program}; is it installed?"))?;
    if !output.status.success() {
        bail!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The newest lines of the journal of a unit.
///
/// # Errors
/// Those of [`run`].
pub(super) fn journal(unit: &str) -> anyhow::Result<String> {
    let form = ["--no-pager", "--output", "short-iso-precise"];
    run("journalctl", &[&["--unit", unit, "--lines", JOURNAL_LINES], &form[..]].concat())
}
