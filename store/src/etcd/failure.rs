//! etcd's errors, sorted by what the caller can do about them.

use std::error::Error as _;

use etcd_client::Error;

use crate::StoreError;

/// gRPC status codes (grpc.io, "Status codes").
const INVALID_ARGUMENT: i32 = 3;
const NOT_FOUND: i32 = 5;
const PERMISSION_DENIED: i32 = 7;
const RESOURCE_EXHAUSTED: i32 = 8;
const FAILED_PRECONDITION: i32 = 9;
const OUT_OF_RANGE: i32 = 11;
const UNIMPLEMENTED: i32 = 12;
const UNAUTHENTICATED: i32 = 16;

/// etcd's words (`api/v3rpc/rpctypes`) for a revision that is gone,
const COMPACTED: &str = "required revision has been compacted";
/// for one that is not there yet,
const FUTURE: &str = "required revision is a future revision";
/// for a login where there are no users,
const NO_AUTHENTICATION: &str = "authentication is not enabled";
/// for what the user may not do,
const DENIED: &str = "permission denied";
/// and for requests of clients that have to log in again: the token is unknown or expired, users or roles have changed
/// since, or there is no token because nobody had to log in until now.
const LOGIN_REFUSED: [&str; 3] =
    ["invalid auth token", "revision of auth store is old", "user name is empty"];

/// Why one member did not do what it was asked.
#[derive(Debug)]
pub(super) enum Failure {
    /// It wants a new login; or, where that cannot be told, perhaps it does. The request was not done.
    LoginRefused {
        /// What was asked.
        action: String,
        /// etcd's words.
        reason: String,
    },
    /// Anything else.
    Store(StoreError),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::LoginRefused { action, reason } => Self::Refused { action, reason },
            Failure::Store(error) => error,
        }
    }
}

/// Whether the revision of a list is gone. The words count, not the code: `etcd grpc-proxy` passes on the words with the code
/// "unknown".
pub(super) fn is_compacted(error: &Error) -> bool {
    matches!(error, Error::GRpcStatus(status) if status.message().contains(COMPACTED))
}

/// Whether the revision to read at is not there yet, by etcd's words as well.
pub(super) fn is_future(error: &Error) -> bool {
    matches!(error, Error::GRpcStatus(status) if status.message().contains(FUTURE))
}

/// Whether an answer was larger than this client accepts. tonic says so with "out of range" too.
pub(super) fn is_too_large(error: &Error) -> bool {
    matches!(error, Error::GRpcStatus(status)
        if i32::from(status.code()) == OUT_OF_RANGE && status.message().contains("message length too large"))
}

/// Whether etcd has no users, and wants none.
pub(super) fn is_without_users(error: &Error) -> bool {
    matches!(error, Error::GRpcStatus(status) if status.message().contains(NO_AUTHENTICATION))
}

/// Whether these words of etcd ask for a login.
pub(super) fn asks_for_login(reason: &str) -> bool {
    LOGIN_REFUSED.iter().any(|words| reason.contains(words))
}

/// Whether a new login may help against these words of etcd. Permission may be denied to a user other than the one to log
/// in as: to the one that a certificate names, as long as there is no token. And etcd 3.4 denies it to watches whose token
/// has expired.
pub(super) fn may_want_login(reason: &str) -> bool {
    reason.contains(DENIED) || asks_for_login(reason)
}

/// What the request was refused for is final; all else may pass.
pub(super) fn map(endpoint: &str, action: &str, error: Error) -> Failure {
    let refused = |reason: String| StoreError::Refused { action: action.to_owned(), reason }.into();
    let unavailable =
        |reason: String| StoreError::Unavailable { endpoint: endpoint.to_owned(), reason }.into();
    match error {
        Error::GRpcStatus(status) => {
            let reason = status.message().to_owned();
            if may_want_login(&reason) {
                return Failure::LoginRefused { action: action.to_owned(), reason };
            }
            match i32::from(status.code()) {
                INVALID_ARGUMENT | NOT_FOUND | PERMISSION_DENIED | RESOURCE_EXHAUSTED
                | FAILED_PRECONDITION | OUT_OF_RANGE | UNIMPLEMENTED | UNAUTHENTICATED => refused(reason),
                _ => unavailable(words(&Error::GRpcStatus(status))),
            }
        }
        Error::InvalidArgs(reason) => refused(reason),
        Error::InvalidUri(error) => refused(error.to_string()),
        other => unavailable(words(&other)),
    }
}

/// The words of an error with those of its first cause: "tcp connect error" alone helps nobody.
pub(super) fn words(error: &Error) -> String {
    let (mut words, mut source) = match error {
        Error::GRpcStatus(status) => (status.message().to_owned(), status.source()),
        Error::TransportError(error) => (error.to_string(), error.source()),
        other => return other.to_string(),
    };
    while let Some(error) = source {
        source = error.source();
        let cause = error.to_string();
        if source.is_none() && !words.contains(&cause) {
            words = format!("{words}: {cause}");
        }
    }
    words
}
