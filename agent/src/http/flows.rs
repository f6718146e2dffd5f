//! Connections through services.

use std::{convert::Infallible, sync::Arc};

use axum::{
    body::{Body, Bytes},
    extract::{Query as Arguments, State, rejection::QueryRejection},
    http::{HeaderMap, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use contiv_node::flows::{FlowFilter, FlowVerdict};
use futures::{StreamExt, stream};
use ipnetwork::IpNetwork;
use serde::{
    Deserialize,
    de::{IntoDeserializer, value::Error as ValueError},
};

use super::{Api, error::ApiError, protection::refuse_foreign_site};
use crate::flows::{Piece, Pieces};

/// How many connections a list has; of more it has a sample.
const MAX_LISTED: usize = 4_096;

/// Which connections are asked for; by empty texts, all.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct FlowsArguments {
    pub(super) namespace: String,
    pub(super) service: String,
    /// Addresses and ranges, separated by commas.
    pub(super) client: String,
    pub(super) verdict: String,
    /// After those that are there, tell of others until the caller ends it.
    pub(super) follow: bool,
}

impl FlowsArguments {
    /// The filter that they are.
    ///
    /// # Errors
    /// When a text is none of its kind; it says which.
    pub(super) fn filter(&self) -> Result<FlowFilter, String> {
        let name = |text: &str| Some(text.trim().into()).filter(|name: &Arc<str>| !name.is_empty());
        let clients = self.client.split(',').map(str::trim);
        let clients = clients
            .filter(|text| !text.is_empty())
            .map(str::parse::<IpNetwork>);
        let clients: Result<Vec<IpNetwork>, _> = clients.collect();
        let verdict: Option<Result<FlowVerdict, ValueError>> = name(&self.verdict)
            .map(|name| FlowVerdict::deserialize(name.to_string().into_deserializer()));
        Ok(FlowFilter {
            namespace: name(&self.namespace),
            service: name(&self.service),
            clients: clients.map_err(|error| {
                format!(
                    "client: {error}; enter addresses or ranges, as in 10.244.1.5 or 10.244.1.0/24"
                )
            })?,
            verdict: verdict
                .transpose()
                .map_err(|error| format!("verdict: {error}"))?,
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
    let filter = arguments.filter().map_err(ApiError::BadRequest)?;
    let bytes = |piece: Piece| Bytes::from(piece.to_lines());
    let body = if arguments.follow {
        // What happens while the list is made comes after it.
        let pieces = api.flows.watch(filter.clone());
        let pieces = pieces.await.map_err(ApiError::NoFlows)?;
        let list = api
            .flows
            .list(filter, MAX_LISTED)
            .await
            .map_err(ApiError::NoFlows)?;
        let list = stream::iter([Ok::<_, Infallible>(bytes(list))]);
        let next = move |mut pieces: Pieces| async move {
            let lines = bytes(pieces.recv().await?);
            // Before the next line JSON allows a space. That a silent reader has gone is noticed when something is sent to it.
            let is_alive = Bytes::from_static(b" ");
            Some((Ok(if lines.is_empty() { is_alive } else { lines }), pieces))
        };
        Body::from_stream(list.chain(stream::unfold(pieces, next)))
    } else {
        let list = api.flows.list(filter, MAX_LISTED).await;
        bytes(list.map_err(ApiError::NoFlows)?).into()
    };
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}
