//! What the commands that use the store have in common.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::Context;
use clap::Args;
use contiv_proto::{Key, Kind};
use contiv_store::{Entry, Store, StoreUrl};
use futures::{StreamExt, TryStreamExt, stream};

use super::UsageError;
use crate::config::EtcdFlags;

/// Up to this many objects are asked for one by one; for more, all of their kinds are listed.
const SINGLE_READS: usize = 32;
/// How many of them at a time.
const READS_AT_A_TIME: usize = 8;

/// Which store to use.
#[derive(Debug, Args)]
pub(super) struct StoreArgument {
    /// The store: dir:PATH, etcd://HOST:PORT[,HOST:PORT…], etcds://… with TLS, or kube:[KUBECONFIG] to read only
    #[arg(long, env = "CONTIV_STORE", value_name = "URL", required = true)]
    store: StoreUrl,

    #[command(flatten)]
    etcd: EtcdFlags,
}

impl StoreArgument {
    /// Opens it, and runs what is to be done with it.
    pub(super) fn run<T>(
        &self,
        work: impl AsyncFnOnce(Arc<dyn Store>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        run(&self.store, &self.etcd, work)
    }
}

/// Opens the store at `url`, and runs what is to be done with it.
pub(super) fn run<T>(
    url: &StoreUrl,
    etcd: &EtcdFlags,
    work: impl AsyncFnOnce(Arc<dyn Store>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let access = etcd.access(url).map_err(|problems| UsageError(problems.join("\n")))?;
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

/// The stored values of these keys, as far as there are any.
pub(super) async fn read(store: &dyn Store, keys: &[Key]) -> anyhow::Result<BTreeMap<String, Entry>> {
    let paths: Vec<String> = if keys.len() <= SINGLE_READS {
        keys.iter().map(Key::to_path).collect()
    } else {
        let mut kinds: Vec<Kind> = keys.iter().map(Key::kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds.into_iter().map(Key::prefix).collect()
    };
    // A path is the beginning of other keys too; those do no harm here.
    let lists = stream::iter(&paths).map(|path| store.list(path)).buffered(READS_AT_A_TIME);
    let lists: Vec<_> = lists.try_collect().await?;
    let entries = lists.into_iter().flat_map(|snapshot| snapshot.entries);
    Ok(entries.map(|entry| (entry.key.clone(), entry)).collect())
}

/// How the answers of commands call an object, as kubectl does: `service/web`.
pub(super) fn title(key: &Key) -> String {
    format!("{}/{}", key.kind(), key.name())
}
