//! Answers as HTTP has them.

use std::{convert::Infallible, io::Write};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, Collected, Full, combinators::UnsyncBoxBody};
use serde_json::json;

use super::protobuf;

pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// From this size on an answer is compressed, as by the real one.
const COMPRESSED_FROM: usize = 128 << 10;
pub(super) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The form of an answer that a client asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Encoding {
    pub(super) is_protobuf: bool,
    is_compressed: bool,
}

impl Encoding {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let has = |name, value: &str| {
            let given = headers.get(name).and_then(|given| given.to_str().ok());
            given.is_some_and(|given| given.split(',').any(|one| one.trim() == value))
        };
        Self {
            is_protobuf: has(header::ACCEPT, PROTOBUF),
            is_compressed: has(header::ACCEPT_ENCODING, "gzip"),
        }
    }

    /// The same for a type that has no protobuf.
    pub(super) const fn without_protobuf(self) -> Self {
        Self {
            is_protobuf: false,
            ..self
        }
    }
}

/// An answer with any content.
pub(super) fn with_media_type(media_type: &'static str, body: &str) -> Response<Body> {
    let mut response = with_body(Full::new(Bytes::copy_from_slice(body.as_bytes())).boxed_unsync());
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// An answer in this form.
pub(super) fn encoded(body: Vec<u8>, encoding: Encoding) -> Response<Body> {
    let is_compressed = encoding.is_compressed && body.len() > COMPRESSED_FROM;
    // Its level in the real one.
    let compress = |body: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(body).and_then(|()| encoder.finish())
    };
    let body = if is_compressed {
        compress(&body).unwrap_or_default()
    } else {
        body
    };
    let mut response = with_body(Full::new(Bytes::from(body)).boxed_unsync());
    if is_compressed {
        response
            .headers_mut()
            .insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    if encoding.is_protobuf {
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static(PROTOBUF));
    }
    response
}

/// An answer with an error in protobuf, if it has a `Status`.
pub(super) async fn status_in_protobuf(response: Response<Body>) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    let body = body
        .collect()
        .await
        .map(Collected::to_bytes)
        .unwrap_or_default();
    let body = match serde_json::from_slice(&body) {
        Ok(status) => {
            head.headers
                .insert(header::CONTENT_TYPE, HeaderValue::from_static(PROTOBUF));
            protobuf::status(&status).into()
        }
        Err(_) => body,
    };
    Response::from_parts(head, Full::new(body).boxed_unsync())
}

/// The answer of a cache that has not reached a version.
pub(super) fn too_large_version(requested: &str, newest: i64) -> Response<Body> {
    let message = format!("Too large resource version: {requested}, current: {newest}");
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 504,
        "message": message, "reason": "Timeout",
        "details": {
            "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
            "retryAfterSeconds": 1,
        },
    });
    let mut response = json_answer(status.to_string());
    *response.status_mut() = StatusCode::GATEWAY_TIMEOUT;
    response
}

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
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
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
    let mut response =
        Response::new(Full::new(Bytes::from_static(b"404 page not found\n")).boxed_unsync());
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}
