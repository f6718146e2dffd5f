//! The backend for etcd.
//!
//! Values and keys are those of Contiv, so any client of etcd can write them. Each request goes to one member; if it cannot be
//! reached, reads go to the next.

mod access;
mod commit;
mod failure;
mod history;
mod key_range;
mod key_text;
mod known;
mod lease;
mod list;
mod member;
mod members;
mod patience;
mod replay;
mod session;
mod watch;
mod watch_reader;
mod window;

use std::{collections::BTreeSet, sync::Arc};

use futures::{FutureExt, future::BoxFuture};

use crate::{
    Change, Leases, PageSender, Position, Problem, ResumePoint, Snapshot, Store, StoreError,
    StoreIdentity, Transaction, WatchStream,
};
pub use access::EtcdAccess;
use failure::Failure;
use key_range::KeyRanges;
pub use key_range::KeySelection;
use known::KnownPrefixes;
use members::Members;
use session::Session;

/// A store in etcd. Cheap to clone; clones share the connections.
#[derive(Clone)]
pub struct EtcdStore {
    members: Arc<Members>,
    known: Arc<KnownPrefixes>,
    /// The prefixes that are listed concurrently.
    parts: Arc<[Vec<u8>]>,
    /// What is read of its prefix.
    only: Option<Arc<KeyRanges>>,
}

impl EtcdStore {
    /// A store on the members `endpoints`, each `HOST:PORT`. Connections are opened when needed and again when they are lost;
    /// nothing is sent or read here.
    ///
    /// # Errors
    /// When there is no endpoint.
    pub fn new(endpoints: &[String], access: EtcdAccess) -> Result<Self, StoreError> {
        Ok(Self {
            members: Arc::new(Members::new(endpoints, access)?),
            known: Arc::default(),
            parts: Arc::default(),
            only: None,
        })
    }

    /// Reads only these keys of those below `prefix`. At least one, and they must not overlap.
    #[must_use]
    pub fn with_only(mut self, prefix: &str, keys: impl IntoIterator<Item = KeySelection>) -> Self {
        self.only = Some(Arc::new(KeyRanges::selected(prefix, keys)));
        self
    }

    /// Lists what is below each of these prefixes by itself, two at a time: etcd answers each request on one processor.
    #[must_use]
    pub fn with_parts(mut self, prefixes: impl IntoIterator<Item = String>) -> Self {
        self.parts = prefixes.into_iter().map(String::into_bytes).collect();
        self
    }

    async fn list_keys(
        &self,
        session: Session,
        keys: &KeyRanges,
        pages: Option<&PageSender>,
    ) -> Result<Snapshot, Failure> {
        list::list(session, &self.known, keys, &self.parts, pages).await
    }

    /// What is read below a prefix.
    fn keys(&self, prefix: &str) -> Arc<KeyRanges> {
        match &self.only {
            Some(only) if only.prefix == prefix => Arc::clone(only),
            _ => Arc::new(KeyRanges::below(prefix)),
        }
    }
}

impl Store for EtcdStore {
    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Snapshot, StoreError>> {
        async move {
            let keys = self.keys(prefix);
            let list = |session| self.list_keys(session, &keys, None).boxed();
            self.members.read(list).await
        }
        .boxed()
    }

    fn list_at<'a>(
        &'a self,
        prefix: &'a str,
        revision: i64,
    ) -> BoxFuture<'a, Result<Snapshot, StoreError>> {
        async move {
            let keys = self.keys(prefix);
            let list = |session| list::list_at(session, &keys, &self.parts, revision).boxed();
            self.members.read(list).await
        }
        .boxed()
    }

    fn list_pages<'a>(
        &'a self,
        prefix: &'a str,
        pages: &'a PageSender,
    ) -> BoxFuture<'a, Result<(i64, Vec<Problem>), StoreError>> {
        async move {
            let keys = self.keys(prefix);
            let list = |session| self.list_keys(session, &keys, Some(pages)).boxed();
            let Snapshot {
                revision, problems, ..
            } = self.members.read(list).await?;
            Ok((revision, problems))
        }
        .boxed()
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
        async move {
            let (known, keys) = (&self.known, self.keys(prefix));
            let watch = |session| {
                watch::watch(session, Arc::clone(known), Arc::clone(&keys), position).boxed()
            };
            self.members.read(watch).await.inspect_err(|error| {
                if error.is_other_history() {
                    known.forget(prefix);
                }
            })
        }
        .boxed()
    }

    fn resume_saved<'a>(
        &'a self,
        prefix: &'a str,
        point: &'a ResumePoint,
    ) -> BoxFuture<'a, Result<(WatchStream, Vec<Change>), StoreError>> {
        let keys = self.keys(prefix);
        let resume = move |session: Session| {
            let (known, keys) = (Arc::clone(&self.known), Arc::clone(&keys));
            async move {
                // After opening: a store that is replaced later ends the watch.
                let watched =
                    watch::watch(session.clone(), known, Arc::clone(&keys), &point.position);
                let watch = watched.await?;
                let changes = history::confirm_saved(&session, &keys, point).await?;
                Ok((watch, changes))
            }
            .boxed()
        };
        async move {
            self.known.begin_saved(prefix, point.position.revision());
            self.members.read(resume).await.inspect_err(|error| {
                if error.needs_list() {
                    self.known.forget(prefix);
                }
            })
        }
        .boxed()
    }

    fn read_at<'a>(
        &'a self,
        keys: &'a BTreeSet<String>,
        revision: i64,
    ) -> BoxFuture<'a, Result<Vec<Change>, StoreError>> {
        self.members
            .read(move |session| history::read_keys(session, keys, revision).boxed())
            .boxed()
    }

    fn identity(&self) -> Option<StoreIdentity> {
        self.known.identity()
    }

    fn transact(&self, transaction: Transaction) -> BoxFuture<'_, Result<i64, StoreError>> {
        async move {
            let member = self.members.reachable().await?;
            member
                .call(move |session| commit::commit(session, transaction.clone()).boxed())
                .await
        }
        .boxed()
    }

    fn leases(&self) -> Option<&dyn Leases> {
        Some(self)
    }
}
