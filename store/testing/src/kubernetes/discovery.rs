//! What the server tells clients about itself: its version, its types, and which parameters it has.

use std::collections::BTreeMap;

use http::Response;
use serde_json::{Value, json};

use super::{
    resource::Resource,
    response::{Body, json_answer},
};

/// The version of Kubernetes whose answers it has.
const VERSION: &str = "v1.36.2";
const VERBS: [&str; 7] = [
    "create", "delete", "get", "list", "patch", "update", "watch",
];

/// The answer to a request for such a document; none if this is no path of one. `types` are the types that are there.
pub(super) fn answer(path: &str, types: &[Resource]) -> Option<Response<Body>> {
    let mut versions: BTreeMap<String, Vec<Resource>> = BTreeMap::new();
    for resource in types {
        versions
            .entry(resource.version_path())
            .or_default()
            .push(*resource);
    }
    let document = match path.trim_matches('/') {
        "version" => {
            json!({ "major": "1", "minor": "36", "gitVersion": VERSION, "platform": "linux/amd64" })
        }
        "api" => json!({ "kind": "APIVersions", "versions": ["v1"] }),
        "apis" => {
            let groups: Vec<Value> = versions.keys().filter_map(|path| group(path)).collect();
            json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
        }
        "openapi/v3" => {
            let link = |path: &String| {
                (
                    path.clone(),
                    json!({ "serverRelativeURL": format!("/openapi/v3/{path}") }),
                )
            };
            json!({ "paths": versions.keys().map(link).collect::<serde_json::Map<_, _>>() })
        }
        path => match path.strip_prefix("openapi/v3/") {
            Some(version) => parameters(version, versions.get(version)?),
            None => resource_list(versions.get(path)?),
        },
    };
    Some(json_answer(document.to_string()))
}

/// The group of a version's path; none for the one without a name.
fn group(path: &str) -> Option<Value> {
    let group_version = path.strip_prefix("apis/")?;
    let (name, version) = group_version.split_once('/')?;
    let version = json!({ "groupVersion": group_version, "version": version });
    Some(json!({ "name": name, "versions": [version], "preferredVersion": version }))
}

fn resource_list(types: &[Resource]) -> Value {
    let of_type = |resource: &Resource| {
        let short_names: Vec<&str> = Some(resource.short_name)
            .into_iter()
            .filter(|name| !name.is_empty())
            .collect();
        json!({
            "name": resource.plural, "singularName": resource.kind.to_lowercase(), "kind": resource.kind,
            "namespaced": resource.is_namespaced, "shortNames": short_names, "verbs": VERBS,
        })
    };
    let group_version = types.first().map(|resource| resource.api_version);
    let resources: Vec<Value> = types.iter().map(of_type).collect();
    json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources })
}

/// Of `OpenAPI` only what clients look up before they write: that the server validates fields itself.
fn parameters(version: &str, types: &[Resource]) -> Value {
    let of_type = |resource: &Resource| {
        let place = if resource.is_namespaced {
            "namespaces/{namespace}/"
        } else {
            ""
        };
        let (group, version) = resource
            .api_version
            .split_once('/')
            .unwrap_or(("", resource.api_version));
        let operation = json!({
            "parameters": [{ "name": "fieldValidation", "in": "query", "schema": { "type": "string" } }],
            "responses": {},
            "x-kubernetes-group-version-kind": { "group": group, "version": version, "kind": resource.kind },
        });
        let path = format!(
            "/{}/{place}{}/{{name}}",
            resource.version_path(),
            resource.plural
        );
        (path, json!({ "patch": operation, "put": operation }))
    };
    let paths: serde_json::Map<_, _> = types.iter().map(of_type).collect();
    json!({
        "openapi": "3.0.0", "info": { "title": version, "version": VERSION }, "paths": paths,
        "components": { "schemas": {} },
    })
}
