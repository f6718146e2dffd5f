//! The backend for a Kubernetes API server, read only.
//!
//! - Objects have the same keys and values as in etcd. Fields that contiv does not use are not kept in memory.
//! - A list is complete when every type is listed. An agent's lists come from the API server's cache, as those of kube-proxy, but
//!   are never older than what it has seen before. Each type has its own version there; a *revision* of this
//!   store is a number that stands for one version of each, counted since the store was opened. Services are listed before
//!   their endpoint slices, so that every service has at least the slices that it had when it was listed.
//! - A watch continues from those versions, type by type. Types whose version has expired are listed again, and so is
//!   everything if the server's history is not the one that was followed.
//! - An object that cannot be used has an empty value, which cannot be decoded, and is reported as a problem: it exists, and
//!   must not be treated as deleted.
//! - External workloads come with linkerd's custom resource definition: an API server without it has none (`optional`).
//! - The files of the kubeconfig are read for each new client, and again when one of them has changed; a token file is read for each
//!   request. New connections are made with the new files, and running watches end on the old ones.

mod client;
mod cluster;
mod credentials;
mod entries;
mod exec_plugin;
mod failure;
mod history;
mod items;
mod kubeconfig;
mod list;
mod list_body;
mod merged_watch;
mod object;
mod optional;
mod progress;
mod protobuf;
mod query;
mod resource;
mod review;
mod watch;
mod watch_body;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use contiv_proto::{Key, Kind};
use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, try_join_all},
};
use tokio::sync::Mutex;

pub use crate::url::KubeAddress;
use crate::{
    Backoff, PageSender, Position, Problem, Snapshot, Store, StoreError, Transaction, WatchStream,
};
use client::Client;
pub use cluster::{ClusterError, KubeCluster, Node, Pod, PortForward};
use entries::Entries;
use failure::Failure;
use list::{Origin, list};
use merged_watch::{MergedWatch, ResourceStream};
use optional::OptionalType;
use progress::{Versions, WatchProgress};
use resource::Resource;
pub use resource::{KINDS, Scope};
pub use review::{Review, TokenReviewer};
use watch::Watch;

/// A store on a Kubernetes API server. Cheap to clone; clones share the connections.
#[derive(Debug, Clone)]
pub struct KubeStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    address: KubeAddress,
    resources: Vec<Resource>,
    /// Whether lists may come from the API server's cache.
    is_cached: bool,
    /// The current client; none before the first request and after a failure.
    client: Mutex<Option<Client>>,
    progress: Arc<WatchProgress>,
    optional: OptionalType,
}

/// How often a list is tried. Its versions may expire between two pages; the last attempt has no pages.
const MAX_LIST_ATTEMPTS: usize = 4;
/// The pauses between attempts to follow an API server, as in client-go: when it stops or starts again, the nodes of the cluster
/// come back within these times and not at one moment.
const FIRST_PAUSE: Duration = Duration::from_millis(800);
const MAX_PAUSE: Duration = Duration::from_secs(30);

impl KubeStore {
    /// A store on the API server at `address`, with the objects in `scope`. Nothing is read or sent yet.
    pub fn new(address: KubeAddress, scope: &Scope) -> Self {
        Self::after(address, scope, BTreeMap::new())
    }

    /// As [`KubeStore::new`], after a run that has reached these versions: nothing older is listed.
    pub fn after(address: KubeAddress, scope: &Scope, reached: BTreeMap<Kind, i64>) -> Self {
        let reached = reached
            .into_iter()
            .map(|(kind, version)| (kind, version.to_string()))
            .collect();
        Self {
            inner: Arc::new(Inner {
                address,
                resources: scope.resources(),
                is_cached: scope.is_cached(),
                client: Mutex::default(),
                progress: Arc::new(WatchProgress::after(reached)),
                optional: OptionalType::default(),
            }),
        }
    }

    async fn client(&self) -> Result<Client, StoreError> {
        let mut slot = self.inner.client.lock().await;
        if let Some(client) = &*slot {
            return Ok(client.clone());
        }
        let client = Client::open(&self.inner.address).await?;
        Ok(slot.insert(client).clone())
    }

    /// Makes requests with the current client. After a failure the next requests get a new client, which reads the files again and
    /// opens a new connection. An answer with `Retry-After` keeps the client.
    async fn with_client<T>(
        &self,
        requests: impl AsyncFnOnce(&Client) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let client = self.client().await?;
        let answer = requests(&client).await;
        match &answer {
            Err(StoreError::Unavailable { .. } | StoreError::Refused { .. }) => {
                *self.inner.client.lock().await = None;
            }
            Err(error) if error.is_other_history() => self.inner.progress.forget_reached(),
            _ => {}
        }
        answer
    }

    /// Lists all types, and returns the revision.
    async fn list_all(
        &self,
        client: &Client,
        prefix: &str,
        entries: &mut Entries<'_>,
    ) -> Result<i64, StoreError> {
        let reached = self.inner.progress.reached();
        for attempt in 1..=MAX_LIST_ATTEMPTS {
            entries.begin().await;
            match self
                .list_types(client, prefix, attempt, &reached, entries)
                .await
            {
                Ok(versions) => {
                    // Only a list of the newest state can show that.
                    history::confirm_reached(&reached, &versions)?;
                    entries.send_rest().await;
                    return Ok(self
                        .inner
                        .progress
                        .begin(prefix, versions, &entries.problems));
                }
                Err(Failure::Gone | Failure::TooNew) => {}
                Err(failure) => return Err(watch::error_of(failure, 0)),
            }
        }
        let reason = "the versions of a list were gone again and again before all was listed";
        Err(failure::unavailable(&client.endpoint, reason))
    }

