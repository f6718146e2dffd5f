//! Lists, complete or in pages.

use std::{ops::Bound, sync::Arc};

use http::Response;
use serde_json::Value;

use super::{
    cluster::{Cluster, Id, Objects},
    protobuf,
    query::{Query, VersionMatch},
    resource::Resource,
    response::{Body, Encoding, encoded, status, too_large_version},
    shared::Shared,
};

pub(super) fn answer(
    shared: &Shared,
    resource: Resource,
    query: &Query,
    encoding: Encoding,
) -> Response<Body> {
    let begun = query.continue_token.as_deref().map(parse_token);
    let is_cached =
        begun.is_none() && (query.version == "0" || query.version_match == VersionMatch::NotOlder);
    let has_cache = shared.faults.lock().has_cache;
    let (version, objects, after) = match begun {
        None if is_cached => {
            let cluster = shared.cluster.borrow();
            let cached = shared.cache.lock();
            let cached: &Cluster = cached.as_ref().unwrap_or(&cluster);
            if query
                .version
                .parse()
                .is_ok_and(|oldest: i64| oldest > cached.version)
            {
                return too_large_version(&query.version, cached.version);
            }
            (cached.version, Arc::new(cached.objects(resource)), None)
        }
        None if query.version_match == VersionMatch::Exact => {
            let Ok(version) = query.version.parse() else {
                return status(
                    400,
                    "BadRequest",
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                );
            };
            let cluster = shared.cluster.borrow();
            if version > cluster.version {
                let future = "etcdserver: mvcc: required revision is a future revision";
                return status(500, "InternalError", future);
            }
            match cluster.objects_at(resource, version) {
                Some(objects) => (version, Arc::new(objects), None),
                None => {
                    return status(
                        410,
                        "Expired",
                        "The resourceVersion for the provided list is too old",
                    );
                }
            }
        }
        None => {
            let cluster = shared.cluster.borrow();
            (cluster.version, Arc::new(cluster.objects(resource)), None)
        }
        Some(None) => return status(400, "BadRequest", "continue key is not valid"),
        Some(Some((version, last))) => match shared.cluster.borrow().page(resource, version) {
            Some(objects) => (version, objects, Some(last)),
            None => return status(410, "Expired", "The provided continue parameter is too old"),
        },
    };
    // A cache answers with everything.
    let limit = if is_cached && has_cache {
        0
    } else {
        query.limit
    };
    let (page, last) = page(&objects, query, limit, after);
    let left = last.as_ref().map_or(0, |last| {
        objects
            .range((Bound::Excluded(last), Bound::Unbounded))
            .count()
    });
    let mut metadata = serde_json::json!({ "resourceVersion": version.to_string() });
    if let Some(last) = last.filter(|_| left > 0) {
        metadata["continue"] = format!("{version}/{}/{}", last.0, last.1).into();
        metadata["remainingItemCount"] = left.into();
        if query.continue_token.is_none() {
            // Watchers are not notified of it.
            shared.cluster.send_if_modified(|cluster| {
                cluster.keep_page(resource, version, objects);
                false
            });
        }
    }
    let items: Vec<&str> = page.iter().map(AsRef::as_ref).collect();
    if encoding.is_protobuf && protobuf::has(resource) {
        return encoded(protobuf::list(resource, &metadata, &items), encoding);
    }
    let text = format!(
        r#"{{"kind":"{}List","apiVersion":"{}","metadata":{metadata},"items":[{}]}}"#,
        resource.kind,
        resource.api_version,
        items.join(",")
    );
    encoded(text.into_bytes(), encoding.without_protobuf())
}

/// The objects of one page, and the last one considered if there was a limit.
fn page(
    objects: &Objects,
    query: &Query,
    limit: usize,
    after: Option<Id>,
) -> (Vec<Arc<str>>, Option<Id>) {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let mut page = Vec::new();
    for (id, json) in objects.range((from, Bound::Unbounded)) {
        let is_of_namespace = query
            .namespace
            .as_ref()
            .is_none_or(|namespace| *namespace == id.0);
        if is_of_namespace && query.selects(json) {
            page.push(Arc::clone(json));
            if page.len() == limit {
                return (page, Some(id.clone()));
            }
        }
    }
    (page, None)
}

/// The version and the last object of the previous page. Opaque to clients.
fn parse_token(token: &str) -> Option<(i64, Id)> {
    let mut parts = token.splitn(3, '/');
    let version = parts.next()?.parse().ok()?;
    Some((
        version,
        (parts.next()?.to_owned(), parts.next()?.to_owned()),
    ))
}

/// An object in the form of a watch, with its `kind`.
pub(super) fn with_kind(resource: Resource, json: &str) -> String {
    let rest = json.strip_prefix('{').unwrap_or(json);
    format!(
        r#"{{"kind":{},"apiVersion":{},{rest}"#,
        Value::from(resource.kind),
        Value::from(resource.api_version)
    )
}
