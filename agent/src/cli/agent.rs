//! `contiv agent`

use std::{io::Write, path::PathBuf};

use clap::Args;

use super::{Outcome, Terminal, UsageError};
use crate::{
    agent,
    config::{Config, ConfigFlags},
    logging,
};

/// Run the node agent: follow the store and keep this node's dataplane right
///
/// SIGTERM and SIGINT stop it and leave the dataplane in place. SIGHUP reads the store again and gives every renderer
/// everything again.
#[derive(Debug, Args)]
#[command(
    after_help = "Flags win over the environment, the environment over the file, the file over the defaults."
)]
pub(super) struct Agent {
    /// The configuration file [default: /etc/contiv/agent.toml, if it exists]
    #[arg(long, env = "CONTIV_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,

    /// Print the effective configuration, or what is wrong with it, and exit
    #[arg(long)]
    check_config: bool,

    #[command(flatten)]
    flags: ConfigFlags,
}

impl Agent {
    pub(super) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        let config = Config::load(self.config.as_deref(), &self.flags)
            .map_err(|error| UsageError(error.to_string()))?;
        if self.check_config {
            writeln!(terminal.out, "# ok: this is the effective configuration")?;
            write!(terminal.out, "{}", config.to_toml()?)?;
            return Ok(Outcome::Good);
        }
        let log_level = logging::start(config.log_format, &config.log_level)?;
        agent::run(&config, log_level)?;
        Ok(Outcome::Good)
    }
}
