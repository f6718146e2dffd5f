//! A logged-in connection to one member.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    time::Duration,
};

use etcd_client::{
    Client, ConnectOptions, Error, GetOptions, KvClient, LeaseClient, WatchClient, WatchOptions,
};
use tokio::time::timeout;

use super::{
    access::EtcdAccess,
    failure::{self, Failure},
};
use crate::StoreError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The timeout of one request. A page takes a hundredth of that.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Only while a request is pending. etcd closes connections that ping more often than its `--grpc-keepalive-min-time`, which is
/// 5 s, or without a pending request.
const PING_INTERVAL: Duration = Duration::from_secs(6);
const PING_TIMEOUT: Duration = Duration::from_secs(3);
/// Larger values are not read, and watch responses arrive in fragments that do not exceed it. It limits how much memory a
/// hostile store can take, with a copy or two.
pub(super) const MAX_RESPONSE_BYTES: usize = 16 << 20;
/// Pages of a list are made smaller when they exceed it.
pub(super) const MAX_PAGE_BYTES: usize = 64 << 20;

/// How hyper and rustls report a connection closed by the other side.
const CLOSED: [&str; 4] = [
    "connection closed",
    "connection reset",
    "broken pipe",
    "received fatal alert",
];

/// Set when the connection to a member has failed; shared by all its users.
pub(super) type BrokenFlag = Arc<AtomicBool>;

/// A connection to one member. Cheap to clone.
#[derive(Clone)]
pub(super) struct Session {
    client: Client,
    endpoint: String,
    broken: BrokenFlag,
    /// How long the member may take to prove itself.
    patience: Duration,
    /// Whether requests for a watch's progress are answered, as one of the constants below: `etcd grpc-proxy` 3.4 ignores them.
    progress: Arc<AtomicU8>,
}

/// Unknown.
const UNKNOWN: u8 = 0;
/// The last request was not answered, perhaps by a busy member.
const MISSED: u8 = 1;
/// The last two were not answered.
const UNANSWERED: u8 = 2;
/// One was answered.
const ANSWERED: u8 = 3;

impl Session {
    /// Reads the files, connects, logs in if there is a user, and makes sure that the member answers.
    pub(super) async fn open(
        endpoint: &str,
        access: &EtcdAccess,
        broken: BrokenFlag,
        patience: Duration,
    ) -> Result<Self, StoreError> {
        let options = ConnectOptions::new()
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_keep_alive(PING_INTERVAL, PING_TIMEOUT)
            .with_keep_alive_while_idle(false)
            // A member that loses its leader ends its watches instead of serving old data.
            .with_require_leader(true);
        let options = access.add_tls(options).await?;
        let scheme = if access.tls { "https" } else { "http" };
        // A single client for all members would use dead ones too.
        let client = Client::connect([format!("{scheme}://{endpoint}")], Some(options))
            .await
            .map_err(|error| access.unusable_files(&error))?;
        let progress = Arc::new(AtomicU8::new(UNKNOWN));
        let mut session = Self {
            client,
            endpoint: endpoint.to_owned(),
            broken,
            patience,
            progress,
        };
        match timeout(patience, session.begin(access)).await {
            Ok(begun) => begun
                .map(|()| session)
                .map_err(|error| hint(error, access.tls)),
            Err(_) => Err(session.timeout_error(patience)),
        }
    }

    async fn begin(&mut self, access: &EtcdAccess) -> Result<(), StoreError> {
        if let Some(login) = access.login().await? {
            match self
                .client
                .update_user(Some((login.user, login.password)))
                .await
            {
                Ok(()) => {}
                Err(error) if failure::is_without_users(&error) => {}
                Err(error) => return Err(self.failure(&access.login_action(), error).into()),
            }
        }
        // A member answers this without the others, so it shows only that this one can be reached.
        match self.probe(GetOptions::new().with_serializable()).await {
            Err(Failure::LoginRequired { action, reason }) if access.user.is_none() => {
                let reason = format!("{reason}; a user and a password are required");
                Err(StoreError::Refused { action, reason })
            }
            answer => Ok(answer?),
        }
    }

    /// Makes a cheap read. Any answer counts: the user may lack permission for this key.
    pub(super) async fn probe(&self, options: GetOptions) -> Result<(), Failure> {
        let mut kv = self.kv();
        let answer = timeout(self.patience, kv.get("/", Some(options.with_count_only()))).await;
        match answer
            .map_err(|_| self.timeout_error(self.patience))?
            .map_err(|error| self.failure("read", error))
        {
            Ok(_) | Err(Failure::Store(StoreError::Refused { .. })) => Ok(()),
            Err(Failure::LoginRequired { reason, .. }) if !failure::requires_login(&reason) => {
                Ok(())
            }
            Err(failure) => Err(failure),
        }
    }

