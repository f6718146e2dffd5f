//! Protects the debug HTTP from attacks and accidents: pages of other sites, DNS rebinding, and requests that are too large,
//! too slow or too many.

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{DefaultBodyLimit, Request},
    http::{
        HeaderMap, Method,
        header::{HOST, ORIGIN},
        uri::Authority,
    },
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
};
use tokio::{sync::Semaphore, time::timeout};

use super::{error::ApiError, response_budget::ResponseBudget};

/// The time limit of an answer: ten times what the slowest one takes.
const TIME_LIMIT: Duration = Duration::from_secs(30);
/// No request has a large body.
const BODY_LIMIT: usize = 16 << 10;
/// The number of concurrent requests: many more than people and probes ever make.
const MAX_REQUESTS: usize = 64;
/// The endpoints for probes. They are small, and wait for nothing.
const PROBED: [&str; 4] = ["/liveness", "/readiness", "/metrics", "/status"];

/// Wraps all endpoints.
pub(super) fn protect(router: Router) -> Router {
    let (slots, budget) = (Arc::new(Semaphore::new(MAX_REQUESTS)), ResponseBudget::new());
    router.layer(DefaultBodyLimit::max(BODY_LIMIT)).layer(from_fn(move |request: Request, next: Next| {
        let (slots, budget) = (Arc::clone(&slots), budget.clone());
        async move { check_and_run(&slots, &budget, request, next).await }
    }))
}

async fn check_and_run(slots: &Semaphore, budget: &ResponseBudget, request: Request, next: Next) -> Response {
    if let Err(error) = check(request.method(), request.headers()) {
        return error.into_response();
    }
    let Ok(_slot) = slots.try_acquire() else { return ApiError::TooMany.into_response() };
    // Requests that change something may wait long, but their answers are small.
    let may_be_large = request.method().is_safe() && !PROBED.contains(&request.uri().path());
    let answer =
        async { if may_be_large { budget.make(next.run(request)).await } else { next.run(request).await } };
    let answer = timeout(TIME_LIMIT, answer).await;
    answer.unwrap_or_else(|_| ApiError::TooSlow.into_response())
}

/// Accepts only requests to an IP address or localhost, and none from pages of other sites.
fn check(method: &Method, headers: &HeaderMap) -> Result<(), ApiError> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    // DNS rebinding: a foreign name that resolves to 127.0.0.1 makes its pages same-origin with the agent.
    if let Some(host) = text(HOST).filter(|host| !is_address_or_localhost(host)) {
        return Err(ApiError::ForeignHost(host.to_owned()));
    }
    if method.is_safe() {
        return Ok(());
    }
    // Only browsers send an origin. That of the agent's own page equals the host.
    let is_foreign = |origin: &&str| {
        let host = origin.strip_prefix("http://");
        host.is_none() || host != text(HOST)
    };
    match text(ORIGIN).filter(is_foreign) {
        Some(origin) => Err(ApiError::ForeignSite(origin.to_owned())),
        None => Ok(()),
    }
}

/// True for an IP address or localhost, with any port.
fn is_address_or_localhost(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(method: &Method, headers: &[(&'static str, &str)]) -> Result<(), String> {
        let headers =
            headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        check(method, &headers).map_err(|error| error.to_string())
    }

    #[test]
    fn host_header_allows_only_ip_addresses_and_localhost() {
        for host in ["127.0.0.1:9999", "10.0.0.1", "[::1]:9999", "localhost", "LOCALHOST:9999"] {
            assert_eq!(verdict(&Method::GET, &[("host", host)]), Ok(()), "{host}");
        }
        for host in ["evil.example", "evil.example:9999", "127.0.0.1.evil.example", "localhost.evil", ""] {
            assert!(
                verdict(&Method::GET, &[("host", host)])
                    .unwrap_err()
                    .contains("use an address of this machine"),
                "{host}"
            );
        }
        assert_eq!(verdict(&Method::GET, &[]), Ok(()), "HTTP 1.0 has no such header");
    }

    #[test]
    fn changes_requested_by_pages_of_other_sites_are_refused() {
        let host = ("host", "127.0.0.1:9999");
        assert_eq!(verdict(&Method::POST, &[host]), Ok(()), "curl sends no origin");
        assert_eq!(verdict(&Method::POST, &[host, ("origin", "http://127.0.0.1:9999")]), Ok(()));
        for origin in ["http://evil.example", "https://127.0.0.1:9999", "http://127.0.0.1:80", "null"] {
            let error = verdict(&Method::POST, &[host, ("origin", origin)]).unwrap_err();
            assert!(error.contains(origin), "{error}");
        }
        // They cannot read the answer, as no header allows them to.
        assert_eq!(verdict(&Method::GET, &[host, ("origin", "http://evil.example")]), Ok(()));
    }
}
