//! The backend for a Kubernetes API server, read only.
//!
//! - Objects have the same keys and values as in etcd. Fields that contiv does not use are not kept in memory.
//! - A list is complete when every type is listed, page by page. Each type has its own version there; a *revision* of this
//!   store is a number that stands for one version of each, counted since the store was opened. Services are listed before
//!   their endpoint slices, so that every service has at least the slices that it had when it was listed.
//! - A watch continues from those versions, type by type. Types whose version has expired are listed again, and so is
//!   everything if the server's history is not the one that was followed.
//! - An object that cannot be used has an empty value, which cannot be decoded, and is reported as a problem: it exists, and
//!   must not be treated as deleted.
//! - External workloads come with linkerd's custom resource definition: an API server without it has none (`optional`).
//! - The files of the kubeconfig are read for each new client: after a failure, and for a token each minute.

mod address;
mod client;
mod failure;
mod follow;
mod history;
mod list;
mod object;
mod optional;
mod resource;
mod tracks;
mod watch;

use std::sync::Arc;

use contiv_proto::Key;
use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, try_join_all},
};
use tokio::sync::Mutex;

use crate::{Position, Snapshot, Store, StoreError, Transaction, WatchStream};
pub use address::KubeAddress;
use client::Client;
use failure::Failure;
use follow::{FollowStream, ResourceStream};
use list::{ResourceList, list};
use optional::OptionalType;
use resource::Resource;
pub use resource::{KINDS, Scope};
use tracks::{Versions, WatchProgress};
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
    /// The current client; none before the first request and after a failure.
    client: Mutex<Option<Client>>,
    tracks: Arc<WatchProgress>,
    optional: OptionalType,
}

impl KubeStore {
    /// A store on the API server at `address`, with the objects in `scope`. Nothing is read or sent yet.
    pub fn new(address: KubeAddress, scope: &Scope) -> Self {
        let resources = scope.resources();
        Self {
            inner: Arc::new(Inner {
                address,
                resources,
                client: Mutex::default(),
                tracks: Arc::new(WatchProgress::default()),
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

    /// Makes requests with the current client. After a failure the next requests get a new client with the current files.
    async fn ask<T>(
        &self,
        requests: impl AsyncFnOnce(&Client) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let client = self.client().await?;
        let answer = requests(&client).await;
        if matches!(answer, Err(StoreError::Unavailable { .. } | StoreError::Refused { .. })) {
            *self.inner.client.lock().await = None;
        }
        answer
    }

    async fn list_all(&self, client: &Client, prefix: &str) -> Result<Snapshot, StoreError> {
        let mut versions = Versions::new();
        let mut snapshot = Snapshot::default();
        for resource in self.inner.resources.iter().filter(|resource| resource.meets(prefix)) {
            let listed = self.list_type(client, prefix, resource).await?;
            versions.insert(resource.kind, listed.version);
            snapshot.entries.extend(listed.entries);
            snapshot.problems.extend(listed.problems);
        }
        snapshot.entries.retain(|entry| entry.key.starts_with(prefix));
        snapshot.entries.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        snapshot.revision = self.inner.tracks.begin(prefix, versions, &snapshot.problems);
        Ok(snapshot)
    }

    /// One type. An optional one that is missing is empty, and has no version.
    async fn list_type(
        &self,
        client: &Client,
        prefix: &str,
        resource: &Resource,
    ) -> Result<ResourceList, StoreError> {
        let listed = list(client, resource).await;
        if !resource.is_optional() {
            return listed.map_err(|failure| watch::error_of(failure, 0));
        }
        match listed {
            Err(Failure::Denied(denial)) => {
                // A caller that lists only this type must not take a denied list for an empty one.
                let is_alone = prefix.starts_with(&Key::prefix(resource.kind));
                let is_empty = denial.is_missing || !is_alone;
                if is_empty && self.inner.optional.is_missing(resource, &denial) {
                    return Ok(ResourceList::default());
                }
                Err(denial.error)
            }
            listed => {
                let listed = listed.map_err(|failure| watch::error_of(failure, 0))?;
                self.inner.optional.found(resource);
                Ok(listed)
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
        let versions = self.inner.tracks.versions(prefix, revision)?;
        let is_just_listed = self.inner.tracks.is_just_listed(prefix, revision);
        let of_scope = self.inner.resources.iter().filter(|resource| resource.meets(prefix));
        let watches = of_scope.map(async |resource| -> Result<ResourceStream, StoreError> {
            let version = versions.get(&resource.kind).cloned().unwrap_or_default();
            let (client, resource) = (client.clone(), resource.clone());
            if resource.is_optional() && version.is_empty() {
                return Ok(optional::look_for(client, resource, revision).boxed());
            }
            Ok(Watch::open(client, resource, version, revision).await?.into_stream().boxed())
        });
        let watches = try_join_all(watches).await?;
        // Checked after opening: if the server is replaced later, the watches end.
        let confirmed = history::confirm(client, &self.inner.resources, &versions, position).await;
        confirmed.map_err(|failure| watch::error_of(failure, revision))?;
        let follow = FollowStream::new(watches, prefix, versions, Arc::clone(&self.inner.tracks));
        // Versions that were just listed cannot have expired.
        let follow = if is_just_listed { follow } else { follow.after_first_events().await? };
        Ok(follow.into_stream())
    }
}

impl Store for KubeStore {
    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Snapshot, StoreError>> {
        self.ask(async |client| self.list_all(client, prefix).await).boxed()
    }

    fn watch<'a>(&'a self, prefix: &'a str, revision: i64) -> BoxFuture<'a, Result<WatchStream, StoreError>> {
        let position = Position::at(revision);
        async move { self.follow(prefix, &position).await }.boxed()
    }

    fn follow<'a>(
        &'a self,
        prefix: &'a str,
        position: &'a Position,
    ) -> BoxFuture<'a, Result<WatchStream, StoreError>> {
        self.ask(async move |client| self.watch_all(client, prefix, position).await).boxed()
    }

    fn transact(&self, _: Transaction) -> BoxFuture<'_, Result<i64, StoreError>> {
        let refused = StoreError::Refused {
            action: "write".to_owned(),
            reason: format!("{} is read only for contiv; use kubectl", self.inner.address),
        };
        std::future::ready(Err(refused)).boxed()
    }
}
