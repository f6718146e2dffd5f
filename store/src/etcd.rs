//! The backend over etcd.
//!
//! Values and keys are those of Contiv, so any client of etcd can write them. Each request goes to one member; when
//! that one cannot be reached, reads go to the next.

mod commit;
mod failure;
mod lease;
mod list;
mod member;
mod members;
mod watch;

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};

use crate::{Leases, Snapshot, Store, StoreError, Transaction, WatchStream};
use members::Members;

/// A store in etcd. Cheap to clone; clones share the connections.
#[derive(Clone)]
pub struct EtcdStore {
    members: Arc<Members>,
}

impl EtcdStore {
    /// A store on the members `endpoints`, each `HOST:PORT`. Connections are made when they are needed and again when
    /// they are lost; nothing is sent here.
    ///
    /// # Errors
    /// When there is no endpoint, or one is not `HOST:PORT`.
    pub async fn connect(endpoints: &[String]) -> Result<Self, StoreError> {
        Ok(Self { members: Arc::new(Members::connect(endpoints).await?) })
    }
}

impl Store for EtcdStore {
    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Snapshot, StoreError>> {
        self.members.read(move |member| list::list(member, prefix).boxed()).boxed()
    }

    fn watch<'a>(&'a self, prefix: &'a str, revision: i64) -> BoxFuture<'a, Result<WatchStream, StoreError>> {
        self.members.read(move |member| watch::watch(member, prefix, revision).boxed()).boxed()
    }

    fn transact(&self, transaction: Transaction) -> BoxFuture<'_, Result<i64, StoreError>> {
        async { commit::commit(self.members.reachable().await?, transaction).await }.boxed()
    }

    fn leases(&self) -> Option<&dyn Leases> {
        Some(self)
    }
}
