//! What there must be: as a running agent has it, or from manifests or a store, by the rules of a configuration.

use std::{collections::BTreeMap, io::Write, path::PathBuf};

use anyhow::Context;
use clap::Args;
use contiv_model::{Event, Object, Processor, Resync, Snapshot, wire};
use contiv_proto::{Key, key};
use contiv_renderer::{LocalAddresses, route::RouteOptions};
use contiv_store::{StoreUrl, manifest::Parsed};

use crate::{
    cli::{
        Terminal, UsageError,
        agent_argument::AgentArgument,
        http_client,
        input::{self, print_problems},
        offline::validate,
        store,
    },
    config::{Config, ConfigFlags, EtcdFlags, RendererName, Settings as _, file},
};

/// Whom to ask.
#[derive(Debug, Args)]
pub(super) struct Whom {
    #[command(flatten)]
    agent: AgentArgument,

    /// Ask these manifests and no agent: a file, a folder with all below it, or - for standard input
    #[arg(short = 'f', long = "filename", value_name = "PATH", num_args = 1..)]
    #[arg(conflicts_with_all = ["agent", "store"])]
    files: Vec<PathBuf>,

    /// Ask this store and no agent: dir:PATH, etcd://HOST:PORT[,HOST:PORT…], or etcds://… with TLS
    #[arg(long, value_name = "URL", conflicts_with = "agent")]
    store: Option<StoreUrl>,

    /// With -f and --store: the configuration of the agent [default: /etc/contiv/agent.toml, if it exists]
    #[arg(long, value_name = "FILE", conflicts_with = "agent")]
    config: Option<PathBuf>,

    /// With -f and --store: on which node [default: as configured]
    #[arg(long, value_name = "NAME", conflicts_with = "agent")]
    node_name: Option<String>,

    #[command(flatten)]
    etcd: EtcdFlags,
}

/// Where the answers come from.
pub(super) trait Desire {
    /// The renderers whose dataplanes are to be verified.
    fn renderers(&mut self) -> anyhow::Result<Vec<RendererName>>;
    /// What they must hold now.
    fn snapshot(&mut self) -> anyhow::Result<Snapshot>;
    /// What the renderer `route` is told.
    fn routes(&mut self) -> anyhow::Result<RouteOptions>;
}

impl Whom {
    /// The source, and whether all of its input was good; no source if none of it was.
    pub(super) fn open(&self, terminal: &mut Terminal) -> anyhow::Result<(Option<Source<'_>>, bool)> {
        if self.files.is_empty() && self.store.is_none() {
            return Ok((Some(Source::Agent(&self.agent)), true));
        }
        let mut config = Config::load(self.config.as_deref(), &ConfigFlags::default())
            .map_err(|error| UsageError(error.to_string()))?;
        config.node_name = self.node_name.clone().unwrap_or(config.node_name);
        let (objects, is_good) = match &self.store {
            Some(url) => of_store(url, &self.etcd, terminal)?,
            None => of_manifests(&input::read(&self.files)?, terminal)?,
        };
        if objects.is_empty() && !is_good {
            return Ok((None, is_good));
        }
        let mut processor = Processor::new(config.processor());
        processor.apply([Event::LocalAddresses(local_addresses()?)]);
        processor.resync(Resync { objects, ..Resync::default() });
        let source = Source::Offline { snapshot: Box::new(processor.snapshot()), config: Box::new(config) };
        Ok((Some(source), is_good))
    }
}

fn of_manifests(parsed: &Parsed, terminal: &mut Terminal) -> anyhow::Result<(Vec<Object>, bool)> {
    print_problems(&parsed.problems, &mut terminal.err)?;
    let (objects, problems) = validate(parsed);
    print_problems(&problems, &mut terminal.err)?;
    Ok((objects, parsed.problems.is_empty() && problems.is_empty()))
}

fn of_store(
    url: &StoreUrl,
    etcd: &EtcdFlags,
    terminal: &mut Terminal,
) -> anyhow::Result<(Vec<Object>, bool)> {
    let listed = store::run(url, etcd, async |store| Ok(store.list(key::ROOT).await?))?;
    let mut objects = BTreeMap::new();
    let mut is_good = true;
    for entry in &listed.entries {
        let decoded = match Key::parse(&entry.key) {
            Ok(None) => continue,
            Ok(Some(key)) => {
                wire::decode(&key, &entry.value, entry.create_revision).map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        match decoded {
            Ok(object) => objects.extend(object.map(|object| (object.key(), object))),
            Err(error) => {
                is_good = false;
                writeln!(terminal.err, "{error}; what an agent may still have of it is not known here")?;
            }
        }
    }
    Ok((objects.into_values().collect(), is_good))
}

fn local_addresses() -> anyhow::Result<std::collections::BTreeSet<std::net::IpAddr>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let addresses = runtime.block_on(LocalAddresses::open());
    Ok(addresses.context("the addresses of this node are not known")?.current().clone())
}

/// Where the answers come from.
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
            Self::Agent(AgentArgument { agent }) => {
                let text = http_client::get(agent, "/config")?;
                file::parse("/config", &text).with_context(|| format!("{agent} is no agent of this version"))
            }
            Self::Offline { config, .. } => Ok((**config).clone()),
        }
    }
}

impl Desire for Source<'_> {
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
