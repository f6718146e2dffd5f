//! `contiv controller`

use std::{io::Write, path::PathBuf};

use clap::Args;

use super::{Outcome, Terminal, UsageError};
use crate::{
    config::{ConfigFlags, controller::ControllerConfig},
    controllers::process,
    logging,
};

/// Run cluster-wide controllers, which fill the store: external workloads, other registries, Kubernetes
///
/// Several instances may run; one of them is active, and the others take over when it ends, dies or is cut off. SIGTERM
/// and SIGINT stop it: what is under way is finished, and the lease is given back.
#[derive(Debug, Args)]
#[command(
    after_help = "Flags win over the environment, the environment over the file, the file over the defaults."
)]
pub(super) struct Controller {
    /// The configuration file [default: /etc/contiv/controller.toml, if it exists]
    #[arg(long, env = "CONTIV_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,

    /// Print the effective configuration, or what is wrong with it, and exit
    #[arg(long)]
    check_config: bool,

    #[command(flatten)]
    flags: ConfigFlags<ControllerConfig>,
}

impl Controller {
    pub(super) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        let config = ControllerConfig::load(self.config.as_deref(), &self.flags)
            .map_err(|error| UsageError(error.to_string()))?;
        if self.check_config {
            writeln!(terminal.out, "# ok: this is the effective configuration")?;
            write!(terminal.out, "{}", config.to_toml()?)?;
            return Ok(Outcome::Good);
        }
        let log_level = logging::start(config.log_format, &config.log_level)?;
        process::run(&config, log_level)?;
        Ok(Outcome::Good)
    }
}
