//! What is logged, and changing it while the agent runs.

use axum::{Json, extract::State};
use serde_json::{Value, json};

use super::{Api, error::ApiError, loopback::FromLoopback};

pub(super) async fn get(State(api): State<Api>) -> Json<Value> {
    Json(json!({ "level": api.log_level.get() }))
}

/// The body is a level as in the configuration, as text.
pub(super) async fn put(
    _: FromLoopback,
    State(api): State<Api>,
    body: String,
) -> Result<Json<Value>, ApiError> {
    let level = body.trim();
    api.log_level.set(level).map_err(|error| {
        ApiError::BadRequest(format!("{error}; send a level such as info, or info,contiv_store=debug"))
    })?;
    Ok(Json(json!({ "level": level })))
}
