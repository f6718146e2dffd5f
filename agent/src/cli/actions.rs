//! `contiv confirm-deletions` and `contiv resync`: commands to a running agent.

use std::io::Write;

use clap::Args;
use serde::Deserialize;

use super::{Outcome, Terminal, agent_argument::AgentArgument};

/// Let deletions count that the running agent holds because they are too many at once
///
/// `contiv status` says whether any are held. Only on the machine of the agent. Exit codes: 0 they count from now on, or none
/// were held; 1 the agent does not answer; 2 wrong usage.
#[derive(Debug, Args)]
pub(super) struct ConfirmDeletions {
    #[command(flatten)]
    agent: AgentArgument,
}

impl ConfirmDeletions {
    pub(super) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        #[derive(Deserialize)]
        struct Answer {
            deletions: String,
        }
        let Answer { deletions } = self.agent.post("/controller/confirm-deletions")?;
        writeln!(terminal.out, "deletions: {deletions}")?;
        Ok(Outcome::Good)
    }
}

/// Let the running agent read the store again and give every renderer everything again
///
/// It does not wait for that: `contiv events` shows it. Only on the machine of the agent. Exit codes: 0 the agent begins with
/// it; 1 the agent does not answer; 2 wrong usage.
#[derive(Debug, Args)]
pub(super) struct ResyncCommand {
    #[command(flatten)]
    agent: AgentArgument,
}

impl ResyncCommand {
    pub(super) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        #[derive(Deserialize)]
        struct Answer {
            resync: String,
            after: u64,
        }
        let Answer { resync, after } = self.agent.post("/controller/resync")?;
        writeln!(terminal.out, "resync: {resync}; `contiv events` shows it after event {after}")?;
        Ok(Outcome::Good)
    }
}
