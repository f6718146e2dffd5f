//! The usage of services, from the kernel's counters.

use std::{collections::BTreeMap, time::Instant};

use axum::{
    Json,
    extract::{Query as Arguments, State, rejection::QueryRejection},
};
use contiv_node::Core;
use contiv_node::metrics::ServiceSizes;
use contiv_renderer::nftables::counters::RefusalReason;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Api, error::ApiError};
use crate::counters::{RefusedConnections, ServiceConnections};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CountersArguments {
    /// The maximum number of services: those with the most attempts.
    top: Option<usize>,
}

/// Attempts to connect by service.
#[derive(Debug, Serialize)]
pub(super) struct CountersView {
    /// When the counters were read.
    at: Timestamp,
    /// The duration of reading them.
    took_ms: f64,
    /// Those that were refused, of all services.
    refused: u64,
    /// The refused ones by reason.
    refused_by: BTreeMap<RefusalReason, u64>,
    /// Services with attempts, the most first.
    pub(super) services: Vec<ServiceConnections>,
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
    let mut services = api
        .counters
        .by_service(services)
        .await
        .map_err(ApiError::NoCounters)?;
    let refused = services.iter().map(|usage| usage.refused).sum();
    let mut refused_by = BTreeMap::new();
    for (reason, count) in services.iter().flat_map(|usage| &usage.refused_by) {
        *refused_by.entry(*reason).or_default() += count;
    }
    services.truncate(top.unwrap_or(usize::MAX));
    Ok(CountersView {
        at: Timestamp::now(),
        took_ms: start.elapsed().as_secs_f64() * 1000.0,
        refused,
        refused_by,
        services,
    })
}

pub(super) async fn refused(
    State(api): State<Api>,
) -> Result<Json<Vec<RefusedConnections>>, ApiError> {
    let services = api.query(Core::services).await?;
    let refused = api.counters.refused(services).await;
    refused.map(Json).map_err(ApiError::NoCounters)
}

pub(super) async fn sizes(State(api): State<Api>) -> Result<Json<ServiceSizes>, ApiError> {
    api.query(ServiceSizes::of).await.map(Json)
}
