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
use crate::flows::{Piece, Pieces};

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
    let bytes = |piece: Piece| Bytes::from(piece.to_lines());
    let body = if arguments.follow {
        // What happens while the list is made comes after it.
        let pieces = api.flows.watch(filter.clone());
        let pieces = pieces.await.map_err(ApiError::NoFlows)?;
        let list = api.flows.list(filter).await.map_err(ApiError::NoFlows)?;
        let list = stream::iter([Ok::<_, Infallible>(bytes(list))]);
        let next = move |mut pieces: Pieces| async move {
            let lines = bytes(pieces.recv().await?);
            // Before the next line JSON allows a space. That a silent reader has gone is noticed when something is sent to it.
            let is_alive = Bytes::from_static(b" ");
            Some((Ok(if lines.is_empty() { is_alive } else { lines }), pieces))
        };
        Body::from_stream(list.chain(stream::unfold(pieces, next)))
    } else {
        let list = api.flows.list(filter).await;
        bytes(list.map_err(ApiError::NoFlows)?).into()
    };
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}
