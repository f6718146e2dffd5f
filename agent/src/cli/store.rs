//! The common part of commands that use the store.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use anyhow::Context;
use clap::Args;
use contiv_proto::{Key, Kind};
use contiv_store::{Entry, Store, StoreUrl, etcd::EtcdAccess};
use futures::{StreamExt, TryStreamExt, stream};

use super::UsageError;
use crate::config::{Config, EtcdFlags, Settings};

/// Up to this many objects are read one by one; for more, all objects of their kinds are listed.
const SINGLE_READS: usize = 32;
/// How many reads run concurrently.
const READS_AT_A_TIME: usize = 8;

/// Selects the store.
#[derive(Debug, Args)]
pub(super) struct StoreArgument {
    /// The store: dir:PATH, etcd://HOST:PORT[,HOST:PORT…], etcds://… with TLS, or kube:[KUBECONFIG] to read only [default:
    /// that of the agent's configuration]
    #[arg(long, env = "CONTIV_STORE", value_name = "URL")]
    store: Option<StoreUrl>,

    /// The configuration of the agent whose store it is, where --store names none [default: /etc/contiv/agent.toml, if it exists]
    #[arg(long, env = "CONTIV_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(flatten)]
    etcd: EtcdFlags,
}

impl StoreArgument {
    /// Opens it, and runs `work`.
    pub(super) fn run<T>(
        &self,
        work: impl AsyncFnOnce(Arc<dyn Store>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        if let Some(url) = &self.store {
            return run(url, &self.etcd, work);
        }
        let config =
            Config::from_file(self.config.as_deref()).map_err(|error| UsageError(error.to_string()))?;
        // Without a file the agent has its defaults, and so its default store.
        let config = config.unwrap_or_default();
        let access = self.etcd.over(&config.store, config.etcd_access());
        run_with(&config.store, access, work)
            .with_context(|| "the store is that of the agent's configuration; --store names another")
    }
}

/// Opens the store at `url`, and runs `work`.
pub(super) fn run<T>(
    url: &StoreUrl,
    etcd: &EtcdFlags,
    work: impl AsyncFnOnce(Arc<dyn Store>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    run_with(url, etcd.access(url), work)
}

/// [`run`] with this access to etcd, or its problems.
pub(super) fn run_with<T>(
    url: &StoreUrl,
    access: Result<EtcdAccess, Vec<String>>,
    work: impl AsyncFnOnce(Arc<dyn Store>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let access = access.map_err(|problems| UsageError(problems.join("\n")))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to start the runtime")?;
    runtime.block_on(async {
        let store = contiv_store::open(url, access)
            .await
            .with_context(|| format!("failed to open the store {url}"))?;
        work(store).await
    })
}

/// The stored values of these keys; missing ones are left out.
pub(super) async fn read(store: &dyn Store, keys: &[Key]) -> anyhow::Result<BTreeMap<String, Entry>> {
    let paths: Vec<String> = if keys.len() <= SINGLE_READS {
        keys.iter().map(Key::to_path).collect()
    } else {
        let mut kinds: Vec<Kind> = keys.iter().map(Key::kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds.into_iter().map(Key::prefix).collect()
    };
    // A path is a prefix of other keys too; those do no harm here.
    let lists = stream::iter(&paths).map(|path| store.list(path)).buffered(READS_AT_A_TIME);
    let lists: Vec<_> = lists.try_collect().await?;
    let entries = lists.into_iter().flat_map(|snapshot| snapshot.entries);
    Ok(entries.map(|entry| (entry.key.clone(), entry)).collect())
}

/// The name of an object in the output of commands, as in kubectl: `service/web`.
pub(super) fn title(key: &Key) -> String {
    format!("{}/{}", key.kind(), key.name())
}
