//! The backend for etcd.
//!
//! Values and keys are those of Contiv, so any client of etcd can write them. Each request goes to one member; if it cannot be
//! reached, reads go to the next.

mod access;
mod commit;
mod failure;
mod history;
mod lease;
mod list;
mod member;
mod members;
mod session;
mod watch;

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};

use crate::{Leases, PageSender, Position, Problem, Snapshot, Store, StoreError, Transaction, WatchStream};
pub use access::EtcdAccess;
use members::Members;

/// A store in etcd. Cheap to clone; clones share the connections.
#[derive(Clone)]
pub struct EtcdStore {
    members: Arc<Members>,
}

impl EtcdStore {
    /// A store on the members `endpoints`, each `HOST:PORT`. Connections are opened when needed and again when they are lost;
    /// nothing is sent or read here.
    ///
    /// # Errors
    /// When there is no endpoint.
    pub fn new(endpoints: &[String], access: EtcdAccess) -> Result<Self, StoreError> {
        Ok(Self { members: Arc::new(Members::new(endpoints, access)?) })
    }
}

impl Store for EtcdStore {
    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Snapshot, StoreError>> {
        self.members.read(move |session| list::list(session, prefix, None).boxed()).boxed()
    }

    fn list_pages<'a>(
        &'a self,
        prefix: &'a str,
        pages: &'a PageSender,
    ) -> BoxFuture<'a, Result<(i64, Vec<Problem>), StoreError>> {
        async move {
            let list = self.members.read(move |session| list::list(session, prefix, Some(pages)).boxed());
            let Snapshot { revision, problems, .. } = list.await?;
            Ok((revision, problems))
        }
        .boxed()
    }

    fn watch<'a>(&'a self, prefix: &'a str, revision: i64) -> BoxFuture<'a, Result<WatchStream, StoreError>> {
        let position = Position::at(revision);
        async move { self.resume_watch(prefix, &position).await }.boxed()
    }

    fn resume_watch<'a>(
        &'a self,
        prefix: &'a str,
        position: &'a Position,
    ) -> BoxFuture<'a, Result<WatchStream, StoreError>> {
        self.members.read(move |session| watch::watch(session, prefix, position).boxed()).boxed()
    }

    fn transact(&self, transaction: Transaction) -> BoxFuture<'_, Result<i64, StoreError>> {
        async move {
            let member = self.members.reachable().await?;
            member.call(move |session| commit::commit(session, transaction.clone()).boxed()).await
        }
        .boxed()
    }

    fn leases(&self) -> Option<&dyn Leases> {
        Some(self)
    }
}
