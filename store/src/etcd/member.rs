//! One member of an etcd cluster.

use std::time::Duration;

use etcd_client::{Client, ConnectOptions, KvClient, LeaseClient, WatchClient};

use super::failure;
use crate::StoreError;

/// How long one request may take. A page takes a hundredth of that.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// etcd closes connections that ping more often than its `--grpc-keepalive-min-time`, which is 5 s.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// Pages are made smaller when they exceed it, and watch responses come in fragments that do not.
const LARGEST_RESPONSE: usize = 64 << 20;

/// A client of one member. Cheap to clone.
#[derive(Clone)]
pub(super) struct Member {
    client: Client,
    pub(super) endpoint: String,
}

impl Member {
    /// Nothing is sent here; the connection is made with the first request.
    pub(super) async fn connect(endpoint: &str) -> Result<Self, StoreError> {
        let options = ConnectOptions::new()
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_keep_alive(PING_INTERVAL, PING_TIMEOUT)
            .with_keep_alive_while_idle(true)
            // A member that is cut off from the others ends its watches instead of showing the past.
            .with_require_leader(true);
        // One client for all members would spread its requests over the dead ones too.
        let client = Client::connect([endpoint], Some(options))
            .await
            .map_err(|error| failure::map(endpoint, "connect", error))?;
        Ok(Self { client, endpoint: endpoint.to_owned() })
    }

    /// For reads and writes.
    pub(super) fn kv(&self) -> KvClient {
        self.client.kv_client().max_decoding_message_size(LARGEST_RESPONSE)
    }

    /// For watches.
    pub(super) fn watches(&self) -> WatchClient {
        self.client.watch_client().max_decoding_message_size(LARGEST_RESPONSE)
    }

    /// For keys with a time to live.
    pub(super) fn leases(&self) -> LeaseClient {
        self.client.lease_client()
    }

    /// Awaits the answer to one request, but not for ever.
    pub(super) async fn request<T>(
        &self,
        action: &str,
        request: impl Future<Output = Result<T, etcd_client::Error>>,
    ) -> Result<T, StoreError> {
        self.answer(request).await?.map_err(|error| failure::map(&self.endpoint, action, error))
    }

    /// As [`Member::request`], for callers that look at etcd's error themselves.
    pub(super) async fn answer<T>(&self, request: impl Future<Output = T>) -> Result<T, StoreError> {
        tokio::time::timeout(REQUEST_TIMEOUT, request)
            .await
            .map_err(|_| self.unavailable(format!("no answer within {} s", REQUEST_TIMEOUT.as_secs())))
    }

    /// Why this member is of no use at the moment.
    pub(super) fn unavailable(&self, reason: String) -> StoreError {
        StoreError::Unavailable { endpoint: self.endpoint.clone(), reason }
    }
}
