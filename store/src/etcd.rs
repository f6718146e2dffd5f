//! The backend for etcd.
//!
//! Values and keys are those of Contiv, so any client of etcd can write them. Each request goes to one member; if it cannot be
//! reached, reads go to the next.

mod access;
mod commit;
mod failure;
mod history;
mod key_text;
mod known;
mod lease;
mod list;
mod member;
mod members;
mod replay;
mod session;
mod watch;
mod window;

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};

use crate::{
    Leases, PageSender, Position, Problem, Snapshot, Store, StoreError, Transaction, WatchStream,
};
pub use access::EtcdAccess;
use known::KnownPrefixes;
use members::Members;

/// A store in etcd. Cheap to clone; clones share the connections.
#[derive(Clone)]
pub struct EtcdStore {
    members: Arc<Members>,
    known: Arc<KnownPrefixes>,
    /// The prefixes that are listed concurrently.
    parts: Arc<[Vec<u8>]>,
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
        })
    }

    /// Lists what is below each of these prefixes by itself, two at a time: etcd answers each request on one processor.
    #[must_use]
    pub fn with_parts(mut self, prefixes: impl IntoIterator<Item = String>) -> Self {
        self.parts = prefixes.into_iter().map(String::into_bytes).collect();
        self
    }
}

impl Store for EtcdStore {
    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Snapshot, StoreError>> {
        self.members
            .read(move |session| {
                list::list(session, &self.known, prefix, &self.parts, None).boxed()
            })
            .boxed()
    }

    fn list_pages<'a>(
        &'a self,
        prefix: &'a str,
        pages: &'a PageSender,
    ) -> BoxFuture<'a, Result<(i64, Vec<Problem>), StoreError>> {
        async move {
            let list = |session| {
                list::list(session, &self.known, prefix, &self.parts, Some(pages)).boxed()
            };
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
            let known = &self.known;
            let watch =
                |session| watch::watch(session, Arc::clone(known), prefix, position).boxed();
            self.members.read(watch).await.inspect_err(|error| {
                if error.is_other_history() {
                    known.forget(prefix);
                }
            })
        }
        .boxed()
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
