//! The common part of `contiv agent` and `contiv controller`: both run with a configuration until they are stopped.

use std::{io::Write, path::PathBuf};

use clap::Args;

use crate::cli::{Outcome, Terminal, UsageError};
use crate::{
    config::{ConfigFlags, Settings},
    logging::{self, LogLevel},
};

/// The source of the configuration.
#[derive(Debug, Args)]
#[command(
    after_help = "Flags win over the environment, the environment over the file, the file over the defaults."
)]
pub(crate) struct ConfigArguments<C: Settings> {
    // The default differs between the processes.
    #[arg(
        long,
        env = "CONTIV_CONFIG",
        value_name = "FILE",
        help = format!("The configuration file [default: {}, if it exists]", C::DEFAULT_FILE)
    )]
    config: Option<PathBuf>,

    /// Print the effective configuration, or its errors, and exit
    #[arg(long)]
    check_config: bool,

    #[command(flatten)]
    flags: ConfigFlags<C>,
}

impl<C: Settings> ConfigArguments<C> {
    /// Runs the process with the effective configuration, or only prints that.
    pub(crate) fn run(
        self,
        terminal: &mut Terminal,
        process: impl FnOnce(&C, LogLevel) -> anyhow::Result<()>,
    ) -> anyhow::Result<Outcome> {
        let config = C::load(self.config.as_deref(), &self.flags)
            .map_err(|error| UsageError(error.to_string()))?;
        if self.check_config {
            writeln!(terminal.out, "# ok: this is the effective configuration")?;
            write!(terminal.out, "{}", config.to_toml()?)?;
            return Ok(Outcome::Success);
        }
        let (format, level) = config.log();
        let (level, lines) = logging::start(format, level)?;
        // The last messages do not wait for a slow reader either.
        terminal.err = Box::new(lines);
        process(&config, level)?;
        Ok(Outcome::Success)
    }
}
