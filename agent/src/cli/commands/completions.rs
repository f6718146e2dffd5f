//! `contiv completions`

use anyhow::Context;
use clap::{Args, Command};
use clap_complete::{CompleteEnv, Shell, env::Shells};

use crate::cli::{Outcome, Terminal};

/// The environment variable with which a shell requests completions.
const COMPLETE_VARIABLE: &str = "CONTIV_COMPLETE";

/// Print the completions of a shell, as in: `contiv completions bash >/etc/bash_completion.d/contiv`
///
/// To complete names of services the shell runs `contiv`, which queries the agent at `CONTIV_AGENT`. Exit codes: 0 success; 2 wrong
/// usage.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell to complete in
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        let shells = Shells::builtins();
        let shell = shells
            .completer(&self.shell.to_string())
            .context("no completions exist for this shell")?;
        shell.write_registration(
            COMPLETE_VARIABLE,
            "contiv",
            "contiv",
            "contiv",
            &mut terminal.out,
        )?;
        Ok(Outcome::Success)
    }
}

/// If a shell requests completions, prints them and exits the process. Otherwise does nothing.
pub(crate) fn complete_and_exit_if_requested(command: fn() -> Command) {
    CompleteEnv::with_factory(command)
        .var(COMPLETE_VARIABLE)
        .bin("contiv")
        .complete();
}