    async fn list_types(
        &self,
        client: &Client,
        prefix: &str,
        attempt: usize,
        reached: &Versions,
        entries: &mut Entries<'_>,
    ) -> Result<Versions, Failure> {
        let mut versions = Versions::new();
        for resource in self
            .inner
            .resources
            .iter()
            .filter(|resource| resource.has_keys_with(prefix))
        {
            let origin = match attempt {
                1 if self.inner.is_cached => {
                    let oldest = reached.get(&resource.kind).map(String::as_str);
                    Origin::Cache {
                        oldest: oldest.filter(|version| !version.is_empty()),
                    }
                }
                MAX_LIST_ATTEMPTS => Origin::NewestWhole,
                _ => Origin::Newest,
            };
            versions.insert(
                resource.kind,
                self.list_type(client, prefix, resource, origin, entries)
                    .await?,
            );
        }
        Ok(versions)
    }

    /// One type. An optional one that is missing is empty, and has no version.
    async fn list_type(
        &self,
        client: &Client,
        prefix: &str,
        resource: &Resource,
        origin: Origin<'_>,
        entries: &mut Entries<'_>,
    ) -> Result<String, Failure> {
        let listed = list(client, resource, origin, entries).await;
        if !resource.is_optional() {
            return listed;
        }
        match listed {
            Err(Failure::Denied(denial)) => {
                // A caller that lists only this type must not take a denied list for an empty one.
                let is_alone = prefix.starts_with(&Key::prefix(resource.kind));
                let is_empty = denial.is_missing || !is_alone;
                if is_empty && self.inner.optional.is_missing(resource, &denial) {
                    return Ok(String::new());
                }
                Err(Failure::Denied(denial))
            }
            listed => {
                let version = listed?;
                self.inner.optional.mark_found(resource);
                Ok(version)
            }
        }
    }

    async fn watch_all(
        &self,
        client: &Client,
        prefix: &str,
        position: &Position,
    ) -> Result<WatchStream, StoreError> {
        let revision = position.revision();
        let versions = self.inner.progress.versions(prefix, revision)?;
        let is_just_listed = self.inner.progress.is_just_listed(prefix, revision);
        let mut resources = self
            .inner
            .resources
            .iter()
            .filter(|resource| resource.has_keys_with(prefix));
        let open = async |resource: &Resource| -> Result<ResourceStream, StoreError> {
            let version = versions.get(&resource.kind).cloned().unwrap_or_default();
            let (client, resource) = (client.clone(), resource.clone());
            if resource.is_optional() && version.is_empty() {
                return Ok(optional::wait_for_type(client, resource, revision).boxed());
            }
            let watch = Watch::open(client, resource, version, revision, is_just_listed).await?;
            Ok(watch.into_stream().boxed())
        };
        // The first request makes the connection: while there is none, each of several at a time would make its own.
        let mut watches = Vec::new();
        if let Some(first) = resources.next() {
            watches.push(open(first).await?);
        }
        watches.extend(try_join_all(resources.map(&open)).await?);
        let progress = Arc::clone(&self.inner.progress);
        if is_just_listed {
            // Its versions are the server's, and cannot have expired.
            return Ok(MergedWatch::new(watches, prefix, versions, progress).into_stream());
        }
        // Checked after opening: if the server is replaced later, the watches end.
        let confirmed = history::confirm(client, &self.inner.resources, &versions, position).await;
        confirmed.map_err(|failure| watch::error_of(failure, revision))?;
        let watch = MergedWatch::new(watches, prefix, versions, progress);
        Ok(watch.after_first_events().await?.into_stream())
    }
}

impl Store for KubeStore {
    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Snapshot, StoreError>> {
        let listed = self.with_client(async |client| {
            let mut entries = Entries::new(prefix, None);
            let revision = self.list_all(client, prefix, &mut entries).await?;
            let Entries {
                rest: mut entries,
                problems,
                ..
            } = entries;
            entries.sort_unstable_by(|one, other| one.key.cmp(&other.key));
            Ok(Snapshot {
                revision,
                entries,
                problems,
            })
        });
        listed.boxed()
    }

    fn list_pages<'a>(
        &'a self,
        prefix: &'a str,
        pages: &'a PageSender,
    ) -> BoxFuture<'a, Result<(i64, Vec<Problem>), StoreError>> {
        let listed = self.with_client(async move |client| {
            let mut entries = Entries::new(prefix, Some(pages));
            let revision = self.list_all(client, prefix, &mut entries).await?;
            Ok((revision, entries.problems))
        });
        listed.boxed()
    }

    fn watch<'a>(
        &'a self,
        prefix: &'a str,
        revision: i64,
    ) -> BoxFuture<'a, Result<WatchStream, StoreError>> {
        let position = Position::at(revision);
        async move { self.resume_watch(prefix, &position).await }.boxed()
    }

    fn resume_watch<'a>(
        &'a self,
        prefix: &'a str,
        position: &'a Position,
    ) -> BoxFuture<'a, Result<WatchStream, StoreError>> {
        self.with_client(async move |client| self.watch_all(client, prefix, position).await)
            .boxed()
    }

    fn transact(&self, _: Transaction) -> BoxFuture<'_, Result<i64, StoreError>> {
        let refused = StoreError::Refused {
            action: "write".to_owned(),
            reason: format!(
                "{} is read only for contiv; use kubectl",
                self.inner.address
            ),
        };
        std::future::ready(Err(refused)).boxed()
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(FIRST_PAUSE, MAX_PAUSE)
    }
}
