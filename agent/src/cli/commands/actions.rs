//! `contiv confirm-deletions` and `contiv resync`: commands to a running agent.

use std::io::Write;

use clap::Args;
use serde::Deserialize;

use crate::cli::{Outcome, Terminal, source::agent_argument::AgentArgument};

/// Apply the deletions that the running agent holds because there are too many at once
///
/// `contiv status` shows whether any are held. It works only on the agent's machine. Exit codes: 0 the agent applies them now,
/// or held none; 1 the agent does not answer; 2 wrong usage.
#[derive(Debug, Args)]
pub(crate) struct ConfirmDeletions {
    #[command(flatten)]
    agent: AgentArgument,
}

impl ConfirmDeletions {
    pub(crate) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        #[derive(Deserialize)]
        struct Answer {
            deletions: String,
        }
        let Answer { deletions } = self.agent.post("/controller/confirm-deletions")?;
        writeln!(terminal.out, "deletions: {deletions}")?;
        Ok(Outcome::Success)
    }
}

/// Make the running agent list the store again and resync every renderer
///
/// It does not wait for the result, which `contiv events` shows. It works only on the agent's machine. Exit codes: 0 the agent
/// has started the resync; 1 the agent does not answer; 2 wrong usage.
#[derive(Debug, Args)]
pub(crate) struct ResyncCommand {
    #[command(flatten)]
    agent: AgentArgument,
}

impl ResyncCommand {
    pub(crate) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        #[derive(Deserialize)]
        struct Answer {
            resync: String,
            after: u64,
        }
        let Answer { resync, after } = self.agent.post("/controller/resync")?;
        writeln!(
            terminal.out,
            "resync: {resync}; `contiv events` shows it after event {after}"
        )?;
        Ok(Outcome::Success)
    }
}