    /// For reads and writes.
    pub(super) fn kv(&self) -> KvClient {
        self.client
            .kv_client()
            .max_decoding_message_size(MAX_PAGE_BYTES)
    }

    /// For watches.
    pub(super) fn watches(&self) -> WatchClient {
        self.client
            .watch_client()
            .max_decoding_message_size(MAX_RESPONSE_BYTES)
    }

    /// For keys with a time to live.
    pub(super) fn leases(&self) -> LeaseClient {
        self.client.lease_client()
    }

    /// Waits for the answer to one request, with a timeout.
    pub(super) async fn request<T>(
        &self,
        action: &str,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Failure> {
        self.answer(request)
            .await?
            .map_err(|error| self.failure(action, error))
    }

    /// Like [`Session::request`], for callers that handle etcd's error themselves.
    pub(super) async fn answer<T>(
        &self,
        request: impl Future<Output = T>,
    ) -> Result<T, StoreError> {
        timeout(REQUEST_TIMEOUT, request)
            .await
            .map_err(|_| self.timeout_error(REQUEST_TIMEOUT))
    }

    /// The error of a timeout.
    pub(super) fn timeout_error(&self, limit: Duration) -> StoreError {
        self.unavailable(format!("no answer within {limit:?}"))
    }

    /// Classifies an error of etcd.
    pub(super) fn failure(&self, action: &str, error: Error) -> Failure {
        failure::map(&self.endpoint, action, error)
    }

    /// The error of an unusable member.
    pub(super) fn unavailable(&self, reason: String) -> StoreError {
        StoreError::Unavailable {
            endpoint: self.endpoint.clone(),
            reason,
        }
    }

    /// Whether requests for a watch's progress are answered; none if unknown.
    pub(super) fn answers_progress(&self) -> Option<bool> {
        answers_progress(self.progress.load(Ordering::Relaxed))
    }

    /// Records an answer to a request for progress.
    pub(super) fn progress_answered(&self) {
        self.progress.store(ANSWERED, Ordering::Relaxed);
    }

    /// Records that a request for progress was not answered by a member that answers others.
    pub(super) fn progress_unanswered(&self) {
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self
            .progress
            .fetch_update(set, get, |progress| Some(after_silence(progress)));
    }

    /// The error of a silent watch on a member that answers.
    pub(super) fn silent(&self, silence: Duration) -> StoreError {
        StoreError::Silent {
            endpoint: self.endpoint.clone(),
            silence,
        }
    }

    /// Marks the connection as broken: the next request opens a new one, and prefers other members.
    pub(super) fn give_up(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }
}

/// Interprets `progress`: unknown until two requests in a row were not answered, or one was.
const fn answers_progress(progress: u8) -> Option<bool> {
    match progress {
        ANSWERED => Some(true),
        UNANSWERED => Some(false),
        _ => None,
    }
}

/// The next value of `progress` after an unanswered request.
const fn after_silence(progress: u8) -> u8 {
    if progress == UNKNOWN || progress == ANSWERED {
        MISSED
    } else {
        UNANSWERED
    }
}

/// A member that rejects a client only closes the connection; the reason may be lost.
fn hint(mut error: StoreError, tls: bool) -> StoreError {
    if let StoreError::Unavailable { reason, .. } = &mut error
        && CLOSED.iter().any(|words| reason.contains(words))
    {
        let hint = if tls {
            "it may not accept this client's certificate"
        } else {
            "it may require TLS"
        };
        *reason = format!("{reason} ({hint})");
    }
    error
}

/// The options of a watch of all keys below `prefix`, from this revision on. Large responses arrive in fragments.
pub(super) fn watch_options(prefix: &str, start: i64) -> WatchOptions {
    let options = match prefix {
        "" => WatchOptions::new().with_all_keys(),
        _ => WatchOptions::new().with_prefix(),
    };
    options.with_start_revision(start).with_fragment()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_unanswered_once_decides_nothing() {
        let once = after_silence(UNKNOWN);
        assert_eq!(answers_progress(once), None);
        assert_eq!(answers_progress(after_silence(once)), Some(false));
        assert_eq!(answers_progress(after_silence(ANSWERED)), None);
    }
}
