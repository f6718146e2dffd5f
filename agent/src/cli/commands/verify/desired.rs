//! The desired state: from a running agent, or from manifests or a store with a configuration.

use std::{collections::BTreeMap, io::Write, path::PathBuf};

use anyhow::Context;
use clap::Args;
use contiv_external_workloads::DerivedSlices;
use contiv_model::{Object, Snapshot, wire};
use contiv_proto::{Key, key};
use contiv_renderer::route::RouteOptions;
use contiv_store::{StoreUrl, etcd::EtcdAccess, manifest::ParsedManifests};

use crate::{
    cli::{
        Terminal,
        source::{
            agent_argument::AgentArgument,
            http_client,
            input::{self, print_findings},
            node_settings::{NodeSettings, local_addresses},
            offline::{processor_with, validate},
            store,
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

    /// Ask this store and no agent: dir:PATH, etcd://HOST:PORT[,HOST:PORT…], or etcds://… with TLS
    #[arg(long, value_name = "URL")]
    store: Option<StoreUrl>,

    #[command(flatten)]
    settings: NodeSettings,

    #[command(flatten)]
    etcd: EtcdFlags,
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
        let has_input = !self.files.is_empty() || self.store.is_some();
        self.settings.check(&self.agent, has_input)?;
        if !has_input {
            return Ok((Some(Source::Agent(&self.agent)), true));
        }
        let config = self.settings.for_this_machine()?;
        let (objects, is_good) = match &self.store {
            Some(url) => objects_of_store(url, self.access(url, &config), terminal)?,
            None => objects_of_manifests(&input::read(&self.files)?, terminal)?,
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

    /// The access to a store: for the agent's store by its configuration, with flags and environment on top.
    fn access(&self, url: &StoreUrl, config: &Config) -> Result<EtcdAccess, Vec<String>> {
        if *url == config.store {
            self.etcd.over(url, config.etcd_access())
        } else {
            self.etcd.access(url)
        }
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

fn objects_of_store(
    url: &StoreUrl,
    access: Result<EtcdAccess, Vec<String>>,
    terminal: &mut Terminal,
) -> anyhow::Result<(Vec<Object>, bool)> {
    let mut listed = store::run_with(url, access, async |store| Ok(store.list(key::ROOT).await?))?;
    // As the agent does: only into etcd the controller writes them.
    if !matches!(url, StoreUrl::Etcd { .. }) {
        let derived = DerivedSlices::default().list(&listed.entries, listed.revision);
        listed
            .entries
            .retain(|entry| !derived.replaced.contains(&entry.key));
        listed.entries.extend(derived.entries);
    }
    let mut objects = BTreeMap::new();
    let mut is_good = true;
    for entry in &listed.entries {
        let decoded = match Key::parse(&entry.key) {
            Ok(None) => continue,
            Ok(Some(key)) => wire::decode(&key, &entry.value, entry.create_revision)
                .map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match decoded {
            Ok(object) => objects.extend(object.map(|object| (object.key(), object))),
            Err(error) => {
                is_good = false;
                writeln!(
                    terminal.err,
                    "{error}; an agent may still use an earlier state of it, which is not compared"
                )?;
            }
        }
    }
    Ok((objects.into_values().collect(), is_good))
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
