//! How new connections are spread over backends.

use axum::{
    Json,
    extract::{Query as Arguments, State, rejection::QueryRejection},
    http::HeaderMap,
};
use serde::Deserialize;

use super::{Api, error::ApiError, protection::refuse_foreign_site};
use crate::balance::Balance;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BalanceArguments {
    namespace: Option<String>,
    service: Option<String>,
}

/// `GET /balance`: begins to count, or goes on.
pub(super) async fn balance(
    State(api): State<Api>,
    headers: HeaderMap,
    arguments: Result<Arguments<BalanceArguments>, QueryRejection>,
) -> Result<Json<Balance>, ApiError> {
    // New connections pay for it, which pages of other sites may not cause.
    refuse_foreign_site(&headers)?;
    let Arguments(arguments) =
        arguments.map_err(|rejection| ApiError::BadRequest(rejection.body_text()))?;
    let mut balance = api.balance.read().await.map_err(ApiError::NoCounters)?;
    let is = |wanted: &Option<String>, name: &str| wanted.as_ref().is_none_or(|it| it == name);
    balance.backends.retain(|share| {
        is(&arguments.namespace, &share.service.namespace)
            && is(&arguments.service, &share.service.name)
    });
    Ok(Json(balance))
}
