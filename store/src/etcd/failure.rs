//! etcd's errors, sorted by what the caller can do about them.

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

/// etcd's words for a revision that is gone (`api/v3rpc/rpctypes`).
const COMPACTED: &str = "required revision has been compacted";

/// Whether the revision of a list is gone.
pub(super) fn is_compacted(error: &Error) -> bool {
    matches!(error, Error::GRpcStatus(status)
        if i32::from(status.code()) == OUT_OF_RANGE && status.message().contains(COMPACTED))
}

/// Whether an answer was larger than this client accepts. tonic says so with "out of range" too.
pub(super) fn is_too_large(error: &Error) -> bool {
    matches!(error, Error::GRpcStatus(status)
        if i32::from(status.code()) == OUT_OF_RANGE && status.message().contains("message length too large"))
}

/// What the request was refused for is final; all else may pass.
pub(super) fn map(endpoint: &str, action: &str, error: Error) -> StoreError {
    let refused = |reason: String| StoreError::Refused { action: action.to_owned(), reason };
    let unavailable = |reason: String| StoreError::Unavailable { endpoint: endpoint.to_owned(), reason };
    match error {
        Error::GRpcStatus(status) => {
            let reason = status.message().to_owned();
            match i32::from(status.code()) {
                INVALID_ARGUMENT | NOT_FOUND | PERMISSION_DENIED | RESOURCE_EXHAUSTED
                | FAILED_PRECONDITION | OUT_OF_RANGE | UNIMPLEMENTED | UNAUTHENTICATED => refused(reason),
                _ => unavailable(reason),
            }
        }
        Error::InvalidArgs(reason) => refused(reason),
        Error::InvalidUri(error) => refused(error.to_string()),
        other => unavailable(other.to_string()),
    }
}
