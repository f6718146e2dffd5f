//! Requests for one object, and those that change objects.

use http::{Method, Response};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::{
    cluster::Cluster,
    daemon_sets, decode,
    list::with_kind,
    patch,
    resource::Target,
    response::{Body, PROTOBUF, json_answer, status},
    shared::Shared,
};

/// A refusal: the code, the reason and the message of its `Status`.
type Refusal = (u16, &'static str, String);

/// The parts of such a request.
pub(super) struct ObjectRequest<'a> {
    pub(super) target: Target<'a>,
    pub(super) method: &'a Method,
    pub(super) query: &'a str,
    /// The header `Content-Type`.
    pub(super) media_type: &'a str,
    pub(super) body: &'a [u8],
}

pub(super) fn answer(shared: &Shared, request: &ObjectRequest<'_>) -> Response<Body> {
    let mut outcome = None;
    shared.cluster.send_if_modified(|cluster| {
        let version = cluster.version;
        outcome = Some(request.outcome(cluster));
        if cluster.version != version {
            daemon_sets::reconcile(cluster);
        }
        cluster.version != version
    });
    match outcome.unwrap_or_else(|| unreachable!("send_if_modified runs what it is given")) {
        Ok((code, text)) => {
            let mut response = json_answer(text);
            *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
            response
        }
        Err((code, reason, message)) => status(code, reason, &message),
    }
}

impl ObjectRequest<'_> {
    /// The code and the object of the answer.
    fn outcome(&self, cluster: &mut Cluster) -> Result<(u16, String), Refusal> {
        let Target { resource, name, .. } = self.target;
        let code = match (self.method, name) {
            (&Method::POST, None) => {
                let mut object = self.json()?;
                if object["metadata"]["name"].is_null() {
                    let prefix = object["metadata"]["generateName"]
                        .as_str()
                        .unwrap_or_default()
                        .to_owned();
                    object["metadata"]["name"] = format!("{prefix}{}", cluster.version).into();
                }
                let name = object["metadata"]["name"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                if self.stored(cluster, &name).is_some() {
                    let message = format!("{} \"{name}\" already exists", resource.plural);
                    return Err((409, "AlreadyExists", message));
                }
                if !object["metadata"]["resourceVersion"].is_null() {
                    let message = "resourceVersion should not be set on objects to be created";
                    return Err((400, "BadRequest", message.to_owned()));
                }
                self.store(cluster, object, None);
                return Ok((201, self.shown(cluster, &name)?));
            }
            (&Method::GET, Some(_)) => 200,
            (&Method::PUT, Some(name)) => {
                let before = self.found(cluster, name)?;
                let object = self.json()?;
                let version = &object["metadata"]["resourceVersion"];
                if !version.is_null() && *version != before["metadata"]["resourceVersion"] {
                    return Err((409, "Conflict", "the object has been modified".to_owned()));
                }
                self.store(cluster, object, Some(&before));
                200
            }
            (&Method::PATCH, Some(name)) => self.patch(cluster, name)?,
            (&Method::DELETE, Some(name)) => {
                self.found(cluster, name)?;
                let text = self.shown(cluster, name)?;
                cluster.delete(resource, self.namespace(), name);
                return Ok((200, text));
            }
            _ => {
                return Err((
                    405,
                    "MethodNotAllowed",
                    "this server does not do that".to_owned(),
                ));
            }
        };
        Ok((code, self.shown(cluster, name.unwrap_or_default())?))
    }

    fn patch(&self, cluster: &mut Cluster, name: &str) -> Result<u16, Refusal> {
        let before = self.stored(cluster, name);
        let patch = self.json()?;
        if self.media_type == "application/apply-patch+yaml" {
            let manager = self.parameter("fieldManager").unwrap_or_default();
            let applied_before = cluster.set_applied(
                (
                    self.target.resource,
                    self.namespace().to_owned(),
                    name.to_owned(),
                    manager,
                ),
                patch.clone(),
            );
            let mut object = before.clone().unwrap_or_else(|| json!({}));
            patch::apply(&mut object, &applied_before.unwrap_or_default(), &patch);
            self.store(cluster, object, before.as_ref());
            return Ok(if before.is_some() { 200 } else { 201 });
        }
        let before = self.found(cluster, name)?;
        let mut object = before.clone();
        match self.media_type {
            "application/merge-patch+json" => patch::merge(&mut object, patch),
            "application/strategic-merge-patch+json" => {
                patch::strategic_merge(&mut object, patch)
                    .map_err(|problem| (400, "BadRequest", problem))?;
            }
            other => {
                return Err((
                    415,
                    "UnsupportedMediaType",
                    format!("this server has no patches of type {other}"),
                ));
            }
        }
        self.store(cluster, object, Some(&before));
        Ok(200)
    }

    /// Stores an object with what the server sets itself. Nothing happens if it does not differ.
    fn store(&self, cluster: &mut Cluster, mut object: Value, before: Option<&Value>) {
        let metadata = &mut object["metadata"];
        if self.target.resource.is_namespaced {
            metadata["namespace"] = self.namespace().into();
        }
        for field in [
            "uid",
            "creationTimestamp",
            "generation",
            "resourceVersion",
            "managedFields",
        ] {
            metadata[field] =
                before.map_or(Value::Null, |before| before["metadata"][field].clone());
        }
        if let Some(before) = before {
            object["kind"] = before["kind"].clone();
            object["apiVersion"] = before["apiVersion"].clone();
            if object == *before {
                return;
            }
        }
        let is_same_spec = before.is_some_and(|before| before["spec"] == object["spec"]);
        let generation = before
            .and_then(|before| before["metadata"]["generation"].as_i64())
            .unwrap_or_default();
        object["metadata"]["generation"] = (generation + i64::from(!is_same_spec)).into();
        cluster.put(self.target.resource, object);
    }

    fn namespace(&self) -> &str {
        self.target.namespace.unwrap_or_default()
    }

    fn json(&self) -> Result<Value, Refusal> {
        if self.media_type == PROTOBUF {
            let message = "this server reads only secrets and pods in protobuf".to_owned();
            return decode::decode(self.body).ok_or((415, "UnsupportedMediaType", message));
        }
        // What clients apply is JSON, which is YAML too.
        serde_json::from_slice(self.body).map_err(|error| (400, "BadRequest", error.to_string()))
    }

    fn stored(&self, cluster: &Cluster, name: &str) -> Option<Value> {
        let json = cluster.object(self.target.resource, self.namespace(), name)?;
        serde_json::from_str(&with_kind(self.target.resource, &json)).ok()
    }

    fn found(&self, cluster: &Cluster, name: &str) -> Result<Value, Refusal> {
        let message = || format!("{} \"{name}\" not found", self.target.resource.plural);
        self.stored(cluster, name)
            .ok_or_else(|| (404, "NotFound", message()))
    }

    fn shown(&self, cluster: &Cluster, name: &str) -> Result<String, Refusal> {
        Ok(self.found(cluster, name)?.to_string())
    }

    fn parameter(&self, name: &str) -> Option<String> {
        let pairs = self
            .query
            .split('&')
            .filter_map(|pair| pair.split_once('='));
        let value = pairs
            .into_iter()
            .find_map(|(known, value)| (known == name).then_some(value))?;
        Some(percent_decode_str(value).decode_utf8_lossy().into_owned())
    }
}
