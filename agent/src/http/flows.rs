//! Connections through services.

use std::convert::Infallible;

use axum::{
    body::{Body, Bytes},
    extract::{Query as Arguments, State, rejection::QueryRejection},
    http::{HeaderMap, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use contiv_node::flows::{FlowFilter, FlowVerdict};
use futures::{StreamExt, stream};
use ipnetwork::IpNetwork;
use serde::Deserialize;

use super::{Api, error::ApiError, protection::refuse_foreign_site};
use crate::flows::Lines;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FlowsArguments {
    namespace: Option<String>,
    service: Option<String>,
    /// Addresses and ranges, separated by commas.
    client: Option<String>,
    verdict: Option<FlowVerdict>,
    /// After those that are there, tell of others until the caller ends it.
    #[serde(default)]
    follow: bool,
}

impl FlowsArguments {
    fn filter(&self) -> Result<FlowFilter, ApiError> {
        let clients = self.client.as_deref().unwrap_or_default();
        let ranges = clients.split(',').filter(|text| !text.is_empty());
        let clients = ranges
            .map(str::parse)
            .collect::<Result<Vec<IpNetwork>, _>>();
        Ok(FlowFilter {
            namespace: self.namespace.as_deref().map(Into::into),
            service: self.service.as_deref().map(Into::into),
            clients: clients.map_err(|error| ApiError::BadRequest(format!("client: {error}")))?,
            verdict: self.verdict,
        })
    }
}

/// `GET /flows`: lines of JSON.
pub(super) async fn flows(
    State(api): State<Api>,
    headers: HeaderMap,
    arguments: Result<Arguments<FlowsArguments>, QueryRejection>,
) -> Result<Response, ApiError> {
    // It costs time of the kernel, which pages of other sites may not cause.
    refuse_foreign_site(&headers)?;
    let Arguments(arguments) =
        arguments.map_err(|rejection| ApiError::BadRequest(rejection.body_text()))?;
    let filter = arguments.filter()?;
    let body = if arguments.follow {
        // What happens while the list is made comes after it.
        let lines = api.flows.watch(filter.clone());
        let lines = lines.await.map_err(ApiError::NoFlows)?;
        let list = api.flows.list(filter).await.map_err(ApiError::NoFlows)?;
        let list = stream::iter([Ok::<_, Infallible>(Bytes::from(list))]);
        let next = |mut lines: Lines| async move {
            let piece = lines.recv().await?;
            Some((Ok(piece), lines))
        };
        Body::from_stream(list.chain(stream::unfold(lines, next)))
    } else {
        api.flows
            .list(filter)
            .await
            .map_err(ApiError::NoFlows)?
            .into()
    };
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}
