//! One member of an etcd cluster.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::future::BoxFuture;
use parking_lot::Mutex as SyncMutex;
use tokio::{sync::Mutex, time::Instant};
use tracing::{info, warn};

use super::{
    access::EtcdAccess,
    failure::Failure,
    patience::Patience,
    session::{BrokenFlag, Session},
};
use crate::{FileVersions, StoreError};

/// A new connection with changed certificates is tried again after this time, if the member could not be reached: requests wait
/// for it.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// A member of the cluster, with the connection to it.
pub(super) struct Member {
    endpoint: String,
    access: Arc<EtcdAccess>,
    /// The open connection. Locked while connecting, so that all waiting requests share the new one.
    session: Mutex<Option<OpenSession>>,
    /// Set when the connection has failed.
    broken: BrokenFlag,
    patience: SyncMutex<Patience>,
}

/// A connection, with the versions of the certificates that it was made with.
struct OpenSession {
    session: Session,
    versions: FileVersions,
    /// When the next attempt with changed certificates is due, after one that says nothing about them.
    retry_at: Option<Instant>,
}

impl OpenSession {
    /// Whether a new connection is due: the certificates have changed to these versions, and were not tried just now.
    fn needs_other(&self, versions: &FileVersions) -> bool {
        *versions != self.versions && self.retry_at.is_none_or(|time| Instant::now() >= time)
    }
}

impl Member {
    /// Does not connect: the first request opens the connection.
    pub(super) fn new(endpoint: String, access: Arc<EtcdAccess>, patience: Patience) -> Self {
        Self {
            endpoint,
            access,
            session: Mutex::default(),
            broken: BrokenFlag::default(),
            patience: SyncMutex::new(patience),
        }
    }

    async fn open(&self) -> Result<Session, StoreError> {
        let (begin, limit) = (Instant::now(), self.patience.lock().limit());
        let broken = Arc::clone(&self.broken);
        let opened = Session::open(&self.endpoint, &self.access, broken, limit).await;
        let mut patience = self.patience.lock();
        *patience = patience.after(opened.is_ok(), begin.elapsed());
        opened
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

    /// Returns the open connection, or opens one if there is none, it has failed, or a certificate has changed. While new
    /// certificates cannot be used, the open connection is.
    async fn session(&self) -> Result<Session, StoreError> {
        let mut current = self.session.lock().await;
        if let Some(open) = current.as_mut()
            && !self.is_broken()
        {
            let versions = open.versions.read_again();
            if open.needs_other(&versions) {
                // Before the attempt: a request that is given up ends it.
                open.retry_at = Some(Instant::now() + RETRY_INTERVAL);
                match self.open().await {
                    Ok(session) => {
                        info!(
                            endpoint = self.endpoint,
                            "certificates were read again for a new connection"
                        );
                        *open = OpenSession {
                            session,
                            versions,
                            retry_at: None,
                        };
                    }
                    Err(error) => {
                        // While the member cannot be reached, nothing is known about the certificates.
                        if !matches!(error, StoreError::Unavailable { .. }) {
                            (open.versions, open.retry_at) = (versions, None);
                        }
                        warn!(endpoint = self.endpoint, %error, "changed certificates cannot be used; the open connection stays");
                    }
                }
            }
            return Ok(open.session.clone());
        }
        *current = None;
        let versions = self.access.certificate_versions();
        let opened = self.open().await;
        self.broken.store(opened.is_err(), Ordering::Relaxed);
        let session = opened?;
        *current = Some(OpenSession {
            session: session.clone(),
            versions,
            retry_at: None,
        });
        Ok(session)
    }
}
