//! From a request to its answer.

use std::sync::Arc;

use http::{Method, Request, Response, header};
use http_body_util::BodyExt;
use hyper::body::Body as _;

use super::{
    discovery, forward, list,
    query::Query,
    resource::{Resource, Target},
    response::{Body, Encoding, not_found, status, status_in_protobuf, with_media_type},
    review,
    shared::{Exchange, Shared},
    watch,
    write::{self, ObjectRequest},
};

/// Answers one request.
pub(super) async fn answer<B>(shared: Arc<Shared>, request: Request<B>) -> Response<Body>
where
    B: hyper::body::Body + Send + 'static,
{
    let exchange = Arc::new(Exchange::of(&request));
    let encoding = Encoding::of(request.headers());
    let mut response = answer_to(Arc::clone(&shared), request, Arc::clone(&exchange)).await;
    if let Some(seconds) = shared
        .faults
        .lock()
        .retry_after
        .filter(|_| !response.status().is_success())
    {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, seconds.into());
    }
    if encoding.is_protobuf && !response.status().is_success() {
        response = status_in_protobuf(response).await;
    }
    // The bytes of a watch are counted as they are sent.
    exchange.add_bytes(
        response
            .body()
            .size_hint()
            .exact()
            .unwrap_or_default()
            .try_into()
            .unwrap_or_default(),
    );
    response
}

async fn answer_to<B>(
    shared: Arc<Shared>,
    request: Request<B>,
    exchange: Arc<Exchange>,
) -> Response<Body>
where
    B: hyper::body::Body + Send + 'static,
{
    let uri = request.uri().clone();
    let (failure, list_failure, delay, token, certificate) = {
        let mut faults = shared.faults.lock();
        faults.requests.push(Arc::clone(&exchange));
        let failure = faults.failures.pop_front();
        (
            failure,
            faults.list_failure,
            faults.delay,
            faults.token.clone(),
            faults.certificate.clone(),
        )
    };
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    let given = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    if token.is_some_and(|token| given != Some(&format!("Bearer {token}"))) {
        return status(401, "Unauthorized", "Unauthorized");
    }
    if certificate.is_some() && certificate != exchange.client_certificate {
        return status(401, "Unauthorized", "Unauthorized");
    }
    if let Some(code) = failure {
        return status(code, reason(code), "test error");
    }
    if let Some(plural) = review::plural(uri.path()) {
        let (denied, users) = {
            let faults = shared.faults.lock();
            (faults.denied.get(plural).copied(), faults.users.clone())
        };
        let path = uri.path().to_owned();
        return match (denied, request.into_body().collect().await) {
            (Some(code), _) => status(code, reason(code), "test error"),
            (None, Ok(body)) => review::answer(&path, &body.to_bytes(), &users),
            (None, Err(_)) => status(400, "BadRequest", "the body did not arrive"),
        };
    }
    if let Some(pod) = forward::pod(uri.path()) {
        let denied = shared
            .faults
            .lock()
            .denied
            .get(forward::PORT_FORWARD)
            .copied();
        return match denied {
            Some(code) => status(code, reason(code), "as this test wants"),
            None => forward::answer(&shared, request, pod),
        };
    }
    let has_type =
        |resource: &Resource| shared.faults.lock().denied.get(resource.plural) != Some(&404);
    let types: Vec<Resource> = Resource::ALL.into_iter().filter(has_type).collect();
    if let Some(document) = discovery::answer(uri.path(), &types) {
        return document;
    }
    let Some(target) = Target::of_path(uri.path()) else {
        return status(
            404,
            "NotFound",
            "the server could not find the requested resource",
        );
    };
    let Target {
        resource,
        namespace,
        name,
    } = target;
    let denied = shared.faults.lock().denied.get(resource.plural).copied();
    match denied {
        // As for the path of a group that no API has.
        Some(404) => return not_found(),
        Some(code) => return status(code, reason(code), "test error"),
        None => {}
    }
    if name.is_some() || request.method() != Method::GET {
        let (head, body) = request.into_parts();
        let Ok(body) = body.collect().await else {
            return status(400, "BadRequest", "the body did not arrive");
        };
        let media_type = head
            .headers
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        let request = ObjectRequest {
            target: Target {
                resource,
                namespace,
                name,
            },
            method: &head.method,
            query: head.uri.query().unwrap_or_default(),
            media_type: media_type.unwrap_or_default(),
            body: &body.to_bytes(),
        };
        return write::answer(&shared, &request);
    }
    match Query::parse(uri.query().unwrap_or_default()) {
        Err(problem) => status(400, "BadRequest", &problem),
        Ok(query) if query.is_watch => {
            let encoding = Encoding::of(request.headers());
            watch::answer(&shared, resource, query, exchange, encoding)
        }
        Ok(query) => {
            if let Some(code) = list_failure {
                return status(code, reason(code), "test error");
            }
            if let Some((media_type, body)) = shared.faults.lock().lists.get(resource.plural) {
                return with_media_type(media_type, body);
            }
            let query = Query {
                namespace: namespace.map(str::to_owned),
                ..query
            };
            list::answer(&shared, resource, &query, Encoding::of(request.headers()))
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
