//! Shows and changes the log level at runtime.

use axum::{Json, extract::State};
use serde_json::{Value, json};

use super::{error::ApiError, loopback::FromLoopback};
use crate::logging::LogLevel;

pub(super) async fn get(State(log_level): State<LogLevel>) -> Json<Value> {
    Json(json!({ "level": log_level.get() }))
}

/// Sets the level. The body is plain text in the syntax of the setting `log-level`.
pub(super) async fn put(
    _: FromLoopback,
    State(log_level): State<LogLevel>,
    body: String,
) -> Result<Json<Value>, ApiError> {
    let level = body.trim();
    log_level.set(level).map_err(|error| {
        ApiError::BadRequest(format!(
            "{error}; send a level such as info, or info,contiv_store=debug"
        ))
    })?;
    Ok(Json(json!({ "level": level })))
}
