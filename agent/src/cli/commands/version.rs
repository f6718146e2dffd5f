//! `contiv version`

use std::io::Write;

use clap::Args;
use serde_json::json;

use crate::cli::{Outcome, Terminal, output::format::TextOutput};

/// Print the version, and the commit that it was built from
///
/// Exit codes: 0 success; 2 wrong usage.
#[derive(Debug, Args)]
pub(crate) struct Version {
    /// Output format
    #[arg(short, long, default_value = "text")]
    output: TextOutput,
}

/// The commit of this build; none if unknown.
const COMMIT: Option<&str> = option_env!("CONTIV_BUILD_COMMIT");

/// The Cargo features of this build, separated by commas.
const FEATURES: &str = env!("CONTIV_BUILD_FEATURES");

/// Version and commit, for people.
pub(crate) fn text() -> String {
    format!(
        "contiv {} (commit {})",
        env!("CARGO_PKG_VERSION"),
        COMMIT.unwrap_or("unknown")
    )
}

impl Version {
    pub(crate) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        let features: Vec<&str> = FEATURES.split_terminator(',').collect();
        let value =
            json!({ "version": env!("CARGO_PKG_VERSION"), "commit": COMMIT, "features": features });
        match self.output {
            TextOutput::Text => writeln!(terminal.out, "{}", text())?,
            TextOutput::Data(format) => write!(terminal.out, "{}", format.print(value, false)?)?,
        }
        Ok(Outcome::Success)
    }
}
