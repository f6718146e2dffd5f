//! The usage of services, from the kernel's counters.

use std::time::Instant;

use axum::{
    Json,
    extract::{Query as Arguments, State, rejection::QueryRejection},
};
use contiv_model::ServiceId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Api, error::ApiError};
use crate::{counters::ServiceConnections, metrics::ServiceSizes, node::Core};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CountersArguments {
    /// The maximum number of services: those with the most connections.
    top: Option<usize>,
}

/// Connections by service.
#[derive(Debug, Serialize)]
pub(super) struct CountersView {
    /// When the counters were read.
    at: Timestamp,
    /// The duration of reading them.
    took_ms: f64,
    /// New connections that no backend could serve, of all services.
    refused: u64,
    /// Services with connections, the most first.
    services: Vec<ServiceConnections>,
}

impl CountersView {
    /// Services with their served and refused connections.
    pub(super) fn connections(&self) -> Vec<(ServiceId, u64, u64)> {
        let services = self.services.iter();
        services.map(|usage| (usage.service.clone(), usage.connections, usage.refused)).collect()
    }
}

pub(super) async fn counters(
    State(api): State<Api>,
    arguments: Result<Arguments<CountersArguments>, QueryRejection>,
) -> Result<Json<CountersView>, ApiError> {
    let Arguments(CountersArguments { top }) =
        arguments.map_err(|rejection| ApiError::BadRequest(rejection.body_text()))?;
    read(&api, top).await.map(Json)
}

/// Reads the kernel's counters; only those of the `top` services if that is given.
pub(super) async fn read(api: &Api, top: Option<usize>) -> Result<CountersView, ApiError> {
    let services = api.query(Core::services).await?;
    let start = Instant::now();
    let mut services = api.counters.by_service(services).await.map_err(ApiError::NoCounters)?;
    let refused = services.iter().map(|usage| usage.refused).sum();
    services.truncate(top.unwrap_or(usize::MAX));
    Ok(CountersView {
        at: Timestamp::now(),
        took_ms: start.elapsed().as_secs_f64() * 1000.0,
        refused,
        services,
    })
}

pub(super) async fn sizes(State(api): State<Api>) -> Result<Json<ServiceSizes>, ApiError> {
    api.query(ServiceSizes::of).await.map(Json)
}
