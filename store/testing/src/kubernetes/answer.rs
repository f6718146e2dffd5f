//! From a request to its answer.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use percent_encoding::percent_decode_str;
use serde_json::json;

use super::{list, resource::Resource, selector::Selector, server::Shared, watch};

pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The supported parts of a query.
#[derive(Debug, Default)]
pub(super) struct Query {
    pub(super) selector: Selector,
    pub(super) limit: usize,
    pub(super) next: Option<String>,
    pub(super) version: String,
    pub(super) bookmarks: bool,
    pub(super) timeout_seconds: Option<u64>,
    /// Whether exactly this version is requested.
    pub(super) is_exact: bool,
    pub(super) namespace: Option<String>,
    is_watch: bool,
}

impl Query {
    fn parse(text: &str) -> Result<Self, String> {
        let mut query = Self::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode_str(value).decode_utf8_lossy().into_owned();
            let number = || value.parse::<u64>().map_err(|error| format!("{name}: {error}"));
            match name {
                "watch" => query.is_watch = value == "true",
                "allowWatchBookmarks" => query.bookmarks = value == "true",
                "limit" => query.limit = usize::try_from(number()?).unwrap_or(usize::MAX),
                "continue" => query.next = Some(value),
                "resourceVersion" => query.version = value,
                "resourceVersionMatch" => query.is_exact = value == "Exact",
                "timeoutSeconds" => query.timeout_seconds = Some(number()?),
                "fieldSelector" => query.selector = Selector::parse(&value)?,
                _ => return Err(format!("this server does not know {name}")),
            }
        }
        Ok(query)
    }
}

/// Answers one request.
pub(super) async fn answer<B>(shared: Arc<Shared>, request: Request<B>) -> Response<Body> {
    let uri = request.uri();
    let (failure, list_failure, delay, token) = {
        let mut faults = shared.faults.lock();
        faults.requests.push(uri.to_string());
        (faults.failures.pop_front(), faults.list_failure, faults.delay, faults.token.clone())
    };
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if token.is_some_and(|token| given != Some(&format!("Bearer {token}"))) {
        return status(401, "Unauthorized", "Unauthorized");
    }
    if let Some(code) = failure {
        return status(code, reason(code), "as this test wants");
    }
    let Some((resource, namespace)) = Resource::of_path(uri.path()) else {
        return status(404, "NotFound", "the server could not find the requested resource");
    };
    match Query::parse(uri.query().unwrap_or_default()) {
        Err(problem) => status(400, "BadRequest", &problem),
        Ok(query) if query.is_watch => watch::answer(&shared, resource, query),
        Ok(query) => {
            if let Some(code) = list_failure {
                return status(code, reason(code), "as this test wants");
            }
            list::answer(&shared, resource, &Query { namespace: namespace.map(str::to_owned), ..query })
        }
    }
}

fn reason(code: u16) -> &'static str {
    match code {
        403 => "Forbidden",
        410 => "Expired",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    }
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
