//! `contiv cleanup`

use std::{io::Write, path::PathBuf};

use anyhow::bail;
use clap::Args;
use contiv_renderer::registry;

use crate::cli::{Outcome, Terminal};
use crate::{
    config::{Config, RendererName},
    state_dir,
};

/// Remove everything that the agent has programmed on this node, and nothing else
///
/// Exit codes: 0 nothing of it is left; 1 something could not be removed, or an agent is running; 2 wrong usage.
#[derive(Debug, Args)]
pub(crate) struct Cleanup {
    /// Only what these renderers have programmed [default: all]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    renderers: Vec<RendererName>,

    /// The agent's state folder, to see whether one is running
    #[arg(long, env = "CONTIV_STATE_DIR", value_name = "DIR", default_value_os_t = Config::default().state_dir)]
    state_dir: PathBuf,
}

impl Cleanup {
    pub(crate) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        if let Some(pid) = state_dir::holder_of(&self.state_dir) {
            bail!("an agent is running (pid {pid}) and would put it all back; stop it first");
        }
        let chosen: Vec<&str> = self.renderers.iter().map(|name| name.as_str()).collect();
        let mut is_good = true;
        for name in registry::NAMES
            .into_iter()
            .filter(|name| chosen.is_empty() || chosen.contains(name))
        {
            let Some(mut renderer) = registry::create(name, registry::Options::default()) else {
                continue;
            };
            match renderer.cleanup() {
                Ok(report) if report.removed == 0 => {
                    writeln!(terminal.out, "{name}: nothing to remove")?;
                }
                Ok(report) => writeln!(terminal.out, "{name}: removed {}", report.removed)?,
                Err(error) => {
                    is_good = false;
                    writeln!(terminal.err, "error: {name}: {error}")?;
                }
            }
        }
        Ok(Outcome::success_if(is_good))
    }
}
