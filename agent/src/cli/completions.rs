//! `contiv completions`

use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

use super::{Cli, Outcome, Terminal};

/// Print the completions of a shell, as in: `contiv completions bash >/etc/bash_completion.d/contiv`
///
/// Exit codes: 0 all is well; 2 wrong usage.
#[derive(Debug, Args)]
pub(super) struct Completions {
    /// Which shell
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self, terminal: &mut Terminal) -> Outcome {
        generate(self.shell, &mut Cli::command(), "contiv", &mut terminal.out);
        Outcome::Good
    }
}
