//! `contiv support-bundle`

mod archive;
mod kernel;

use std::{
    io::{self, Write},
    path::PathBuf,
};

use anyhow::{Context, anyhow};
use clap::Args;
use contiv_model::Snapshot;
use jiff::Timestamp;

use self::archive::Archive;
use crate::cli::{
    Outcome, Terminal,
    source::{agent_argument::AgentArgument, http_client, program},
};
use crate::config::{Config, ConfigError, ConfigFlags, RendererName, Settings as _, file};

/// Collect information for finding a problem into one archive
///
/// The configuration (which names the files of passwords and keys, but contains none), the agent's state, history and metrics,
/// its journal, the kernel's table (also as nft reads it) and routes, and versions. Parts that cannot be collected or are cut
/// are listed in missing.txt. The archive contains the names and addresses of services and nodes. Exit codes: 0 it is written;
/// 1 it cannot be written; 2 wrong usage.
#[derive(Debug, Args)]
pub(crate) struct SupportBundle {
    /// The archive, which must not exist [default: contiv-support-TIME.tar.gz]
    #[arg(short = 'O', long, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    agent: AgentArgument,
}

/// The requests to the agent, with the file of the answer in the archive.
const ANSWERS: [(&str, &str); 14] = [
    ("/config", "agent/config.toml"),
    ("/status", "agent/status.json"),
    ("/readiness", "agent/readiness.json"),
    ("/renderers", "agent/renderers.json"),
    ("/services", "agent/services.json"),
    ("/snapshot", "agent/snapshot.json"),
    ("/nodes", "agent/nodes.json"),
    ("/quarantine", "agent/quarantine.json"),
    ("/warnings", "agent/warnings.json"),
    ("/health-checks", "agent/health-checks.json"),
    ("/refused", "agent/refused.json"),
    ("/controller/event-history", "agent/event-history.json"),
    ("/log/level", "agent/log-level.json"),
    ("/metrics", "agent/metrics.txt"),
];

impl SupportBundle {
    pub(crate) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        let now = Timestamp::now();
        let path = self.output.clone().unwrap_or_else(|| {
            PathBuf::from(format!(
                "contiv-support-{}.tar.gz",
                now.strftime("%Y%m%d-%H%M%S")
            ))
        });
        let mut archive = Archive::create(&path, now).with_context(|| {
            format!(
                "failed to create {}; choose another file with -O",
                path.display()
            )
        })?;
        self.collect(&mut archive)?;
        let missing = archive
            .finish()
            .with_context(|| format!("failed to write {}", path.display()))?;
        writeln!(terminal.out, "{}", path.display())?;
        if missing > 0 {
            writeln!(
                terminal.err,
                "note: {missing} parts could not be collected or are truncated; missing.txt in the archive says why"
            )?;
        }
        Ok(Outcome::Success)
    }

    fn collect(&self, archive: &mut Archive) -> anyhow::Result<()> {
        archive.add("version.txt", Ok(kernel::versions()))?;
        let config = http_client::get(&self.agent.agent, "/config")
            .and_then(|text| Ok(file::parse_of_any_version::<Config>("/config", &text)?.0));
        for (request, name) in ANSWERS {
            archive.add(name, http_client::get(&self.agent.agent, request))?;
        }
        for name in config.iter().flat_map(|config| &config.renderers) {
            let dump = http_client::get(&self.agent.agent, &format!("/renderers/{name}/dump"));
            archive.add(&format!("agent/dump-{name}.txt"), dump)?;
        }
        let config = configuration(
            config,
            || Config::load(None, &ConfigFlags::default()),
            archive,
        )?;
        archive.add("kernel/table.txt", kernel::table())?;
        archive.add("kernel/verify-nft.json", kernel::verify_nft())?;
        let options = config.as_ref().map(Config::routes).unwrap_or_default();
        let (routes, problems) = kernel::routes(options);
        archive.add_partial("kernel/routes.txt", &routes, &problems)?;
        let journal = program::journal("contiv-agent");
        archive.add_partial(
            "journal/contiv-agent.txt",
            &journal.text,
            journal.problem.as_slice(),
        )?;
        archive.add("kernel/settings.txt", Ok(kernel::settings()))?;
        let snapshot = http_client::get(&self.agent.agent, "/snapshot")
            .and_then(|text| Ok(serde_json::from_str::<Snapshot>(&text)?));
        let runs = |name| {
            config
                .as_ref()
                .is_some_and(|config| config.renderers.contains(&name))
        };
        if runs(RendererName::ROUTE) {
            let verified = match &snapshot {
                Ok(snapshot) => kernel::verify_routes(options, snapshot),
                Err(error) => Err(anyhow!("{error:#}")),
            };
            archive.add("kernel/verify-routes.json", verified)?;
        }
        archive.add(
            "kernel/verify.json",
            snapshot.and_then(|snapshot| kernel::verify_table(&snapshot)),
        )?;
        Ok(())
    }
}

/// The configuration that the agent answered with, or else the one that an agent on this machine would start with.
fn configuration(
    answered: anyhow::Result<Config>,
    own: impl FnOnce() -> Result<Config, ConfigError>,
    archive: &mut Archive,
) -> io::Result<Option<Config>> {
    let error = match answered {
        Ok(config) => return Ok(Some(config)),
        Err(error) => error,
    };
    archive.add_missing(
        "agent/dump-RENDERER.txt",
        format_args!("its renderers are not known: {error:#}"),
    );
    let own = own();
    let text = own.as_ref().map_err(Clone::clone).and_then(Config::to_toml);
    archive.add("config.toml", text.map_err(Into::into))?;
    Ok(own.ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_of_this_machine_is_used_if_no_agent_answers() {
        let folder = tempfile::tempdir().unwrap();
        let mut archive =
            Archive::create(&folder.path().join("bundle.tar.gz"), Timestamp::now()).unwrap();
        let own = Config {
            renderers: vec![RendererName::ROUTE],
            ..Config::default()
        };
        let no_agent = Err(anyhow!("no agent"));
        let used = configuration(no_agent, || Ok(own.clone()), &mut archive).unwrap();
        assert_eq!(used.map(|config| config.renderers), Some(own.renderers));
    }
}
