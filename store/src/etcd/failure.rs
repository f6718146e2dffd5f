//! Classifies etcd's errors by what the caller can do.

use std::error::Error as _;

use etcd_client::Error;

use super::key_text::key_text;
use crate::{Inconsistency, StoreError, certificate::with_certificate_hint};

/// gRPC status codes (grpc.io, "Status codes").
const INVALID_ARGUMENT: i32 = 3;
const NOT_FOUND: i32 = 5;
const PERMISSION_DENIED: i32 = 7;
const RESOURCE_EXHAUSTED: i32 = 8;
const FAILED_PRECONDITION: i32 = 9;
const OUT_OF_RANGE: i32 = 11;
const UNIMPLEMENTED: i32 = 12;
const UNAUTHENTICATED: i32 = 16;

/// etcd's text (`api/v3rpc/rpctypes`) for a compacted revision,
const COMPACTED: &str = "required revision has been compacted";
/// for a future revision,
const FUTURE: &str = "required revision is a future revision";
/// for a login without users,
const NO_AUTHENTICATION: &str = "authentication is not enabled";
/// for a missing permission,
const DENIED: &str = "permission denied";
/// and for requests of clients that have to log in again: the token is unknown or expired, users or roles have changed since,
/// or there is no token because authentication was enabled later.
const LOGIN_REQUIRED: [&str; 3] = [
    "invalid auth token",
    "revision of auth store is old",
    "user name is empty",
];

/// The error of a message that contradicts another one about this key.
pub(super) fn inconsistent(inconsistency: Inconsistency, key: &[u8], reason: String) -> StoreError {
    StoreError::Inconsistent {
        inconsistency,
        key: key_text(key.to_vec()),
        reason,
    }
}

/// Why a request to one member failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The member requires a new login, or a new login may help. The request was not executed.
    LoginRequired {
        /// The request.
        action: String,
        /// etcd's text.
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
            Failure::LoginRequired { action, reason } => Self::Refused { action, reason },
            Failure::Store(error) => error,
        }
    }
}

/// True if the revision of a list is compacted. Decided by the text: `etcd grpc-proxy` passes on the text with the code
/// "unknown".
pub(super) fn is_compacted(error: &Error) -> bool {
    matches!(error, Error::GRpcStatus(status) if status.message().contains(COMPACTED))
}

/// True if the revision to read at is in the future, by etcd's text as well.
pub(super) fn is_future(error: &Error) -> bool {
    matches!(error, Error::GRpcStatus(status) if status.message().contains(FUTURE))
}

/// True if an answer exceeded this client's limit. tonic reports "out of range" for that too.
pub(super) fn is_too_large(error: &Error) -> bool {
    matches!(error, Error::GRpcStatus(status)
        if i32::from(status.code()) == OUT_OF_RANGE && status.message().contains("message length too large"))
}

/// True if etcd has no users.
pub(super) fn is_without_users(error: &Error) -> bool {
    matches!(error, Error::GRpcStatus(status) if status.message().contains(NO_AUTHENTICATION))
}

/// True if this text of etcd requires a login.
pub(super) fn requires_login(reason: &str) -> bool {
    LOGIN_REQUIRED.iter().any(|words| reason.contains(words))
}

/// True if a new login may help against this error. Permission may be denied to another user: that of a certificate, while
/// there is no token. And etcd 3.4 denies it to watches whose token has expired.
pub(super) fn may_need_login(reason: &str) -> bool {
    reason.contains(DENIED) || requires_login(reason)
}

/// A refused request is final; all other errors may pass.
pub(super) fn map(endpoint: &str, action: &str, error: Error) -> Failure {
    let refused = |reason: String| {
        StoreError::Refused {
            action: action.to_owned(),
            reason,
        }
        .into()
    };
    let unavailable = |reason: String| {
        StoreError::Unavailable {
            endpoint: endpoint.to_owned(),
            reason,
        }
        .into()
    };
    match error {
        Error::GRpcStatus(status) => {
            let reason = status.message().to_owned();
            if may_need_login(&reason) {
                return Failure::LoginRequired {
                    action: action.to_owned(),
                    reason,
                };
            }
            match i32::from(status.code()) {
                INVALID_ARGUMENT | NOT_FOUND | PERMISSION_DENIED | RESOURCE_EXHAUSTED
                | FAILED_PRECONDITION | OUT_OF_RANGE | UNIMPLEMENTED | UNAUTHENTICATED => {
                    refused(reason)
                }
                _ => unavailable(words(&Error::GRpcStatus(status))),
            }
        }
        Error::InvalidArgs(reason) => refused(reason),
        Error::InvalidUri(error) => refused(error.to_string()),
        other => unavailable(words(&other)),
    }
}

/// The text of an error with that of its root cause: "tcp connect error" alone does not help.
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
    with_certificate_hint(words)
}
