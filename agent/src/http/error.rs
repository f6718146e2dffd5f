//! Errors as JSON: `{"error": …}`.

use axum::{
    Json,
    http::{Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use serde_json::json;
use thiserror::Error;

use contiv_node::PodNotAdded;

/// Why a request failed.
#[derive(Debug, Error)]
pub(super) enum ApiError {
    #[error("{0}")]
    BadRequest(String),
    #[error("{0}")]
    NotFound(String),
    #[error("this changes state, and is only for callers on this machine (loopback)")]
    NotLoopback,
    #[error("the host {0:?} is refused: use an address of this machine, or localhost")]
    ForeignHost(String),
    #[error("requests from pages of {0} may not change anything")]
    ForeignSite(String),
    #[error("too many requests at the same time; try again")]
    TooManyRequests,
    #[error("too many large answers have not been read yet; try again")]
    TooManyUnread,
    #[error("the answer could not be made: {0}")]
    NoAnswer(String),
    #[error("the answer took too long")]
    TooSlow,
    #[error("the connections cannot be counted: {0}")]
    NoCounters(String),
    #[error("connections cannot be listed: {0}")]
    NoFlows(String),
    #[error("{0}")]
    NotReady(&'static str),
    #[error("not every renderer has applied its first snapshot: {0}; see /renderers")]
    RenderersNotReady(String),
    #[error(transparent)]
    PodNotAdded(#[from] PodNotAdded),
    #[error("the agent is stopping")]
    Stopping,
    #[error("the node core has not answered within 3 s; try again")]
    NodeBusy,
    #[error(
        "renderer {0} has not answered within 3 s: it is busy or hangs; see /renderers, and try again"
    )]
    RendererBusy(String),
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = match self {
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::NotLoopback | Self::ForeignSite(_) => StatusCode::FORBIDDEN,
            Self::ForeignHost(_) => StatusCode::MISDIRECTED_REQUEST,
            Self::TooManyRequests | Self::TooManyUnread => StatusCode::TOO_MANY_REQUESTS,
            Self::TooSlow
            | Self::NoAnswer(_)
            | Self::NoCounters(_)
            | Self::NoFlows(_)
            | Self::NotReady(_)
            | Self::RenderersNotReady(_)
            | Self::PodNotAdded(_)
            | Self::Stopping
            | Self::NodeBusy
            | Self::RendererBusy(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        (status, Json(json!({ "error": self.to_string() }))).into_response()
    }
}

pub(super) async fn no_such_path(uri: Uri) -> ApiError {
    ApiError::NotFound(format!("there is no {}; GET / lists the paths", uri.path()))
}

pub(super) async fn no_such_method(method: Method, uri: Uri) -> Response {
    let error = format!(
        "{} does not support {method}; GET / lists the paths",
        uri.path()
    );
    (
        StatusCode::METHOD_NOT_ALLOWED,
        Json(json!({ "error": error })),
    )
        .into_response()
}
