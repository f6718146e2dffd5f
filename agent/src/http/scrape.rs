//! Metrics for Prometheus: in the form that it asks for, compressed if it can take that.

use std::{fmt, io::Write as _, sync::Arc, time::Instant};

use axum::{
    extract::State,
    http::{
        HeaderMap, StatusCode,
        header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, VARY},
    },
    response::{IntoResponse, Response},
};
use flate2::{Compression, write::GzEncoder};

use super::Api;
use crate::metrics::Exposition;

/// While the node core does not answer, its gauges keep their previous values; all other metrics are current.
pub(super) async fn metrics(State(api): State<Api>, headers: HeaderMap) -> Response {
    let metrics = Arc::clone(&api.metrics);
    let _ = api
        .query(move |core| metrics.set_state(core, Instant::now()))
        .await;
    if let Ok(off) = api.forwarding_off().await {
        api.metrics.node.set_forwarding_off(&off);
    }
    let tables = Arc::clone(&api.shared_tables.borrow());
    api.metrics.node.set_shared_tables(&tables.tables);
    let services = &api.metrics.services;
    if services.bound() > 0
        && let Ok(counted) = super::counters::read(&api, Some(services.bound())).await
    {
        services.set(&counted.services);
    }
    answer(&headers, |form| api.metrics.text(form))
}

/// The answer to a scrape.
pub(super) fn answer(
    headers: &HeaderMap,
    text: impl FnOnce(Exposition) -> Result<String, fmt::Error>,
) -> Response {
    let all = |name| {
        let values = headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok());
        values.collect::<Vec<_>>().join(",")
    };
    let form = Exposition::accepted(&all(ACCEPT));
    let Ok(text) = text(form) else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let about = [
        (CONTENT_TYPE, form.content_type()),
        (VARY, "accept, accept-encoding"),
    ];
    if takes_gzip(&all(ACCEPT_ENCODING))
        && let Ok(compressed) = gzip(text.as_bytes())
    {
        return (about, [(CONTENT_ENCODING, "gzip")], compressed).into_response();
    }
    (about, text).into_response()
}

fn takes_gzip(accept_encoding: &str) -> bool {
    accept_encoding.split(',').any(|coding| {
        let (name, parameters) = coding.split_once(';').unwrap_or((coding, ""));
        let quality = parameters
            .trim()
            .strip_prefix("q=")
            .map_or(Ok(1.0), str::parse::<f32>);
        name.trim().eq_ignore_ascii_case("gzip") && quality.is_ok_and(|quality| quality > 0.0)
    })
}

fn gzip(text: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clients_that_accept_gzip_get_it() {
        for (header, expected) in [
            ("", false),
            ("gzip", true),
            ("deflate, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("identity", false),
        ] {
            assert_eq!(takes_gzip(header), expected, "{header}");
        }
    }
}
