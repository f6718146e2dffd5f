//! `contiv man`

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Command};

use crate::cli::Outcome;

/// Write the manual pages of all commands into a folder, for packages
///
/// Exit codes: 0 success; 1 a page cannot be written; 2 wrong usage.
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct Man {
    /// The folder, which must exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Man {
    pub(crate) fn run(self, command: Command) -> anyhow::Result<Outcome> {
        clap_mangen::generate_to(command, &self.folder).with_context(|| {
            format!(
                "failed to write manual pages into {}",
                self.folder.display()
            )
        })?;
        Ok(Outcome::Success)
    }
}
