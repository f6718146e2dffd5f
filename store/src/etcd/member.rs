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

/// A member, and the connection to it that is in use.
pub(super) struct Member {
    endpoint: String,
    access: Arc<EtcdAccess>,
    /// Held while a connection is made, so that all who wait for it share one.
    session: Mutex<Option<Session>>,
    broken: BrokenFlag,
}

impl Member {
    /// Nothing is sent here; a connection is made when it is needed.
    pub(super) fn new(endpoint: String, access: Arc<EtcdAccess>) -> Self {
        Self { endpoint, access, session: Mutex::default(), broken: BrokenFlag::default() }
    }

    /// Whether the last thing known of it is that it was of no use.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// Makes a request. A member that wants a new login gets one, with what the files hold now, and is asked again,
    /// once. After a failure the next request makes a new connection.
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
