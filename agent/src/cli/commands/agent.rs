//! `contiv agent`

use clap::Args;

use crate::cli::{Outcome, Terminal, source::config_arguments::ConfigArguments};
use crate::{agent, config::Config};

/// Run the node agent: watch the store and program this node's dataplane
///
/// SIGTERM and SIGINT stop it and leave the dataplane in place. SIGHUP lists the store again and resyncs every renderer. Exit
/// codes: 0 it was stopped, or the configuration is valid; 1 it could not start, or has failed; 2 wrong usage or configuration.
#[derive(Debug, Args)]
pub(crate) struct Agent {
    #[command(flatten)]
    config: ConfigArguments<Config>,
}

impl Agent {
    pub(crate) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        self.config.run(terminal, agent::run)
    }
}
