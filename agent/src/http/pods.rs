//! Attaching pods to this node's dataplane, for programs that set up their interfaces, such as a CNI plugin.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::{
        Path, Query as Arguments, State,
        rejection::{JsonRejection, QueryRejection},
    },
    http::StatusCode,
};
use contiv_model::{InterfaceName, InterfacePattern, PodId};
use contiv_node::Input;
use contiv_proto::{Key, Kind};
use contiv_renderer::InterfaceKind;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Api, error::ApiError, loopback::FromLoopback, views::bad_request};
use crate::drivers::Request;

/// Longer waits would exceed the timeout of all requests.
const MAX_WAIT: Duration = Duration::from_secs(25);

/// A pod and its main interface on the node's side.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AttachRequest {
    namespace: String,
    name: String,
    interface: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AddArguments {
    wait: Option<String>,
}

pub(super) async fn list(State(api): State<Api>) -> Result<Json<Value>, ApiError> {
    let pods = api.query(|core| core.pods().clone()).await?;
    let pod =
        |(pod, interface): (PodId, InterfaceName)| json!({ "pod": pod, "interface": interface });
    Ok(Json(pods.into_iter().map(pod).collect()))
}

/// 202 at once; with `?wait=`, 200 when every renderer has applied it, or 503 when it was reverted.
pub(super) async fn add(
    _: FromLoopback,
    State(api): State<Api>,
    arguments: Result<Arguments<AddArguments>, QueryRejection>,
    body: Result<Json<AttachRequest>, JsonRejection>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let Arguments(AddArguments { wait }) = arguments.map_err(bad_request)?;
    let Json(AttachRequest {
        namespace,
        name,
        interface,
    }) = body.map_err(|error| ApiError::BadRequest(error.body_text()))?;
    let pod = pod_id(&namespace, &name)?;
    let is_name = interface
        .parse::<InterfacePattern>()
        .is_ok_and(|pattern| !pattern.is_prefix());
    if !is_name {
        return Err(ApiError::BadRequest(format!(
            "interface: {interface:?} is not the name of an interface"
        )));
    }
    let answer = json!({ "pod": pod, "interface": interface });
    let interface = InterfaceName::new(interface);
    if let Some(problem) = problem_with(&api, interface.clone()).await? {
        return Err(ApiError::BadRequest(format!(
            "interface: {problem}; name the one on the node's side of the pod, such as a veth"
        )));
    }
    let Some(wait) = wait else {
        send(
            &api,
            Request::Input(Input::AddPod {
                pod,
                interface,
                wait: None,
            }),
        )
        .await?;
        return Ok((StatusCode::ACCEPTED, Json(answer)));
    };
    let limit = humantime::parse_duration(&wait)
        .ok()
        .filter(|limit| *limit <= MAX_WAIT);
    let limit = limit.ok_or_else(|| {
        ApiError::BadRequest(format!(
            "wait: {wait:?} is not a duration up to {MAX_WAIT:?}, such as 5s"
        ))
    })?;
    let add = move |request| Input::AddPod {
        pod,
        interface,
        wait: Some((limit, request)),
    };
    let (request, result) = Request::answered(add);
    send(&api, request).await?;
    result.await.map_err(|_| ApiError::Stopping)??;
    Ok((StatusCode::OK, Json(answer)))
}

/// Why an interface cannot be that of a pod; none if it can.
async fn problem_with(api: &Api, interface: InterfaceName) -> Result<Option<String>, ApiError> {
    Ok(match (api.interface_kind)(&interface.0) {
        InterfaceKind::Missing => Some(format!("this node has no interface {}", interface.0)),
        InterfaceKind::Loopback => Some(format!(
            "{} is the loopback interface of this node",
            interface.0
        )),
        InterfaceKind::Other => {
            let name = Arc::clone(&interface.0);
            let is_external = api
                .query(move |core| core.is_external_interface(&interface))
                .await?;
            is_external
                .then(|| format!("{name} leads to the external network (external-interfaces)"))
        }
    })
}

pub(super) async fn delete(
    _: FromLoopback,
    State(api): State<Api>,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<Json<Value>, ApiError> {
    let pod = pod_id(&namespace, &name)?;
    let deleted = pod.clone();
    let (request, answer) = Request::answered(move |request| Input::DeletePod(deleted, request));
    send(&api, request).await?;
    if answer.await.map_err(|_| ApiError::Stopping)?? {
        Ok(Json(json!({ "pod": pod, "detached": true })))
    } else {
        Err(ApiError::NotFound(format!("pod {pod} is not attached")))
    }
}

/// In its stored form.
fn pod_id(namespace: &str, name: &str) -> Result<PodId, ApiError> {
    Key::new(Kind::Pod, namespace, name)
        .map_err(|error| ApiError::BadRequest(error.to_string()))?;
    Ok(PodId::new(namespace, name))
}

async fn send(api: &Api, request: Request) -> Result<(), ApiError> {
    api.requests
        .send(request)
        .await
        .map_err(|_| ApiError::Stopping)
}
