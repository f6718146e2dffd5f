//! Probes and metrics.

use std::{fmt, sync::Arc, time::Instant};

use axum::{
    Json,
    extract::State,
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use super::{Api, error::ApiError};
use crate::node::{Core, RendererView};

pub(super) async fn liveness(State(api): State<Api>) -> Result<Json<Value>, ApiError> {
    let status = api.ask(Core::status).await?;
    Ok(Json(json!({ "status": "ok", "events": status.events })))
}

pub(super) async fn readiness(State(api): State<Api>) -> Result<Json<Value>, ApiError> {
    let status = api.ask(Core::status).await?;
    match status {
        status if status.ready => Ok(Json(json!({ "status": "ready", "revision": status.revision }))),
        status if status.synced => Err(ApiError::RenderersNotReady(not_ready(
            &api.ask(|core| core.renderers(Instant::now())).await?,
        ))),
        _ => Err(ApiError::NotReady("the store has not been read yet")),
    }
}

/// The renderers without an applied snapshot, with the reasons of those that failed.
fn not_ready(renderers: &[RendererView]) -> String {
    let waiting = renderers.iter().filter(|renderer| !renderer.ready);
    let reason = |renderer: &RendererView| match &renderer.last_error {
        Some(last) => format!("{}: {}", renderer.name, last.error),
        None => format!("{} is {}", renderer.name, renderer.state),
    };
    waiting.map(reason).collect::<Vec<_>>().join("; ")
}

/// While the node does not answer, its gauges are the previous ones; the rest is current.
pub(super) async fn metrics(State(api): State<Api>) -> Response {
    let metrics = Arc::clone(&api.metrics);
    let _ = api.ask(move |core| metrics.set_state(core, Instant::now())).await;
    if api.metrics.services.bound() > 0
        && let Ok(counted) = super::counters::read(&api, Some(api.metrics.services.bound())).await
    {
        api.metrics.services.set(&counted.connections());
    }
    open_metrics(api.metrics.text())
}

/// The answer to a scrape.
pub(super) fn open_metrics(text: Result<String, fmt::Error>) -> Response {
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, content_type)], text.unwrap_or_default()).into_response()
}
