//! Finds why a connection fails on this node.

use std::time::Instant;

use axum::{
    Json,
    extract::{Query as Arguments, State, rejection::QueryRejection},
    response::{IntoResponse, Response},
};
use contiv_node::{
    Core,
    diagnosis::{AgentState, Evidence, Target, diagnose},
};
use tokio::{sync::Semaphore, task::spawn_blocking};

use super::{
    Api,
    error::ApiError,
    trace::{FlowArguments, Format, explain, flow},
};
use crate::{config::RendererName, kernel_evidence};

/// How many callers read the kernel at the same time: a node may have many rules, and each reads them all.
static READERS: Semaphore = Semaphore::const_new(2);

/// `GET /why`: why a connection fails on this node.
pub(super) async fn why(
    State(api): State<Api>,
    arguments: Result<Arguments<FlowArguments>, QueryRejection>,
) -> Result<Response, ApiError> {
    let (flow, arguments) = flow(arguments, "why")?;
    let probes = arguments.probe && kernel_evidence::can_probe(flow.protocol());
    let flow = spawn_blocking(move || kernel_evidence::with_interface(flow))
        .await
        .map_err(|error| ApiError::NoAnswer(error.to_string()))?;
    let status = api.query(Core::status).await?;
    let (agent, explanation) = match explain(&api, &flow).await {
        Ok(explanation) => {
            let revision = status.revision;
            (AgentState::Runs { revision }, Some(explanation))
        }
        Err(ApiError::NotReady(_)) => {
            let reason = status.store_down.map_or_else(
                || format!("{} has not answered yet", status.store),
                |down| down.reason,
            );
            (AgentState::NotRead { reason }, None)
        }
        Err(error) => return Err(error),
    };
    let now = Instant::now();
    let renderers = api.query(move |core| core.renderers(now)).await?;
    let has_table = renderers
        .iter()
        .any(|renderer| &*renderer.name == RendererName::NFTABLES.as_str());
    let read_of = (flow.clone(), explanation.clone());
    let _permit = READERS
        .acquire()
        .await
        .map_err(|error| ApiError::NoAnswer(error.to_string()))?;
    let kernel = spawn_blocking(move || {
        let (flow, explanation) = read_of;
        kernel_evidence::read(&flow, explanation.as_ref(), has_table, probes)
    })
    .await
    .map_err(|error| ApiError::NoAnswer(error.to_string()))?;
    let diagnosis = diagnose(&Evidence {
        target: Target::Flow(flow),
        agent,
        explanation,
        kernel,
    });
    Ok(match arguments.format {
        Format::Json => Json(diagnosis).into_response(),
        Format::Text => diagnosis.to_string().into_response(),
    })
}
