//! A connection to one member, logged in.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    time::Duration,
};

use etcd_client::{Client, ConnectOptions, Error, GetOptions, KvClient, LeaseClient, WatchClient};
use tokio::time::timeout;

use super::{
    access::EtcdAccess,
    failure::{self, Failure},
};
use crate::StoreError;

/// How long a member may take to show that it is of use: to let this client in, or to answer a read that costs next to
/// nothing. One that is stopped or cut off is given up then, and the next is asked. An election takes a second or two.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long one request may take. A page takes a hundredth of that.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Only while something is awaited. etcd closes connections that ping more often than its `--grpc-keepalive-min-time`,
/// which is 5 s, or while nothing is awaited.
const PING_INTERVAL: Duration = Duration::from_secs(6);
const PING_TIMEOUT: Duration = Duration::from_secs(3);
/// Pages are made smaller when they exceed it, and watch responses come in fragments that do not. What a hostile store
/// can make this client hold at once, with a copy or two.
pub(super) const LARGEST_RESPONSE: usize = 16 << 20;

/// How hyper and rustls say that the other side closed the connection.
const CLOSED: [&str; 4] = ["connection closed", "connection reset", "broken pipe", "received fatal alert"];

/// Whether the connection to a member is of use; shared by all who use it.
pub(super) type BrokenFlag = Arc<AtomicBool>;

/// A connection to one member. Cheap to clone.
#[derive(Clone)]
pub(super) struct Session {
    client: Client,
    endpoint: String,
    broken: BrokenFlag,
    /// What became of requests for the progress of a watch, as one of the constants below: `etcd grpc-proxy` 3.4 ignores them.
    progress: Arc<AtomicU8>,
}

/// Nothing is known of requests for progress.
const UNKNOWN: u8 = 0;
/// The last one was not answered, as by a member that was busy.
const MISSED: u8 = 1;
/// Nor was the one before.
const UNANSWERED: u8 = 2;
/// One was answered.
const ANSWERED: u8 = 3;

impl Session {
    /// Reads the files, connects, logs in if there is a user, and makes sure that the member answers.
    pub(super) async fn open(
        endpoint: &str,
        access: &EtcdAccess,
        broken: BrokenFlag,
    ) -> Result<Self, StoreError> {
        let options = ConnectOptions::new()
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_keep_alive(PING_INTERVAL, PING_TIMEOUT)
            .with_keep_alive_while_idle(false)
            // A member that is cut off from the others ends its watches instead of showing the past.
            .with_require_leader(true);
        let options = access.add_tls(options).await?;
        let scheme = if access.tls { "https" } else { "http" };
        // One client for all members would spread its requests over the dead ones too.
        let client = Client::connect([format!("{scheme}://{endpoint}")], Some(options))
            .await
            .map_err(|error| access.unusable_files(&error))?;
        let progress = Arc::new(AtomicU8::new(UNKNOWN));
        let mut session = Self { client, endpoint: endpoint.to_owned(), broken, progress };
        match timeout(PROBE_TIMEOUT, session.begin(access)).await {
            Ok(begun) => begun.map(|()| session).map_err(|error| hint(error, access.tls)),
            Err(_) => Err(session.late(PROBE_TIMEOUT)),
        }
    }

    async fn begin(&mut self, access: &EtcdAccess) -> Result<(), StoreError> {
        if let Some(login) = access.login().await? {
            match self.client.update_user(Some((login.user, login.password))).await {
                Ok(()) => {}
                Err(error) if failure::is_without_users(&error) => {}
                Err(error) => return Err(self.failure(&access.login_action(), error).into()),
            }
        }
        // A member answers this by itself, so it says only that this one can be reached.
        match self.probe(GetOptions::new().with_serializable()).await {
            Err(Failure::LoginRefused { action, reason }) if access.user.is_none() => {
                let reason = format!("{reason}; it wants a user and a password");
                Err(StoreError::Refused { action, reason })
            }
            answer => Ok(answer?),
        }
    }

    /// Makes a read that costs next to nothing. An answer is an answer: what the user may not read here may be asked for
    /// elsewhere.
    pub(super) async fn probe(&self, options: GetOptions) -> Result<(), Failure> {
        let mut kv = self.kv();
        let answer = timeout(PROBE_TIMEOUT, kv.get("/", Some(options.with_count_only()))).await;
        match answer.map_err(|_| self.late(PROBE_TIMEOUT))?.map_err(|error| self.failure("read", error)) {
            Ok(_) | Err(Failure::Store(StoreError::Refused { .. })) => Ok(()),
            Err(Failure::LoginRefused { reason, .. }) if !failure::asks_for_login(&reason) => Ok(()),
            Err(failure) => Err(failure),
        }
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
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Failure> {
        self.answer(request).await?.map_err(|error| self.failure(action, error))
    }

    /// As [`Session::request`], for callers that look at etcd's error themselves.
    pub(super) async fn answer<T>(&self, request: impl Future<Output = T>) -> Result<T, StoreError> {
        timeout(REQUEST_TIMEOUT, request).await.map_err(|_| self.late(REQUEST_TIMEOUT))
    }

    /// Says that an answer did not come in time.
    pub(super) fn late(&self, limit: Duration) -> StoreError {
        self.unavailable(format!("no answer within {limit:?}"))
    }

    /// What an error of etcd means.
    pub(super) fn failure(&self, action: &str, error: Error) -> Failure {
        failure::map(&self.endpoint, action, error)
    }

    /// Why this member is of no use at the moment.
    pub(super) fn unavailable(&self, reason: String) -> StoreError {
        StoreError::Unavailable { endpoint: self.endpoint.clone(), reason }
    }

    /// Whether requests for the progress of a watch are answered; none if that is not known yet.
    pub(super) fn answers_progress(&self) -> Option<bool> {
        answers_progress(self.progress.load(Ordering::Relaxed))
    }

    /// Remembers that a request for progress was answered.
    pub(super) fn progress_answered(&self) {
        self.progress.store(ANSWERED, Ordering::Relaxed);
    }

    /// Remembers that a request for progress was not answered by a member that answers others.
    pub(super) fn progress_unanswered(&self) {
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.progress.fetch_update(set, get, |progress| Some(after_silence(progress)));
    }

    /// Says that a watch was silent for so long while the member answers.
    pub(super) fn silent(&self, silence: Duration) -> StoreError {
        StoreError::Silent { endpoint: self.endpoint.clone(), silence }
    }

    /// Whoever asks the member next gets a new connection, and asks the others first.
    pub(super) fn give_up(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }
}

/// What `progress` says of requests for it; nothing before two in a row were not answered, or one was.
const fn answers_progress(progress: u8) -> Option<bool> {
    match progress {
        ANSWERED => Some(true),
        UNANSWERED => Some(false),
        _ => None,
    }
}

/// What is known of requests for progress after another one was not answered.
const fn after_silence(progress: u8) -> u8 {
    if progress == UNKNOWN || progress == ANSWERED { MISSED } else { UNANSWERED }
}

/// A member that does not accept a client only closes the connection; the reason may be lost on the way.
fn hint(mut error: StoreError, tls: bool) -> StoreError {
    if let StoreError::Unavailable { reason, .. } = &mut error
        && CLOSED.iter().any(|words| reason.contains(words))
    {
        let hint = if tls { "it may not accept this client's certificate" } else { "it may want TLS" };
        *reason = format!("{reason} ({hint})");
    }
    error
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
