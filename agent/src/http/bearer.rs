//! Authenticates scrapes by a bearer token: one of a file, or one whose owner may read `/metrics` according to the API server.

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc, time::Duration};

use axum::{
    Json,
    extract::Request,
    http::{
        HeaderMap, StatusCode,
        header::{AUTHORIZATION, WWW_AUTHENTICATE},
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use contiv_store::kube::{Review, TokenReviewer};
use serde_json::json;
use thiserror::Error;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};
use tracing::warn;

/// How long an answer of the API server counts; those of kube-rbac-proxy and of Kubernetes' own components, 10 s or more.
const REVIEWED_FOR: Duration = Duration::from_secs(10);
/// How long the API server may take. Prometheus waits 10 s by default.
const REVIEW_LIMIT: Duration = Duration::from_secs(5);
/// How many tokens are remembered: more than there are scrapers.
const MAX_REMEMBERED_TOKENS: usize = 64;
/// The path that the owner of a token must be allowed to read.
const PATH: &str = "/metrics";

/// The bearer tokens that may scrape.
#[derive(Debug, Default)]
pub struct ScrapeGuard {
    /// A file with tokens, one a line.
    tokens: Option<PathBuf>,
    reviews: Option<Reviews>,
}

#[derive(Debug)]
struct Reviews {
    reviewer: TokenReviewer,
    /// The latest answers. Locked during a review, so that unknown tokens cost the API server one request at a time.
    known: Mutex<BTreeMap<String, (Instant, Review)>>,
}

/// Why a request may not scrape.
#[derive(Debug, Error)]
enum ScrapeError {
    #[error("a scrape needs the header Authorization with a bearer token that is known here")]
    Unknown,
    #[error(
        "{0} may not read /metrics; a ClusterRole with the nonResourceURL /metrics and the verb get allows it"
    )]
    Forbidden(String),
    #[error("the token cannot be checked: {0}")]
    Unchecked(String),
}

impl ScrapeGuard {
    /// Without a file and a reviewer every request may. With both one of them is enough.
    pub fn new(tokens: Option<PathBuf>, reviewer: Option<TokenReviewer>) -> Self {
        Self {
            tokens,
            reviews: reviewer.map(|reviewer| Reviews {
                reviewer,
                known: Mutex::default(),
            }),
        }
    }

    /// Whether a token is required.
    pub const fn requires_token(&self) -> bool {
        self.tokens.is_some() || self.reviews.is_some()
    }

    async fn check(&self, headers: &HeaderMap) -> Result<(), ScrapeError> {
        if !self.requires_token() {
            return Ok(());
        }
        let token = bearer(headers).ok_or(ScrapeError::Unknown)?;
        let mut unread = None;
        if let Some(file) = &self.tokens {
            // It is small, and read each time: so a new token counts at once.
            match fs::read_to_string(file) {
                Ok(tokens) if tokens.lines().any(|known| is_same(known.trim(), token)) => {
                    return Ok(());
                }
                Ok(_) => {}
                Err(error) => unread = Some(format!("{}: {error}", file.display())),
            }
        }
        match (&self.reviews, unread) {
            (Some(reviews), _) => reviews.check(token).await,
            (None, Some(error)) => {
                warn!(error, "tokens for scrapes cannot be read");
                Err(ScrapeError::Unchecked(error))
            }
            (None, None) => Err(ScrapeError::Unknown),
        }
    }
}

impl Reviews {
    async fn check(&self, token: &str) -> Result<(), ScrapeError> {
        let mut known = self.known.lock().await;
        let now = Instant::now();
        known.retain(|_, (at, _)| now - *at < REVIEWED_FOR);
        let review = match known.get(token).map(|(_, review)| review.clone()) {
            Some(review) => review,
            None => self.review(token).await.map_err(ScrapeError::Unchecked)?,
        };
        if known.len() >= MAX_REMEMBERED_TOKENS {
            known.clear();
        }
        known
            .entry(token.to_owned())
            .or_insert_with(|| (now, review.clone()));
        match review {
            Review::Allowed => Ok(()),
            Review::Forbidden { user } => Err(ScrapeError::Forbidden(user)),
            Review::Unknown => Err(ScrapeError::Unknown),
        }
    }

    async fn review(&self, token: &str) -> Result<Review, String> {
        let asked = timeout(REVIEW_LIMIT, self.reviewer.may_read(token, PATH)).await;
        let asked =
            asked.map_err(|_| format!("the API server did not answer within {REVIEW_LIMIT:?}"));
        let review = asked.and_then(|asked| asked.map_err(|error| error.to_string()));
        review.inspect_err(|error| warn!(error, "a token for scrapes cannot be reviewed"))
    }
}

/// Runs a request whose sender may scrape.
pub(super) async fn guard(guard: Arc<ScrapeGuard>, request: Request, next: Next) -> Response {
    match guard.check(request.headers()).await {
        Ok(()) => next.run(request).await,
        Err(denied) => denied.into_response(),
    }
}

impl IntoResponse for ScrapeError {
    fn into_response(self) -> Response {
        let body = Json(json!({ "error": self.to_string() }));
        match self {
            Self::Unknown => (
                StatusCode::UNAUTHORIZED,
                [(WWW_AUTHENTICATE, "Bearer")],
                body,
            )
                .into_response(),
            Self::Forbidden(_) => (StatusCode::FORBIDDEN, body).into_response(),
            Self::Unchecked(_) => (StatusCode::SERVICE_UNAVAILABLE, body).into_response(),
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Compares in a time that does not depend on the number of equal bytes. An empty line is no token.
fn is_same(known: &str, token: &str) -> bool {
    let differences = known
        .bytes()
        .zip(token.bytes())
        .fold(0, |found, (one, other)| found | (one ^ other));
    !known.is_empty() && known.len() == token.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_that_of_the_bearer_scheme() {
        for (value, expected) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc ", Some("abc")),
            ("Basic abc", None),
            ("Bearer ", None),
            ("abc", None),
        ] {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())]);
            assert_eq!(bearer(&headers), expected, "{value}");
        }
    }

    #[test]
    fn tokens_equal_only_in_full_length() {
        for (known, token, expected) in [
            ("abc", "abc", true),
            ("abc", "ab", false),
            ("ab", "abc", false),
            ("abd", "abc", false),
            ("", "", false),
        ] {
            assert_eq!(is_same(known, token), expected, "{known} {token}");
        }
    }
}
