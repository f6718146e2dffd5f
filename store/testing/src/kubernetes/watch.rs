//! The watches of the server.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::stream;
use http::{HeaderValue, Response, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::json;
use tokio::{
    sync::watch::Receiver,
    time::{Instant, sleep_until},
};

use super::{
    cluster::{Cluster, ObjectChange, with_version},
    list::with_kind,
    protobuf,
    query::Query,
    resource::Resource,
    response::{Body, Encoding, status, status_text, with_body},
    shared::{Exchange, Shared},
};

/// The duration of a watch without a timeout.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1800);

struct Watch {
    shared: Arc<Shared>,
    cluster: Receiver<Cluster>,
    resource: Resource,
    query: Query,
    /// The version at which it began: no bookmark is sent before a later change.
    begun_at: i64,
    /// Everything up to this version has been sent.
    version: i64,
    /// The version of the cluster when changes were last searched for: this type has no others up to it.
    searched: i64,
    /// Whether it requests bookmarks.
    bookmarks: bool,
    is_protobuf: bool,
    until: Instant,
    is_over: bool,
}

pub(super) fn answer(
    shared: &Arc<Shared>,
    resource: Resource,
    query: Query,
    exchange: Arc<Exchange>,
    encoding: Encoding,
) -> Response<Body> {
    let is_protobuf = encoding.is_protobuf && protobuf::has(resource);
    let Ok(version) = query.version.parse() else {
        return status(
            400,
            "BadRequest",
            "this server wants the resourceVersion of a list",
        );
    };
    let longest = shared.faults.lock().longest_watch;
    let wanted = query
        .timeout_seconds
        .map_or(DEFAULT_TIMEOUT, Duration::from_secs);
    let watch = Watch {
        shared: Arc::clone(shared),
        cluster: shared.cluster.subscribe(),
        resource,
        begun_at: version,
        version,
        searched: version,
        bookmarks: query.bookmarks && !shared.faults.lock().silent.contains(resource.plural),
        is_protobuf,
        until: Instant::now() + wanted.min(longest),
        is_over: false,
        query,
    };
    let frames = stream::unfold((watch, exchange), async |(mut watch, exchange)| {
        let events = watch.next().await?;
        exchange.add_bytes(events.len());
        Some((
            Ok::<_, Infallible>(Frame::data(Bytes::from(events))),
            (watch, exchange),
        ))
    });
    let mut response = with_body(StreamBody::new(frames).boxed_unsync());
    if is_protobuf {
        let media_type =
            HeaderValue::from_static("application/vnd.kubernetes.protobuf;stream=watch");
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, media_type);
    }
    response
}

impl Watch {
    /// The next events as they are sent; none at the end.
    async fn next(&mut self) -> Option<Vec<u8>> {
        while !self.is_over {
            let events = self.news();
            if !events.is_empty() {
                return Some(events);
            }
            let interval = self.shared.faults.lock().bookmark_interval;
            tokio::select! {
                changed = self.cluster.changed() => changed.ok()?,
                () = sleep_until(self.until) => return None,
                () = tokio::time::sleep(interval), if self.bookmarks => {
                    // Not up to the current version: a change that has just come must still be sent.
                    self.version = self.version.max(self.searched);
                    if self.version > self.begun_at {
                        return Some(self.bookmark());
                    }
                }
            }
        }
        None
    }

    /// The changes since the last call.
    fn news(&mut self) -> Vec<u8> {
        let (resource, is_protobuf) = (self.resource, self.is_protobuf);
        let event = |event: &str, object: &str| event_of(resource, is_protobuf, event, object);
        if self
            .shared
            .faults
            .lock()
            .expired
            .remove(self.resource.plural)
        {
            self.is_over = true;
            return event("ERROR", &status_text(410, "Expired", "as this test wants"));
        }
        let false_events = self
            .shared
            .faults
            .lock()
            .events
            .remove(self.resource.plural);
        if let Some(false_events) = false_events {
            let object = |json: &str| with_kind(self.resource, json);
            return false_events
                .iter()
                .flat_map(|(name, json)| event(name, &object(json)))
                .collect();
        }
        let cluster = self.cluster.borrow_and_update();
        let Some(happened) = cluster.after(self.resource, self.version) else {
            self.is_over = true;
            let message = format!(
                "too old resource version: {} ({})",
                self.version, cluster.version
            );
            return event("ERROR", &status_text(410, "Expired", &message));
        };
        self.searched = cluster.version;
        let mut events = Vec::new();
        for one in happened {
            self.version = one.version;
            let is_selected = |json: &Option<Arc<str>>| {
                json.as_ref().is_some_and(|json| self.query.selects(json))
            };
            let ObjectChange { before, after, .. } = &one;
            let (name, json) = match (is_selected(before), is_selected(after)) {
                (false, false) => continue,
                (false, true) => ("ADDED", after),
                (true, true) => ("MODIFIED", after),
                (true, false) => ("DELETED", if after.is_some() { after } else { before }),
            };
            let json = with_version(json.as_deref().unwrap_or("{}"), one.version);
            events.extend(event(name, &with_kind(self.resource, &json)));
        }
        events
    }

    fn bookmark(&self) -> Vec<u8> {
        let object = json!({ "metadata": { "resourceVersion": self.version.to_string(), "creationTimestamp": null } });
        event_of(
            self.resource,
            self.is_protobuf,
            "BOOKMARK",
            &with_kind(self.resource, &object.to_string()),
        )
    }
}

/// An event as it is sent.
fn event_of(resource: Resource, is_protobuf: bool, event: &str, object: &str) -> Vec<u8> {
    if is_protobuf {
        return protobuf::event(resource, event, object);
    }
    format!("{{\"type\":\"{event}\",\"object\":{object}}}\n").into_bytes()
}
