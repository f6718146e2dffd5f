//! The watches of the server.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::stream;
use http::Response;
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
    query::Query,
    resource::Resource,
    response::{Body, status, status_text, with_body},
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
    /// Whether it requests bookmarks.
    bookmarks: bool,
    until: Instant,
    is_over: bool,
}

pub(super) fn answer(
    shared: &Arc<Shared>,
    resource: Resource,
    query: Query,
    exchange: Arc<Exchange>,
) -> Response<Body> {
    let Ok(version) = query.version.parse() else {
        return status(400, "BadRequest", "this server wants the resourceVersion of a list");
    };
    let longest = shared.faults.lock().longest_watch;
    let wanted = query.timeout_seconds.map_or(DEFAULT_TIMEOUT, Duration::from_secs);
    let watch = Watch {
        shared: Arc::clone(shared),
        cluster: shared.cluster.subscribe(),
        resource,
        begun_at: version,
        version,
        bookmarks: query.bookmarks && !shared.faults.lock().silent.contains(resource.plural),
        until: Instant::now() + wanted.min(longest),
        is_over: false,
        query,
    };
    let frames = stream::unfold((watch, exchange), async |(mut watch, exchange)| {
        let lines = watch.next().await?;
        exchange.add_bytes(lines.len());
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from(lines))), (watch, exchange)))
    });
    with_body(StreamBody::new(frames).boxed_unsync())
}

impl Watch {
    /// The next lines; none at the end.
    async fn next(&mut self) -> Option<String> {
        while !self.is_over {
            let lines = self.news();
            if !lines.is_empty() {
                return Some(lines);
            }
            let interval = self.shared.faults.lock().bookmark_interval;
            tokio::select! {
                changed = self.cluster.changed() => changed.ok()?,
                () = sleep_until(self.until) => return None,
                () = tokio::time::sleep(interval), if self.bookmarks => {
                    // This type has no changes up to the current version.
                    self.version = self.version.max(self.cluster.borrow().version);
                    if self.version > self.begun_at {
                        return Some(self.bookmark());
                    }
                }
            }
        }
        None
    }

    /// The changes since the last call.
    fn news(&mut self) -> String {
        let cluster = self.cluster.borrow_and_update();
        let Some(happened) = cluster.after(self.resource, self.version) else {
            self.is_over = true;
            let message = format!("too old resource version: {} ({})", self.version, cluster.version);
            return line("ERROR", &status_text(410, "Expired", &message));
        };
        let mut lines = String::new();
        for one in happened {
            self.version = one.version;
            let is_selected =
                |json: &Option<Arc<str>>| json.as_ref().is_some_and(|json| self.query.selects(json));
            let ObjectChange { before, after, .. } = &one;
            let (event, json) = match (is_selected(before), is_selected(after)) {
                (false, false) => continue,
                (false, true) => ("ADDED", after),
                (true, true) => ("MODIFIED", after),
                (true, false) => ("DELETED", if after.is_some() { after } else { before }),
            };
            let json = with_version(json.as_deref().unwrap_or("{}"), one.version);
            lines.push_str(&line(event, &with_kind(self.resource, &json)));
        }
        lines
    }

    fn bookmark(&self) -> String {
        let object =
            json!({ "metadata": { "resourceVersion": self.version.to_string(), "creationTimestamp": null } });
        line("BOOKMARK", &with_kind(self.resource, &object.to_string()))
    }
}

fn line(event: &str, object: &str) -> String {
    format!("{{\"type\":\"{event}\",\"object\":{object}}}\n")
}
