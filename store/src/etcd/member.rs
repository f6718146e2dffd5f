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

/// A member with its current connection.
pub(super) struct Member {
    endpoint: String,
    access: Arc<EtcdAccess>,
    /// Locked while connecting, so that all waiting requests share the connection.
    session: Mutex<Option<Session>>,
    broken: BrokenFlag,
}

impl Member {
    /// Nothing is sent here; the connection is opened when needed.
    pub(super) fn new(endpoint: String, access: Arc<EtcdAccess>) -> Self {
        Self { endpoint, access, session: Mutex::default(), broken: BrokenFlag::default() }
    }

    /// True if the member failed last time.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// Makes a request. If the member requires a new login, logs in with the current files and repeats the request once. After
    /// a failure the next request opens a new connection.
    pub(super) async fn ask<'r, T>(
        &self,
        request: impl Fn(Session) -> BoxFuture<'r, Result<T, Failure>>,
    ) -> Result<T, StoreError> {
        let mut answer = request(self.session().await?).await;
        if let Err(Failure::LoginRefused { .. }) = answer
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

    async fn session(&self) -> Result<Session, StoreError> {
        let mut slot = self.session.lock().await;
        if let Some(session) = slot.as_ref()
            && !self.is_broken()
        {
            return Ok(session.clone());
        }
        *slot = None;
        let opened = Session::open(&self.endpoint, &self.access, Arc::clone(&self.broken)).await;
        self.broken.store(opened.is_err(), Ordering::Relaxed);
        let session = opened?;
        *slot = Some(session.clone());
        Ok(session)
    }
}
