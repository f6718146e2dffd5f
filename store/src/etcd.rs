//! The backend over etcd.

mod commit;
mod failure;
mod list;
mod watch;

use std::{future::Future, time::Duration};

use etcd_client::{Client, ConnectOptions};
use futures::{FutureExt, future::BoxFuture};

use crate::{Operation, Snapshot, Store, StoreError, WatchStream};

/// How long one request may take. A page takes a hundredth of that.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// etcd closes connections that ping more often than its `--grpc-keepalive-min-time`, which is 5 s.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// Larger than what etcd sends: pages are made smaller when they exceed it, and watch responses come in fragments.
const LARGEST_RESPONSE: usize = 64 << 20;

/// A store in etcd. Cheap to clone; clones share the connections.
#[derive(Clone)]
pub struct EtcdStore {
    client: Client,
    endpoint: String,
}

impl EtcdStore {
    /// A store on the members `endpoints`, each `HOST:PORT`. Connections are made when they are needed and again when
    /// they are lost; nothing is sent here.
    ///
    /// # Errors
    /// When an endpoint is not `HOST:PORT`.
    pub async fn connect(endpoints: &[String]) -> Result<Self, StoreError> {
        let endpoint = endpoints.join(",");
        let options = ConnectOptions::new()
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_keep_alive(PING_INTERVAL, PING_TIMEOUT)
            .with_keep_alive_while_idle(true)
            // A member that is cut off from the others ends its watches instead of showing the past.
            .with_require_leader(true);
        let client = Client::connect(endpoints, Some(options))
            .await
            .map_err(|error| failure::map(&endpoint, "connect", error))?;
        Ok(Self { client, endpoint })
    }

    /// Awaits the answer to one request, but not for ever.
    async fn request<T>(
        &self,
        action: &str,
        request: impl Future<Output = Result<T, etcd_client::Error>>,
    ) -> Result<T, StoreError> {
        match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
            Ok(answer) => answer.map_err(|error| failure::map(&self.endpoint, action, error)),
            Err(_) => Err(self.no_answer()),
        }
    }

    fn no_answer(&self) -> StoreError {
        self.unavailable(format!("no answer within {} s", REQUEST_TIMEOUT.as_secs()))
    }

    fn unavailable(&self, reason: String) -> StoreError {
        StoreError::Unavailable { endpoint: self.endpoint.clone(), reason }
    }

    fn kv(&self) -> etcd_client::KvClient {
        self.client.kv_client().max_decoding_message_size(LARGEST_RESPONSE)
    }
}

impl Store for EtcdStore {
    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Snapshot, StoreError>> {
        list::list(self, prefix).boxed()
    }

    fn watch<'a>(&'a self, prefix: &'a str, revision: i64) -> BoxFuture<'a, Result<WatchStream, StoreError>> {
        watch::watch(self, prefix, revision).boxed()
    }

    fn commit(&self, operations: Vec<Operation>) -> BoxFuture<'_, Result<i64, StoreError>> {
        commit::commit(self, operations).boxed()
    }
}
