//! One blocking query: answered when something has changed since the last answer, or after a timeout.

use std::time::Duration;

use hyper::header::HeaderValue;
use tokio::time::{Instant, sleep_until};

use super::{ConsulOptions, RegistryError};
use crate::registry::http::{HttpClient, Response};

/// The least time between the starts of two queries of one kind, in case every answer of a server is new.
const MIN_INTERVAL: Duration = Duration::from_millis(200);

/// How late an answer may be.
const ANSWER_SLACK: Duration = Duration::from_secs(10);

/// The least time that a query waits, however many there are.
const MIN_WAIT: Duration = Duration::from_secs(1);

pub(super) struct BlockingQuery {
    path: String,
    /// The index of the last answer; 0 requests the current state.
    index: u64,
    started: Option<Instant>,
}

impl BlockingQuery {
    pub(super) const fn new(path: String) -> Self {
        Self {
            path,
            index: 0,
            started: None,
        }
    }

    /// Waits for a change, and returns everything, which may be unchanged. After an error the next query requests the current
    /// state: the server may be another one, with other indexes.
    pub(super) async fn poll(
        &mut self,
        client: &HttpClient,
        options: &ConsulOptions,
        wait: Duration,
    ) -> Result<Response, RegistryError> {
        if let Some(started) = self.started {
            sleep_until(started + MIN_INTERVAL).await;
        }
        self.started = Some(Instant::now());
        let before = std::mem::take(&mut self.index);
        let mut url = format!(
            "{}{}?stale&index={before}&wait={}ms",
            options.url,
            self.path,
            wait.as_millis()
        );
        if let Some(datacenter) = &options.datacenter {
            url = format!("{url}&dc={datacenter}");
        }
        // The server adds up to a sixteenth to the waiting time.
        let limit = wait + wait / 16 + ANSWER_SLACK;
        let answer = client.get(&url, &headers(options).await?, limit).await?;
        let index = answer
            .headers
            .get("x-consul-index")
            .and_then(|index| index.to_str().ok()?.parse().ok());
        let Some(index) = index else {
            return Err(self.error(
                options,
                "the answer has no X-Consul-Index; is this Consul's HTTP API?",
            ));
        };
        self.index = next_index(before, index);
        Ok(answer)
    }

    /// An error of this query.
    pub(super) fn error(&self, options: &ConsulOptions, reason: impl ToString) -> RegistryError {
        RegistryError::new(format!("{}{}", options.url, self.path), reason)
    }
}

async fn headers(
    options: &ConsulOptions,
) -> Result<Vec<(&'static str, HeaderValue)>, RegistryError> {
    let Some(file) = &options.token_file else {
        return Ok(Vec::new());
    };
    let failed = |reason: String| RegistryError::new(file.display().to_string(), reason);
    let token = tokio::fs::read_to_string(file)
        .await
        .map_err(|error| failed(error.to_string()))?;
    Ok(vec![(
        "x-consul-token",
        token_header(&token).map_err(|reason| failed(reason.to_owned()))?,
    )])
}

/// The header for a token. The token is not repeated in errors, since it is a secret.
fn token_header(token: &str) -> Result<HeaderValue, &'static str> {
    let token = token.trim();
    if token.is_empty() {
        return Err("it is empty, and should hold a token");
    }
    let header = HeaderValue::from_str(token)
        .ok()
        .filter(|_| token.is_ascii());
    let mut header =
        header.ok_or("the token has a character that no request can carry; write it again")?;
    header.set_sensitive(true);
    Ok(header)
}

/// The index of the next query: that of the answer. If it went backwards, the history is another one (a restored server, or a
/// restart); then the next query does not wait. 0 would not wait either, and is never valid in an answer.
fn next_index(before: u64, answered: u64) -> u64 {
    if answered < before {
        0
    } else {
        answered.max(1)
    }
}

/// How long each query waits if there are more services than connections, so that each runs about as often as with enough
/// connections.
pub(super) fn shared_wait(wait: Duration, services: usize, connections: usize) -> Duration {
    if services <= connections {
        return wait;
    }
    #[expect(clippy::cast_precision_loss, reason = "a part of a time")]
    let part = connections as f64 / services as f64;
    wait.mul_f64(part).max(MIN_WAIT.min(wait))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_going_backwards_is_reset_and_zero_never_waited_for() {
        assert_eq!(
            [(0, 0), (0, 7), (7, 7), (7, 9), (9, 8)].map(|(b, a)| next_index(b, a)),
            [1, 7, 7, 9, 0]
        );
    }

    #[test]
    fn token_is_trimmed_and_one_that_cannot_be_sent_is_refused() {
        assert_eq!(token_header(" abc\r\n").unwrap(), "abc");
        assert!(token_header("\n").unwrap_err().contains("it is empty"));
        for token in ["a\nb", "a\0b", "ab\u{7f}", "\u{feff}abc"] {
            let error = token_header(token).unwrap_err();
            assert!(
                error.contains("no request can carry") && !error.contains(token),
                "{error}"
            );
        }
    }

    #[test]
    fn more_services_than_connections_shorten_the_wait() {
        let wait = Duration::from_secs(60);
        assert_eq!(shared_wait(wait, 128, 128), wait);
        assert_eq!(shared_wait(wait, 256, 128), wait / 2);
        assert_eq!(shared_wait(wait, 1_000_000, 128), MIN_WAIT);
        assert_eq!(
            shared_wait(Duration::from_millis(50), 2, 1),
            Duration::from_millis(50)
        );
    }
}
