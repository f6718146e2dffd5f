//! Probes.

use std::time::Instant;

use axum::{Json, extract::State};
use contiv_node::{Core, RendererView};
use serde_json::{Value, json};

use super::{Api, error::ApiError};

pub(super) async fn liveness(State(api): State<Api>) -> Result<Json<Value>, ApiError> {
    let status = api.query(Core::status).await?;
    Ok(Json(json!({ "status": "ok", "events": status.events })))
}

pub(super) async fn readiness(State(api): State<Api>) -> Result<Json<Value>, ApiError> {
    let status = api.query(Core::status).await?;
    match status {
        status if status.ready => Ok(Json(
            json!({ "status": "ready", "revision": status.revision }),
        )),
        status if status.synced => Err(ApiError::RenderersNotReady(not_ready(
            &api.query(|core| core.renderers(Instant::now())).await?,
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
