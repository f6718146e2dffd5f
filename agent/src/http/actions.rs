//! What changes something.

use axum::{Json, extract::State, http::StatusCode};
use serde_json::{Value, json};

use super::{Api, error::ApiError, loopback::FromLoopback};
use crate::event_loop::{Query, Request};

/// Starts a resync and does not wait for it: the history shows it, after the event that is named here.
pub(super) async fn resync(
    _: FromLoopback,
    State(api): State<Api>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let after = api.ask(Query::Status).await?.events;
    let request = Request::Resync { cause: "POST /controller/resync" };
    api.requests.send(request).await.map_err(|_| ApiError::Stopping)?;
    Ok((StatusCode::ACCEPTED, Json(json!({ "resync": "requested", "after": after }))))
}
