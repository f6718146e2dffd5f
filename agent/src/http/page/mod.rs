//! The pages for people: the state of the agent, a page for each service, and why a connection fails. They are whole without script;
//! with it they follow changes.

mod diagnosis;
mod flows;
mod layout;
mod live;
mod overview;
mod plot;
mod service;
mod services;

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Instant};

use axum::{
    Router,
    extract::{Path, Query as Arguments, State, rejection::QueryRejection},
    http::{HeaderMap, StatusCode},
    routing::get,
};
use contiv_model::ServiceId;
use contiv_node::metrics::ServiceSizes;
use contiv_node::{Core, Record};
use jiff::Timestamp;
use tokio::task::spawn_blocking;

use self::{
    diagnosis::FlowForm,
    layout::{Page, PageError},
    overview::Overview,
    service::{ServiceMention, ServiceView, read_flows},
    services::ListQuery,
};
use super::{
    Api,
    error::ApiError,
    history_query::HistoryQuery,
    loopback::FromLoopback,
    protection::refuse_foreign_site,
    views::bad_request,
    why::{READERS, diagnose_flow},
};
use crate::config::RendererName;

/// How many of the newest events a timeline shows.
const MAX_EVENTS: usize = 5000;
/// How many of the newest events of a service are shown.
const MAX_SERVICE_EVENTS: usize = 20;

/// The pages, and what they load.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/", get(page))
        .route("/page/services/{namespace}/{name}", get(service_page))
        .route("/page/why", get(why_page))
        .route("/page/flows", get(flows::flows_page))
        .route("/page/events", get(live::events))
        .route("/page/style.css", get(layout::style))
        .route("/page/script.js", get(layout::script))
}

/// `GET /`
async fn page(
    State(api): State<Api>,
    arguments: Result<Arguments<ListQuery>, QueryRejection>,
) -> Result<Page, PageError> {
    let Arguments(query) = arguments.map_err(bad_request)?;
    let now = Timestamp::now();
    let hours = query.hours();
    let events = HistoryQuery {
        since: Some(now.as_second().saturating_sub(i64::from(hours) * 3600)),
        ..HistoryQuery::default()
    };
    let attempts = api.attempts.recent().await;
    let forwarding_off = api.forwarding_off().await?;
    let table_problems = api.table_problems();
    // Of one moment, so that the parts agree.
    let ask = move |core: &Core| {
        let now_instant = Instant::now();
        let mut history = events.records(core, now_instant);
        let left_out = history.len().saturating_sub(MAX_EVENTS);
        history.drain(..left_out);
        let status = core.status();
        let oldest = if left_out > 0 {
            history.first()
        } else {
            // Nothing was forgotten if the very first event is there.
            core.history(now_instant)
                .next()
                .filter(|record| record.seq_num > 1)
        };
        Overview {
            remembered: oldest.map_or(status.started, |record| record.start),
            status,
            hours,
            forwarding_off,
            table_problems,
            sizes: ServiceSizes::of(core),
            renderers: core.renderers(now_instant),
            services: core.services(),
            unserved: core.unserved_services().collect(),
            attempts,
            quarantine: core.quarantine(0),
            warnings: core.warnings(0),
            history,
            now,
        }
    };
    Ok(api.query(ask).await?.render(&query))
}

/// `GET /page/services/NAMESPACE/NAME`
async fn service_page(
    State(api): State<Api>,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<Page, PageError> {
    let id = ServiceId::new(namespace, name);
    let now = Timestamp::now();
    let attempts = api.attempts.recent().await;
    let query = id.clone();
    let ask = move |core: &Core| {
        let is_of_it = |record: &&Record| record.services.contains(&query);
        let instant = Instant::now();
        let mut history: Vec<Record> = core.history(instant).filter(is_of_it).cloned().collect();
        history.drain(..history.len().saturating_sub(MAX_SERVICE_EVENTS));
        history.reverse();
        let failover = core.status().failover.unwrap_or_default();
        let (mut quarantine, mut warnings) = (core.quarantine(0), core.warnings(0));
        let status = core.status();
        let is_search_cut =
            quarantine.len() < status.quarantined || warnings.len() < status.warnings;
        quarantine.retain(|entry| ServiceMention::of(entry.object.as_deref(), &query).is_some());
        warnings.retain(|entry| ServiceMention::of(entry.object.as_deref(), &query).is_some());
        let renderers = core.renderers(instant);
        let runs_nftables = renderers
            .iter()
            .any(|renderer| &*renderer.name == RendererName::NFTABLES.as_str());
        let flows = if runs_nftables {
            Ok(Vec::new())
        } else {
            Err("the renderer nftables does not run".to_owned())
        };
        let service = core.service(&query);
        let unserved = if service.is_none() {
            core.unserved_services().find(|other| other.id == query)
        } else {
            None
        };
        ServiceView {
            service,
            unserved,
            places: core.endpoint_places(&query),
            attempts,
            refused: Vec::new(),
            flows,
            failing: failover
                .backends
                .into_iter()
                .filter(|it| it.service == query)
                .collect(),
            quarantine,
            warnings,
            is_search_cut,
            history,
            id: query,
            now,
        }
    };
    let mut view = api.query(ask).await?;
    if let Some(service) = view.service.clone().filter(|_| view.flows.is_ok()) {
        let counts = Arc::clone(&view.attempts.counts);
        let refused = api.counters.refused_of(service.clone(), counts).await;
        view.refused = refused.unwrap_or_default();
        view.flows = match Arc::clone(&READERS).try_acquire_owned() {
            Ok(permit) => spawn_blocking(move || {
                // It is held while the kernel is read, also for a caller that is gone.
                let _permit = permit;
                read_flows(&service)
            })
            .await
            .map_err(|error| ApiError::NoAnswer(error.to_string()))?,
            Err(_) => Err("others read the kernel just now; reload".to_owned()),
        };
    }
    let status = if view.is_unknown() {
        StatusCode::NOT_FOUND
    } else {
        StatusCode::OK
    };
    Ok(view.render().with_status(status))
}

/// `GET /page/why`: without arguments the form alone. Trying backends is restricted as in `GET /why`.
async fn why_page(
    State(api): State<Api>,
    local: Result<FromLoopback, ApiError>,
    headers: HeaderMap,
    arguments: Result<Arguments<FlowForm>, QueryRejection>,
) -> Result<Page, PageError> {
    let Arguments(form) = arguments.map_err(bad_request)?;
    if form.from.is_empty() && form.to.is_empty() {
        return Ok(diagnosis::page(&form, None, None));
    }
    // A link that was sent to somebody gives the rest of the answer.
    let not_probed = if form.probe.is_some() {
        local
            .and_then(|FromLoopback| refuse_foreign_site(&headers))
            .err()
    } else {
        None
    };
    match form.flow(&api).await {
        Ok(flow) => {
            let probes = form.probe.is_some() && not_probed.is_none();
            let answer = diagnose_flow(&api, flow, probes).await?;
            Ok(diagnosis::page(
                &form,
                Some(&Ok(answer)),
                not_probed.as_ref(),
            ))
        }
        Err(problem) => {
            Ok(diagnosis::page(&form, Some(&Err(problem)), None)
                .with_status(StatusCode::BAD_REQUEST))
        }
    }
}
