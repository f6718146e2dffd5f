//! Protects the debug HTTP server from attacks and accidents: cross-site requests (CSRF), DNS rebinding, and requests that are
//! too large, too slow or too many.

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{DefaultBodyLimit, Request},
    http::{
        HeaderMap, Method,
        header::{AsHeaderName, HOST, ORIGIN},
        uri::Authority,
    },
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
};
use tokio::{sync::Semaphore, time::timeout};

use super::{error::ApiError, response_budget::ResponseBudget};

/// The time limit of an answer: ten times the duration of the slowest one.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest body of a request, in bytes. No endpoint needs a larger one.
const BODY_LIMIT: usize = 16 << 10;
/// The most concurrent requests: many more than people and probes ever make.
const MAX_REQUESTS: usize = 64;
const SEC_FETCH_SITE: &str = "sec-fetch-site";
/// The endpoints for probes. Their answers are small and are made at once.
const PROBE_PATHS: [&str; 4] = ["/liveness", "/readiness", "/metrics", "/status"];

/// Adds the protection to all endpoints of the router.
pub(super) fn protect(router: Router) -> Router {
    let (slots, budget) = (
        Arc::new(Semaphore::new(MAX_REQUESTS)),
        ResponseBudget::new(),
    );
    router
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(from_fn(move |request: Request, next: Next| {
            let (slots, budget) = (Arc::clone(&slots), budget.clone());
            async move { check_and_run(&slots, &budget, request, next).await }
        }))
}

async fn check_and_run(
    slots: &Semaphore,
    budget: &ResponseBudget,
    request: Request,
    next: Next,
) -> Response {
    if let Err(error) = check(request.method(), request.headers()) {
        return error.into_response();
    }
    let Ok(_slot) = slots.try_acquire() else {
        return ApiError::TooManyRequests.into_response();
    };
    // Answers to requests that change something may take long, but are small: they need no budget.
    let may_be_large = request.method().is_safe() && !PROBE_PATHS.contains(&request.uri().path());
    let answer = async {
        if may_be_large {
            budget.make(next.run(request)).await
        } else {
            next.run(request).await
        }
    };
    let answer = timeout(ANSWER_TIMEOUT, answer).await;
    answer.unwrap_or_else(|_| ApiError::TooSlow.into_response())
}

/// Accepts only requests to an IP address or localhost. Of those from pages of other sites, accepts only reads.
fn check(method: &Method, headers: &HeaderMap) -> Result<(), ApiError> {
    // DNS rebinding: if a name of another site resolves to 127.0.0.1, browsers take its pages for same-origin with the agent.
    if let Some(host) = text(headers, HOST).filter(|host| !is_address_or_localhost(host)) {
        return Err(ApiError::ForeignHost(host.to_owned()));
    }
    if method.is_safe() {
        return Ok(());
    }
    refuse_foreign_site(headers)
}

/// Refuses requests from pages of other sites. Only browsers tell where a request comes from: by `Origin`, which for the agent's own page
/// equals `Host`, and by `Sec-Fetch-Site` also where a page only loads something.
///
/// # Errors
/// When it is from another site.
pub(super) fn refuse_foreign_site(headers: &HeaderMap) -> Result<(), ApiError> {
    let is_cross_site = |site: &&str| *site == "cross-site" || *site == "same-site";
    if let Some(site) = text(headers, SEC_FETCH_SITE).filter(is_cross_site) {
        return Err(ApiError::ForeignSite(format!("another site ({site})")));
    }
    let is_foreign = |origin: &&str| {
        let host = origin.strip_prefix("http://");
        host.is_none() || host != text(headers, HOST)
    };
    match text(headers, ORIGIN).filter(is_foreign) {
        Some(origin) => Err(ApiError::ForeignSite(origin.to_owned())),
        None => Ok(()),
    }
}

/// A header; empty if it is no text.
fn text(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&str> {
    let value = headers.get(name)?;
    Some(value.to_str().unwrap_or_default())
}

/// True for an IP address or localhost, with any port.
fn is_address_or_localhost(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else {
        return false;
    };
    let name = authority
        .host()
        .trim_start_matches('[')
        .trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(method: &Method, headers: &[(&'static str, &str)]) -> Result<(), String> {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect();
        check(method, &headers).map_err(|error| error.to_string())
    }

    #[test]
    fn host_header_allows_only_ip_addresses_and_localhost() {
        for host in [
            "127.0.0.1:9999",
            "10.0.0.1",
            "[::1]:9999",
            "localhost",
            "LOCALHOST:9999",
        ] {
            assert_eq!(checked(&Method::GET, &[("host", host)]), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:9999",
            "127.0.0.1.evil.example",
            "localhost.evil",
            "",
        ] {
            assert!(
                checked(&Method::GET, &[("host", host)])
                    .unwrap_err()
                    .contains("use an address of this machine"),
                "{host}"
            );
        }
        assert_eq!(
            checked(&Method::GET, &[]),
            Ok(()),
            "HTTP 1.0 has no such header"
        );
    }

    #[test]
    fn cross_site_changes_are_refused() {
        let host = ("host", "127.0.0.1:9999");
        assert_eq!(
            checked(&Method::POST, &[host]),
            Ok(()),
            "curl sends no origin"
        );
        assert_eq!(
            checked(&Method::POST, &[host, ("origin", "http://127.0.0.1:9999")]),
            Ok(())
        );
        for origin in [
            "http://evil.example",
            "https://127.0.0.1:9999",
            "http://127.0.0.1:80",
            "null",
        ] {
            let error = checked(&Method::POST, &[host, ("origin", origin)]).unwrap_err();
            assert!(error.contains(origin), "{error}");
        }
        // A page of another site cannot read the answer: there is no CORS header that allows it.
        assert_eq!(
            checked(&Method::GET, &[host, ("origin", "http://evil.example")]),
            Ok(())
        );
    }
}
