//! Handlers that change something.

use axum::{Json, extract::State, http::StatusCode};
use contiv_node::{Core, Input};
use serde_json::{Value, json};

use super::{Api, error::ApiError, loopback::FromLoopback};
use crate::drivers::Request;

/// Confirms held deletions. 200 if there are none.
pub(super) async fn confirm_deletions(
    _: FromLoopback,
    State(api): State<Api>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let (request, answer) = Request::answered(Input::ConfirmDeletions);
    api.requests
        .send(request)
        .await
        .map_err(|_| ApiError::Stopping)?;
    Ok(if answer.await.map_err(|_| ApiError::Stopping)?? {
        (
            StatusCode::ACCEPTED,
            Json(json!({ "deletions": "confirmed" })),
        )
    } else {
        (
            StatusCode::OK,
            Json(json!({ "deletions": "none are held" })),
        )
    })
}

/// Starts a resync without waiting for it: the history shows it after the returned event.
pub(super) async fn resync(
    _: FromLoopback,
    State(api): State<Api>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let after = api.query(Core::status).await?.events;
    let request = Request::Input(Input::Resync {
        cause: "POST /controller/resync",
    });
    api.requests
        .send(request)
        .await
        .map_err(|_| ApiError::Stopping)?;
    Ok((
        StatusCode::ACCEPTED,
        Json(json!({ "resync": "requested", "after": after })),
    ))
}
