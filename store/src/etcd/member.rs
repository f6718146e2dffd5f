//! One member of an etcd cluster.

use std::sync::{Arc, atomic::Ordering};

use futures::future::BoxFuture;
use tokio::sync::Mutex;

use super::{
    access::EtcdAccess,
    failure::Failure,
    session::{BrokenFlag, Session},
};
use crate::StoreError;

/// A member of the cluster, with the connection to it.
pub(super) struct Member {
    endpoint: String,
    access: Arc<EtcdAccess>,
    /// The open connection. Locked while connecting, so that all waiting requests share the new one.
    session: Mutex<Option<Session>>,
    /// Set when the connection has failed.
    broken: BrokenFlag,
}

impl Member {
    /// Does not connect: the first request opens the connection.
    pub(super) fn new(endpoint: String, access: Arc<EtcdAccess>) -> Self {
        Self { endpoint, access, session: Mutex::default(), broken: BrokenFlag::default() }
    }

    /// True if the connection has failed, or could not be opened, and none has been opened since.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// Makes a request. If the member requires a new login, reads the files of the user again, logs in and repeats the request
    /// once. If the member is unavailable, the next request opens a new connection.
    pub(super) async fn call<'r, T>(
        &self,
        request: impl Fn(Session) -> BoxFuture<'r, Result<T, Failure>>,
    ) -> Result<T, StoreError> {
        let mut answer = request(self.session().await?).await;
        if let Err(Failure::LoginRequired { .. }) = answer
            && self.access.user.is_some()
        {
            self.broken.store(true, Ordering::Relaxed);
            answer = request(self.session().await?).await;
        }
        answer.map_err(|failure| {
            let error = StoreError::from(failure);
            if matches!(error, StoreError::Unavailable { .. }) {
                self.broken.store(true, Ordering::Relaxed);
            }
            error
        })
    }

    /// Returns the open connection, or opens one if there is none or it has failed.
    async fn session(&self) -> Result<Session, StoreError> {
        let mut current = self.session.lock().await;
        if let Some(session) = current.as_ref()
            && !self.is_broken()
        {
            return Ok(session.clone());
        }
        *current = None;
        let opened = Session::open(&self.endpoint, &self.access, Arc::clone(&self.broken)).await;
        self.broken.store(opened.is_err(), Ordering::Relaxed);
        let session = opened?;
        *current = Some(session.clone());
        Ok(session)
    }
}
