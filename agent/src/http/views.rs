//! Handlers that answer with the agent's state and history, as JSON or text.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use axum::{
    Json,
    extract::{Path, Query as Arguments, State, rejection::QueryRejection},
    response::{IntoResponse, Response},
};
use contiv_model::{
    ContivService, Object, ServiceId, Snapshot, UnservedService,
    object::ObjectKind,
    processor::NodeView,
    wire::{object_kind, stored_key},
};
use contiv_node::{Core, Quarantined, RendererView, Status, Warning};
use contiv_proto::Kind;
use contiv_renderer::{ForwardingOff, shared_tables::TableProblem};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::{Api, api::ANSWER_LIMIT, error::ApiError, history_query::HistoryQuery};
use crate::{drivers::Request, health::HealthCheckView};

/// The status, and the settings of the machine that it needs.
#[derive(Debug, Serialize)]
pub(super) struct StatusView {
    #[serde(flatten)]
    status: Status,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    forwarding_off: Vec<ForwardingOff>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    table_problems: Vec<TableProblem>,
}

pub(super) async fn status(State(api): State<Api>) -> Result<Json<StatusView>, ApiError> {
    let status = api.query(Core::status).await?;
    Ok(Json(StatusView {
        status,
        forwarding_off: api.forwarding_off().await?,
        table_problems: api.table_problems(),
    }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServicesArguments {
    /// Also the stored services that are not served.
    #[serde(default)]
    all: bool,
}

/// A stored service in a list.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum ListedService {
    Served(Arc<ContivService>),
    NotServed(UnservedService),
}

impl ListedService {
    fn id(&self) -> &ServiceId {
        match self {
            Self::Served(service) => &service.id,
            Self::NotServed(service) => &service.id,
        }
    }
}

pub(super) async fn services(
    State(api): State<Api>,
    arguments: Result<Arguments<ServicesArguments>, QueryRejection>,
) -> Result<Json<Vec<ListedService>>, ApiError> {
    let Arguments(ServicesArguments { all }) = arguments.map_err(bad_request)?;
    let query = move |core: &Core| {
        let unserved: Vec<_> = core.unserved_services().filter(|_| all).collect();
        (core.services(), unserved)
    };
    let (served, unserved) = api.query(query).await?;
    let served = served.into_iter().map(ListedService::Served);
    let mut services: Vec<_> = served
        .chain(unserved.into_iter().map(ListedService::NotServed))
        .collect();
    services.sort_by(|one, other| one.id().cmp(other.id()));
    Ok(Json(services))
}

pub(super) async fn service(
    State(api): State<Api>,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<Json<Arc<ContivService>>, ApiError> {
    let id = ServiceId::new(namespace, name);
    let query = {
        let id = id.clone();
        move |core: &Core| {
            core.service(&id)
                .ok_or_else(|| core.unserved_services().find(|other| other.id == id))
        }
    };
    let hint = |unserved: Option<UnservedService>| match unserved {
        Some(unserved) => unserved.not_served.to_string(),
        None => "it is not stored, or cannot be used (see /quarantine)".to_owned(),
    };
    let found = api.query(query).await?;
    found.map(Json).map_err(|unserved| {
        ApiError::NotFound(format!(
            "renderers have no service {id}: {}",
            hint(unserved)
        ))
    })
}

pub(super) async fn snapshot(State(api): State<Api>) -> Result<Json<Snapshot>, ApiError> {
    let snapshot = api.query(Core::snapshot).await?;
    snapshot
        .map(Json)
        .ok_or(ApiError::NotReady("the store has not been read yet"))
}

pub(super) async fn configuration(State(api): State<Api>) -> String {
    api.configuration.to_string()
}

pub(super) async fn objects(
    State(api): State<Api>,
    Path(word): Path<String>,
) -> Result<Json<Vec<Object>>, ApiError> {
    let kind: Kind = word
        .parse()
        .map_err(|error| ApiError::NotFound(format!("{error}")))?;
    let kind = object_kind(kind).ok_or_else(|| {
        ApiError::NotFound(format!(
            "the agent keeps no {kind}s: nothing depends on them"
        ))
    })?;
    api.query(move |core| core.objects(kind)).await.map(Json)
}

/// All stored objects in their state in use, by their keys, at one moment.
#[derive(Debug, Serialize)]
pub(super) struct AllObjects {
    /// The revision of the store.
    revision: i64,
    objects: BTreeMap<String, Object>,
}

pub(super) async fn all_objects(State(api): State<Api>) -> Result<Json<AllObjects>, ApiError> {
    let query = |core: &Core| {
        let status = core.status();
        let objects = ObjectKind::ALL
            .into_iter()
            .flat_map(|kind| core.objects(kind));
        status
            .synced
            .then(|| (status.revision, objects.collect::<Vec<_>>()))
    };
    let Some((revision, objects)) = api.query(query).await? else {
        return Err(ApiError::NotReady("the store has not been read yet"));
    };
    let by_key = |object: Object| Some((stored_key(&object.key())?.to_path(), object));
    let objects = objects.into_iter().filter_map(by_key).collect();
    Ok(Json(AllObjects { revision, objects }))
}

pub(super) async fn nodes(State(api): State<Api>) -> Result<Json<Vec<NodeView>>, ApiError> {
    api.query(Core::nodes).await.map(Json)
}

pub(super) async fn renderers(State(api): State<Api>) -> Result<Json<Vec<RendererView>>, ApiError> {
    api.query(|core| core.renderers(Instant::now()))
        .await
        .map(Json)
}

pub(super) async fn health_checks(
    State(api): State<Api>,
) -> Result<Json<Vec<HealthCheckView>>, ApiError> {
    let (reply, answer) = oneshot::channel();
    // Without a timeout: the health-check server never blocks, and only ends with the agent.
    api.health_checks
        .send(reply)
        .await
        .map_err(|_| ApiError::Stopping)?;
    answer.await.map(Json).map_err(|_| ApiError::Stopping)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SkipArguments {
    #[serde(default)]
    skip: usize,
}

pub(super) async fn quarantine(
    State(api): State<Api>,
    arguments: Result<Arguments<SkipArguments>, QueryRejection>,
) -> Result<Json<Vec<Quarantined>>, ApiError> {
    let Arguments(SkipArguments { skip }) = arguments.map_err(bad_request)?;
    api.query(move |core| core.quarantine(skip)).await.map(Json)
}

pub(super) async fn warnings(
    State(api): State<Api>,
    arguments: Result<Arguments<SkipArguments>, QueryRejection>,
) -> Result<Json<Vec<Warning>>, ApiError> {
    let Arguments(SkipArguments { skip }) = arguments.map_err(bad_request)?;
    api.query(move |core| core.warnings(skip)).await.map(Json)
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    #[default]
    Text,
    Json,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DumpArguments {
    #[serde(default)]
    format: Format,
}

pub(super) async fn dump(
    State(api): State<Api>,
    Path(name): Path<String>,
    arguments: Result<Arguments<DumpArguments>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Arguments(DumpArguments { format }) = arguments.map_err(bad_request)?;
    let (reply, description) = oneshot::channel();
    let (exists_reply, exists) = oneshot::channel();
    if !api
        .request(Request::Describe(name.clone(), exists_reply, reply), exists)
        .await?
    {
        return Err(ApiError::NotFound(format!(
            "no renderer {name:?} runs here; see /renderers"
        )));
    }
    let Ok(Ok(description)) = tokio::time::timeout(ANSWER_LIMIT, description).await else {
        return Err(ApiError::RendererBusy(name));
    };
    Ok(match format {
        Format::Text => description.text.into_response(),
        Format::Json => Json(description).into_response(),
    })
}

pub(super) async fn history(
    State(api): State<Api>,
    arguments: Result<Arguments<HistoryQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Arguments(query) = arguments.map_err(bad_request)?;
    let records = api
        .query(move |core| query.records(core, Instant::now()))
        .await?;
    match (query.seq_num, records.first()) {
        (None, _) => Ok(Json(records).into_response()),
        (Some(_), Some(record)) => Ok(Json(record).into_response()),
        (Some(number), None) => Err(ApiError::NotFound(format!(
            "the history holds no event {number}: not yet, or no longer"
        ))),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as an argument of map_err")]
pub(super) fn bad_request(rejection: QueryRejection) -> ApiError {
    ApiError::BadRequest(rejection.body_text())
}
