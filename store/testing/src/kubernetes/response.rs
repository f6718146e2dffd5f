//! Answers as HTTP has them.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Response, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use serde_json::json;

pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A `Status` object as text.
pub(super) fn status_text(code: u16, reason: &str, message: &str) -> String {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    status.to_string()
}

/// An answer with a `Status` object.
pub(super) fn status(code: u16, reason: &str, message: &str) -> Response<Body> {
    let mut response = json_answer(status_text(code, reason, message));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

pub(super) fn json_answer(text: String) -> Response<Body> {
    with_body(Full::new(Bytes::from(text)).boxed_unsync())
}

pub(super) fn with_body(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// The answer to an unknown path, which is no `Status` object.
pub(super) fn not_found() -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from_static(b"404 page not found\n")).boxed_unsync());
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}
