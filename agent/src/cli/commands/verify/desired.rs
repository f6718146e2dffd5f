//! The desired state: from a running agent, or from manifests or a store with a configuration.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use contiv_model::{Object, Snapshot};
use contiv_renderer::route::RouteOptions;
use contiv_store::{StoreUrl, manifest::ParsedManifests};

use super::stored::StoreComparison;
use crate::{
    cli::{
        Terminal, UsageError,
        source::{
            agent_argument::AgentArgument,
            decoded::objects_of_store,
            http_client,
            input::{self, print_findings},
            node_settings::{NodeSettings, local_addresses},
            offline::{processor_with, validate},
        },
    },
    config::{Config, EtcdFlags, RendererName, file},
};

/// The source of the desired state: an agent, or a store or manifests.
#[derive(Debug, Args)]
pub(super) struct VerifyTarget {
    #[command(flatten)]
    agent: AgentArgument,

    /// Ask these manifests and no agent: a file, a folder with all below it, or - for standard input
    #[arg(short = 'f', long = "filename", value_name = "PATH", num_args = 1.., conflicts_with = "store")]
    files: Vec<PathBuf>,

    /// Ask this store and no agent: dir:PATH, etcd://HOST:PORT[,HOST:PORT…], or etcds://… with TLS. Without URL: compare the
    /// objects of the agent with its store, and not the kernel
    #[arg(long, value_name = "URL", num_args = 0..=1, default_missing_value = "", value_parser = store_of)]
    store: Option<VerifiedStore>,

    #[command(flatten)]
    settings: NodeSettings,

    #[command(flatten)]
    etcd: EtcdFlags,
}

/// The store of `--store`.
#[derive(Debug, Clone)]
enum VerifiedStore {
    /// The agent's own, which is compared with it.
    OfAgent,
    Named(StoreUrl),
}

fn store_of(text: &str) -> Result<VerifiedStore, String> {
    if text.is_empty() {
        return Ok(VerifiedStore::OfAgent);
    }
    let url = text.parse::<StoreUrl>();
    url.map(VerifiedStore::Named)
        .map_err(|error| error.to_string())
}

/// The source of the desired state.
pub(super) trait DesiredStateSource {
    /// The renderers whose dataplanes are verified.
    fn renderers(&mut self) -> anyhow::Result<Vec<RendererName>>;
    /// The desired state now.
    fn snapshot(&mut self) -> anyhow::Result<Snapshot>;
    /// The options of the renderer `route`.
    fn routes(&mut self) -> anyhow::Result<RouteOptions>;
}

impl VerifyTarget {
    /// The source, and whether all of its input was good; no source if none of it was.
    pub(super) fn open(
        &self,
        terminal: &mut Terminal,
    ) -> anyhow::Result<(Option<Source<'_>>, bool)> {
        if matches!(self.store, Some(VerifiedStore::OfAgent)) {
            let error = "--store needs the URL of a store to compare it with kube-proxy's rules";
            return Err(UsageError(error.to_owned()).into());
        }
        let has_input = !self.files.is_empty() || self.store.is_some();
        self.settings.check(self.agent.is_given(), has_input)?;
        if !has_input {
            return Ok((Some(Source::Agent(&self.agent)), true));
        }
        let config = self.settings.for_this_machine()?;
        let (objects, is_good) = match &self.store {
            Some(VerifiedStore::Named(url)) => {
                objects_of_store(url, &self.etcd, &config, terminal)?
            }
            _ => objects_of_manifests(&input::read(&self.files)?, terminal)?,
        };
        if objects.is_empty() && !is_good {
            return Ok((None, is_good));
        }
        let snapshot =
            Box::new(processor_with(objects, &config, Some(local_addresses()?)).snapshot());
        let source = Source::Offline {
            snapshot,
            config: Box::new(config),
        };
        Ok((Some(source), is_good))
    }

    /// The comparison of the agent with its store, if that is asked for.
    pub(super) fn store_comparison(&self) -> anyhow::Result<Option<StoreComparison<'_>>> {
        if !matches!(self.store, Some(VerifiedStore::OfAgent)) {
            return Ok(None);
        }
        self.settings.check(self.agent.is_given(), false)?;
        let config = Source::Agent(&self.agent).config()?;
        let access = self.etcd.over(&config.store, config.etcd_access());
        Ok(Some(StoreComparison {
            agent: &self.agent,
            store: config.store,
            node: config.node_name,
            access: access.map_err(|problems| UsageError(problems.join("\n")))?,
        }))
    }
}

fn objects_of_manifests(
    parsed: &ParsedManifests,
    terminal: &mut Terminal,
) -> anyhow::Result<(Vec<Object>, bool)> {
    print_findings(parsed, &mut terminal.err)?;
    let (objects, problems) = validate(parsed, &mut terminal.err)?;
    Ok((objects, parsed.problems.is_empty() && problems.is_empty()))
}

/// The source of the desired state.
pub(super) enum Source<'a> {
    Agent(&'a AgentArgument),
    /// Read once: standard input cannot be read again.
    Offline {
        snapshot: Box<Snapshot>,
        config: Box<Config>,
    },
}

impl Source<'_> {
    fn config(&self) -> anyhow::Result<Config> {
        match self {
            Self::Agent(AgentArgument { agent, .. }) => {
                let text = http_client::get(agent, "/config")?;
                file::parse("/config", &text)
                    .with_context(|| format!("{agent} is not an agent of this version"))
            }
            Self::Offline { config, .. } => Ok((**config).clone()),
        }
    }
}

impl DesiredStateSource for Source<'_> {
    fn renderers(&mut self) -> anyhow::Result<Vec<RendererName>> {
        Ok(self.config()?.renderers)
    }

    fn snapshot(&mut self) -> anyhow::Result<Snapshot> {
        match self {
            Self::Agent(agent) => agent.get("/snapshot"),
            Self::Offline { snapshot, .. } => Ok((**snapshot).clone()),
        }
    }

    fn routes(&mut self) -> anyhow::Result<RouteOptions> {
        Ok(self.config()?.routes())
    }
}
