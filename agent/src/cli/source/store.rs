//! The common part of commands that use the store.

use std::{collections::BTreeMap, io::Write, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, anyhow, ensure};
use clap::Args;
use contiv_proto::{Key, Kind};
use contiv_store::{Entry, Store, StoreUrl, etcd::EtcdAccess};
use futures::{StreamExt, TryStreamExt, stream};

use super::{agent_argument::AgentArgument, http_client, listener_process};
use crate::cli::UsageError;
use crate::config::{Config, EtcdFlags, Settings, file};

/// How long an agent is waited for, when it is asked for its store.
const AGENT_TIME_LIMIT: Duration = Duration::from_secs(3);

/// Up to this many objects are read one by one; for more, all objects of their kinds are listed.
const SINGLE_READS: usize = 32;
/// How many reads run concurrently.
const READS_AT_A_TIME: usize = 8;

/// Selects the store.
#[derive(Debug, Args)]
pub(crate) struct StoreArgument {
    /// The store: dir:PATH, etcd://HOST:PORT[,HOST:PORT…], etcds://… with TLS, or kube:[KUBECONFIG] to read only [default:
    /// that of the running agent, or else of its configuration]
    #[arg(long, env = "CONTIV_STORE", value_name = "URL")]
    store: Option<StoreUrl>,

    /// The configuration of the agent whose store it is, where --store names none [default: /etc/contiv/agent.toml, if it exists]
    #[arg(long, env = "CONTIV_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(flatten)]
    agent: AgentArgument,

    #[command(flatten)]
    etcd: EtcdFlags,
}

/// A store, and how to get into it.
#[derive(Debug)]
pub(crate) struct StoreTarget {
    url: StoreUrl,
    access: Result<EtcdAccess, Vec<String>>,
    /// Whether the command line or the environment names it.
    is_named: bool,
}

/// What a command does with the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Read,
    Write,
}

impl StoreArgument {
    /// The store that is named; else that of the running agent; else that of its configuration. Prints which of them it is,
    /// unless it is named.
    pub(crate) fn choose(&self, err: &mut impl Write) -> anyhow::Result<StoreTarget> {
        self.choose_for(Purpose::Read, err)
    }

    /// [`choose`](Self::choose) for a command that writes: it must not change another store than the agent's, so where an agent
    /// listens whose store is not known, there is none.
    pub(crate) fn choose_to_write(&self, err: &mut impl Write) -> anyhow::Result<StoreTarget> {
        self.choose_for(Purpose::Write, err)
    }

    fn choose_for(&self, purpose: Purpose, err: &mut impl Write) -> anyhow::Result<StoreTarget> {
        if let Some(url) = &self.store {
            return Ok(StoreTarget {
                url: url.clone(),
                access: self.etcd.access(url),
                is_named: true,
            });
        }
        let agent = &self.agent.agent;
        let mut reason = String::new();
        if self.config.is_none() {
            match self.configuration_of_agent() {
                Ok(config) => {
                    writeln!(
                        err,
                        "note: store {}, that of the agent at {agent}",
                        config.store
                    )?;
                    return Ok(self.of_configuration(&config, false));
                }
                Err(error) if purpose == Purpose::Write && !http_client::is_absence(&error) => {
                    return Err(error.context(
                        "the store of the agent is not known, and nothing is changed; name it with --store",
                    ));
                }
                // Of several lines the first one says why.
                Err(error) => reason.push_str(error.to_string().lines().next().unwrap_or_default()),
            }
        }
        let config = Config::from_file(self.config.as_deref())
            .map_err(|error| UsageError(error.to_string()))?;
        let whose = match &config {
            Some(_) => format!("that of {}", Config::DEFAULT_FILE),
            None => "the default one".to_owned(),
        };
        // Without a file the agent has its defaults, and so its default store.
        let config = config.unwrap_or_default();
        if self.config.is_none() {
            writeln!(err, "note: store {}, {whose}; {reason}", config.store)?;
        }
        Ok(self.of_configuration(&config, self.config.is_some()))
    }

    /// The configuration of the running agent.
    ///
    /// # Errors
    /// When no agent answers. That of another machine is not asked: a folder or an address in its configuration means something
    /// else here. What a process of another user answers is not used: a configuration names programs to run and files to send.
    fn configuration_of_agent(&self) -> anyhow::Result<Config> {
        let agent = &self.agent.agent;
        ensure!(
            agent.is_local(),
            "the agent at {agent} is on another machine"
        );
        let text = http_client::get_within(agent, "/config", AGENT_TIME_LIMIT)?;
        // After the answer, so that its process is still looked at if another one has just ended.
        listener_process::check_owner(agent.port()).map_err(|reason| {
            anyhow!("what {agent} says about its store is not used: {reason}; name the store with --store")
        })?;
        Ok(file::parse_of_any_version("/config", &text)?.0)
    }

    fn of_configuration(&self, config: &Config, is_named: bool) -> StoreTarget {
        let access = self.etcd.over(&config.store, config.etcd_access());
        StoreTarget {
            url: config.store.clone(),
            access,
            is_named,
        }
    }
}

impl StoreTarget {
    /// Opens it, and runs `work`.
    pub(crate) fn run<T>(
        self,
        work: impl AsyncFnOnce(Arc<dyn Store>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let result = run_with(&self.url, self.access, None, work);
        if self.is_named {
            result
        } else {
            result.context("failed to use this store; --store names another")
        }
    }
}

/// Opens the store at `url` with this access to etcd, or its problems, and runs `work`. With the name of a node, `work` sees of an
/// etcd what the agent there reads.
pub(crate) fn run_with<T>(
    url: &StoreUrl,
    access: Result<EtcdAccess, Vec<String>>,
    node: Option<&str>,
    work: impl AsyncFnOnce(Arc<dyn Store>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let access = access.map_err(|problems| UsageError(problems.join("\n")))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to start the runtime")?;
    runtime.block_on(async {
        let opened = match node {
            Some(node) => contiv_store::open_as_node(url, access, node).await,
            None => contiv_store::open(url, access).await,
        };
        let store = opened.with_context(|| format!("failed to open the store {url}"))?;
        work(store).await
    })
}

/// The stored values of these keys; missing ones are left out.
pub(crate) async fn read(
    store: &dyn Store,
    keys: &[Key],
) -> anyhow::Result<BTreeMap<String, Entry>> {
    let paths: Vec<String> = if keys.len() <= SINGLE_READS {
        keys.iter().map(Key::to_path).collect()
    } else {
        let mut kinds: Vec<Kind> = keys.iter().map(Key::kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds.into_iter().map(Key::prefix).collect()
    };
    // A path is a prefix of other keys too; those do no harm here.
    let lists = stream::iter(&paths)
        .map(|path| store.list(path))
        .buffered(READS_AT_A_TIME);
    let lists: Vec<_> = lists.try_collect().await?;
    let entries = lists.into_iter().flat_map(|snapshot| snapshot.entries);
    Ok(entries.map(|entry| (entry.key.clone(), entry)).collect())
}

/// The name of an object in the output of commands, as in kubectl: `service/web`.
pub(crate) fn title(key: &Key) -> String {
    format!("{}/{}", key.kind(), key.name())
}
