//! Finds why a connection fails on this node.

use std::{
    sync::{Arc, LazyLock},
    time::Instant,
};

use axum::{
    Json,
    extract::{Query as Arguments, State, rejection::QueryRejection},
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use contiv_model::Flow;
use contiv_node::{
    Core, Explanation,
    diagnosis::{AgentState, Diagnosis, Evidence, Target, diagnose},
};
use tokio::{sync::Semaphore, task::spawn_blocking};

use super::{
    Api,
    error::ApiError,
    loopback::FromLoopback,
    protection::refuse_foreign_site,
    trace::{FlowArguments, Format, explain, flow},
};
use crate::{config::RendererName, kernel_evidence};

/// How many callers read the kernel at the same time: a node may have many rules, and each reads them all.
pub(super) static READERS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(2)));

/// `GET /why`: why a connection fails on this node. Trying backends sends packets, so it is only for callers on this machine, and not for
/// pages of other sites.
pub(super) async fn why(
    State(api): State<Api>,
    local: Result<FromLoopback, ApiError>,
    headers: HeaderMap,
    arguments: Result<Arguments<FlowArguments>, QueryRejection>,
) -> Result<Response, ApiError> {
    let (flow, arguments) = flow(arguments, "why")?;
    if arguments.probe {
        local?;
        refuse_foreign_site(&headers)?;
    }
    let (diagnosis, _) = diagnose_flow(&api, flow, arguments.probe).await?;
    Ok(match arguments.format {
        Format::Json => Json(diagnosis).into_response(),
        Format::Text => diagnosis.to_string().into_response(),
    })
}

impl Api {
    /// Why a connection fails, as far as this node knows.
    ///
    /// # Errors
    /// When it cannot be found out now.
    pub(crate) async fn diagnose(&self, flow: Flow) -> Result<Diagnosis, String> {
        let diagnosed = diagnose_flow(self, flow, false).await;
        diagnosed
            .map(|(diagnosis, _)| diagnosis)
            .map_err(|error| error.to_string())
    }
}

/// Why a connection fails, and its outcome by the agent's state if that is known. With `probe` backends are tried.
pub(super) async fn diagnose_flow(
    api: &Api,
    flow: Flow,
    probe: bool,
) -> Result<(Diagnosis, Option<Explanation>), ApiError> {
    let probes = probe && kernel_evidence::can_probe(flow.protocol());
    let permit = Arc::clone(&READERS)
        .try_acquire_owned()
        .map_err(|_| ApiError::TooManyRequests)?;
    let flow = spawn_blocking(move || kernel_evidence::with_interface(flow))
        .await
        .map_err(|error| ApiError::NoAnswer(error.to_string()))?
        .map_err(|error| ApiError::BadRequest(error.to_string()))?;
    let status = api.query(Core::status).await?;
    let (agent, explanation) = match explain(api, &flow).await {
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
    let kernel = spawn_blocking(move || {
        // It is held while the kernel is read, also for a caller that is gone.
        let _permit = permit;
        let (flow, explanation) = read_of;
        kernel_evidence::read(&flow, explanation.as_ref(), has_table, probes)
    })
    .await
    .map_err(|error| ApiError::NoAnswer(error.to_string()))?;
    let diagnosis = diagnose(&Evidence {
        target: Target::Flow(flow),
        agent,
        explanation: explanation.clone(),
        kernel,
    });
    Ok((diagnosis, explanation))
}
