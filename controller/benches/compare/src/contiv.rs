//! The benchmark's program for contiv's controller runtime.

use std::sync::Arc;

use contiv_controller::{BoxError, Context, Controller, Key, Lease, Manager, Outcome, ResourceType};
use contiv_store::{Batch, Change, Entry, Snapshot, Store, StoreError, Transaction, WatchEvent, WatchStream};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;

use crate::{
    measure::Progress,
    source::{Source, State},
};

const PREFIX: &str = "/configmaps/default/";

pub(crate) fn start(source: Source, progress: Arc<Progress>) {
    let revision = i64::try_from(source.initial.len()).unwrap_or(i64::MAX);
    let store =
        Memory { revision, initial: Mutex::new(source.initial), changes: Mutex::new(Some(source.changes)) };
    let maps =
        ResourceType::new("configmap", PREFIX, |entry| serde_json::from_slice::<ConfigMap>(&entry.value));
    let controller = Controller::for_type(&maps)
        .with_concurrency(16)
        .with_reconciler(move |context: Context<ConfigMap>, key: Key| {
            let progress = Arc::clone(&progress);
            async move {
                let map = context.cache().get(&key).ok_or("gone")?;
                let version = map.data.as_ref().and_then(|data| data.get("version"));
                progress.reconcile(version.map(String::as_str));
                Ok::<_, BoxError>(Outcome::Done)
            }
        })
        .build();
    let mut manager = Manager::new(Arc::new(store), Lease::always_leader());
    match controller.map(|controller| manager.register(controller)) {
        Ok(Ok(())) => drop(tokio::spawn(manager.run(CancellationToken::new()))),
        problem => panic!("{problem:?}"),
    }
}

/// A store that is listed and watched once.
struct Memory {
    revision: i64,
    initial: Mutex<Vec<State>>,
    changes: Mutex<Option<mpsc::Receiver<State>>>,
}

fn entry(state: State) -> Entry {
    let mod_revision = i64::try_from(state.version).unwrap_or(i64::MAX);
    Entry { key: PREFIX.to_owned() + &state.name, value: state.json, create_revision: 1, mod_revision }
}

impl Store for Memory {
    fn list<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Snapshot, StoreError>> {
        async {
            let entries = std::mem::take(&mut *self.initial.lock().await).into_iter().map(entry).collect();
            Ok(Snapshot { revision: self.revision, entries, problems: Vec::new() })
        }
        .boxed()
    }

    fn watch<'a>(&'a self, _: &'a str, _: i64) -> BoxFuture<'a, Result<WatchStream, StoreError>> {
        async {
            let gone =
                || StoreError::Unavailable { endpoint: "memory".to_owned(), reason: "ended".to_owned() };
            let changes = self.changes.lock().await.take().ok_or_else(gone)?;
            let events = stream::unfold(changes, |mut changes| async {
                let entry = entry(changes.recv().await?);
                let batch = Batch { revision: entry.mod_revision, changes: vec![Change::Put(entry)] };
                Some((Ok(WatchEvent::Changed(batch)), changes))
            });
            Ok(events.boxed())
        }
        .boxed()
    }

    fn transact(&self, _: Transaction) -> BoxFuture<'_, Result<i64, StoreError>> {
        async { Ok(self.revision) }.boxed()
    }
}
