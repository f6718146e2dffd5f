//! `contiv completions`

use anyhow::Context;
use clap::{Args, Command};
use clap_complete::{CompleteEnv, Shell, env::Shells};

use super::{Outcome, Terminal};

/// The variable with which a shell requests completions.
const VARIABLE: &str = "CONTIV_COMPLETE";

/// Print the completions of a shell, as in: `contiv completions bash >/etc/bash_completion.d/contiv`
///
/// The shell asks the binary, which asks the agent (of `CONTIV_AGENT`) for its services. Exit codes: 0 success; 2 wrong
/// usage.
#[derive(Debug, Args)]
pub(super) struct Completions {
    /// Which shell
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        let shells = Shells::builtins();
        let shell = shells.completer(&self.shell.to_string()).context("nothing completes for this shell")?;
        shell.write_registration(VARIABLE, "contiv", "contiv", "contiv", &mut terminal.out)?;
        Ok(Outcome::Success)
    }
}

/// Answers a request for completions and exits. Does nothing without one.
pub(super) fn answer_shell(command: fn() -> Command) {
    CompleteEnv::with_factory(command).var(VARIABLE).bin("contiv").complete();
}
