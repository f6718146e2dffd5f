//! How new connections are spread over backends.

use axum::{
    Json,
    extract::{Query as Arguments, State, rejection::QueryRejection},
    http::HeaderMap,
};
use contiv_model::ServiceId;
use serde::Deserialize;

use super::{Api, error::ApiError, protection::refuse_foreign_site};
use crate::balance::Balance;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BalanceArguments {
    namespace: Option<String>,
    service: Option<String>,
    /// Count anew from now on.
    #[serde(default)]
    restart: bool,
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
    let BalanceArguments {
        namespace,
        service,
        restart,
    } = arguments;
    let is = |wanted: &Option<String>, name: &str| wanted.as_ref().is_none_or(|it| it == name);
    let is_wanted = move |id: &ServiceId| is(&namespace, &id.namespace) && is(&service, &id.name);
    let balance = api.balance.read(restart, is_wanted).await;
    balance.map(Json).map_err(ApiError::NoCounters)
}
