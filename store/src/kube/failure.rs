//! Classifies errors of the client.

use std::{error::Error, time::Duration};

use http::{HeaderMap, StatusCode, header};
use kube::core::Status;

use super::protobuf;
use crate::{StoreError, certificate::with_certificate_hint};

/// A hint about missing permissions.
const RIGHTS: &str = "the role of this client needs the verbs list and watch on it";

/// How long the API server may take to begin an answer, and to send the next part of a list.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The limit of a pause that an answer asks for.
const MAX_REQUESTED_PAUSE: Duration = Duration::from_secs(60);
/// How much is repeated of an answer that is no `Status` object.
const MAX_QUOTED_CHARS: usize = 200;

/// Why a request failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The requested version is gone: HTTP 410, or `Expired`.
    Gone,
    /// The server's cache has not reached the requested version: it lags behind, or its history is another one.
    TooNew,
    /// The type cannot be read: HTTP 403 or 404.
    Denied(Denial),
    Store(StoreError),
}

/// The answer that a type cannot be read.
#[derive(Debug)]
pub(super) struct Denial {
    /// The server does not have the type.
    pub(super) is_missing: bool,
    /// The words of the server.
    pub(super) message: String,
    /// The error, if that is one.
    pub(super) error: StoreError,
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// True if the API server no longer has a version.
pub(super) fn is_gone(status: &Status) -> bool {
    status.code == 410 || status.reason == "Expired" || status.reason == "Gone"
}

/// True if the API server's cache has not reached the requested version.
fn is_too_new(status: &Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    causes.any(|cause| cause.reason == "ResourceVersionTooLarge")
        || status.message.contains("Too large resource version")
}

/// The error of an answer that does not come.
pub(super) fn timeout_error(endpoint: &str) -> StoreError {
    unavailable(endpoint, format!("no answer within {ANSWER_TIMEOUT:?}"))
}

/// The `Status` object of an answer with an error code. Proxies answer with other text or JSON, and an API server of Kubernetes'
/// library with its list of paths if it does not have the requested one: without the code that a `Status` has.
pub(super) fn status(code: u16, body: &[u8]) -> Status {
    let message = protobuf::status_to_json(body);
    let json = message.as_ref().map_or(body, |json| json.as_bytes());
    let status = serde_json::from_slice(json)
        .ok()
        .filter(|status: &Status| status.code != 0);
    status.unwrap_or_else(|| {
        let text: String = String::from_utf8_lossy(body)
            .trim()
            .chars()
            .take(MAX_QUOTED_CHARS)
            .collect();
        let reason = StatusCode::from_u16(code)
            .ok()
            .and_then(|code| code.canonical_reason());
        Status::failure(&text, reason.unwrap_or_default()).with_code(code)
    })
}

/// The pause that an answer asks for (`Retry-After` in seconds, the only form that the API server uses).
pub(super) fn requested_pause(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = headers
        .get(header::RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some(Duration::from_secs(seconds).min(MAX_REQUESTED_PAUSE))
}

/// Classifies the answer to a request for `resource`, which may ask for a pause.
pub(super) fn of(
    endpoint: &str,
    resource: &str,
    status: &Status,
    pause: Option<Duration>,
) -> Failure {
    if is_gone(status) {
        return Failure::Gone;
    }
    if is_too_new(status) {
        return Failure::TooNew;
    }
    let message = format!("{} ({} {})", status.message, status.code, status.reason);
    let hint = match status.code {
        401 => "is its token or certificate still good?",
        403 => RIGHTS,
        404 => "contiv needs Kubernetes 1.21 or later",
        // Overloaded, starting, stopping, or an internal error: it may pass.
        _ => {
            return Failure::Store(match pause {
                Some(pause) => StoreError::Busy {
                    endpoint: endpoint.to_owned(),
                    reason: message,
                    pause,
                },
                None => unavailable(endpoint, message),
            });
        }
    };
    let action = format!("read {resource}");
    let error = StoreError::Refused {
        action,
        reason: format!("{message}; {hint}"),
    };
    match status.code {
        403 | 404 => Failure::Denied(Denial {
            is_missing: status.code == 404,
            message,
            error,
        }),
        _ => Failure::Store(error),
    }
}

pub(super) fn unavailable(endpoint: &str, reason: impl Into<String>) -> StoreError {
    StoreError::Unavailable {
        endpoint: endpoint.to_owned(),
        reason: reason.into(),
    }
}

/// An error with its causes, which most of the client's errors do not print.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    with_certificate_hint(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_gone_by_code_or_by_reason() {
        let of = |code: u16, reason: &str| {
            let body =
                format!(r#"{{"kind":"Status","message":"","reason":"{reason}","code":{code}}}"#);
            is_gone(&status(code, body.as_bytes()))
        };
        assert!(of(410, "") && of(500, "Expired") && of(500, "Gone"));
        assert!(!of(404, "NotFound") && !of(500, ""));
    }

    #[test]
    fn answer_without_a_status_has_the_code_of_the_response() {
        let status_object = r#"{"kind":"Status","status":"Failure","message":"gone","reason":"Expired","code":410}"#;
        let found = status(503, status_object.as_bytes());
        assert_eq!((found.code, found.message.as_str()), (410, "gone"));
        for body in [
            "404 page not found\n",
            r#"{"paths":["/api","/healthz"]}"#,
            "{}",
            r#"{"error":"no such path"}"#,
        ] {
            let found = status(404, body.as_bytes());
            assert_eq!(
                (found.code, found.reason.as_str()),
                (404, "Not Found"),
                "{body}"
            );
            assert_eq!(found.message, body.trim());
            assert!(
                matches!(of("", "", &found, None), Failure::Denied(denial) if denial.is_missing),
                "{body}"
            );
        }
    }
}
