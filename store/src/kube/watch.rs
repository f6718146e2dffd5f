//! The watch of one resource type: a sequence of requests that each end after some minutes.

use std::{fmt::Write, time::Duration};

use contiv_proto::Key;
use futures::{Stream, stream};
use kube::core::Status;
use rand::RngExt;
use tokio::time::{Instant, timeout};

use super::{
    client::Client,
    failure::{Failure, is_gone, unavailable},
    history::confirm_version,
    object::{ReceivedObject, receive, version_of},
    query::escape,
    resource::Resource,
    watch_body::{WatchBody, WatchBodyError, WatchEvent},
};
use crate::{Inconsistency, StoreError};

/// The maximum duration of one request. Each asks for a random duration between half of this and this, as in client-go, so that
/// connections are redistributed over several servers from time to time.
const WATCH_TIMEOUT_SECONDS: u64 = 600;
/// A silent watch is opened again after this time, in case the server has forgotten it. Most servers send a bookmark each
/// minute; one with etcd 3.4 sends none for a quiet type.
const IDLE_TIMEOUT: Duration = Duration::from_millis(if cfg!(test) { 1200 } else { 150_000 });
/// A request that ends sooner and without an event is a failure, so that it is not repeated without pause.
const MIN_WATCH_DURATION: Duration = Duration::from_secs(1);
/// A watch that the server ends early is opened again after a random part of this. A server that stops ends the watches of all nodes
/// at the same moment, so the pause spreads their requests.
const MAX_RENEWAL_PAUSE: Duration = Duration::from_secs(1);

/// An event of the watch of one type.
#[derive(Debug)]
pub(super) struct ResourceEvent {
    pub(super) resource: Resource,
    /// The version up to which everything has been delivered.
    pub(super) version: String,
    pub(super) change: Option<WatchChange>,
}

/// A change of one object.
#[derive(Debug)]
pub(super) enum WatchChange {
    Put(ReceivedObject),
    Delete { key: String },
}

/// A running watch of one type.
pub(super) struct Watch {
    client: Client,
    resource: Resource,
    version: String,
    /// The store's revision, for errors.
    revision: i64,
    answer: WatchBody,
    opened: Instant,
    /// The end of the requested duration.
    deadline: Instant,
    /// Whether an event has arrived since `opened`.
    has_received: bool,
}

impl Watch {
    /// Starts a watch of the events after `version`. Checks that the server has reached that version, unless it has just listed it.
    pub(super) async fn open(
        client: Client,
        resource: Resource,
        version: String,
        revision: i64,
        is_just_listed: bool,
    ) -> Result<Self, StoreError> {
        let failed = |failure| error_of_watch(failure, &resource, revision);
        let opened = Instant::now();
        let (answer, duration) = request(&client, &resource, &version)
            .await
            .map_err(failed)?;
        if !is_just_listed {
            confirm_version(&client, &resource, &version)
                .await
                .map_err(failed)?;
        }
        let deadline = opened + duration;
        Ok(Self {
            client,
            resource,
            version,
            revision,
            answer,
            opened,
            deadline,
            has_received: false,
        })
    }

    /// The events, until something fails.
    pub(super) fn into_stream(
        self,
    ) -> impl Stream<Item = Result<ResourceEvent, StoreError>> + Send {
        stream::unfold(Some(self), async |watch| {
            let mut watch = watch?;
            match watch.next().await {
                Ok(event) => Some((Ok(event), Some(watch))),
                Err(error) => Some((Err(error), None)),
            }
        })
    }

    async fn next(&mut self) -> Result<ResourceEvent, StoreError> {
        loop {
            if let Some(event) = self.event().await? {
                self.has_received = true;
                return self.read(&event);
            }
            if !self.has_received && self.opened.elapsed() < MIN_WATCH_DURATION {
                let reason = format!(
                    "a watch of {} ends as soon as it begins",
                    self.resource.name()
                );
                return Err(unavailable(&self.client.endpoint, reason));
            }
            if Instant::now() < self.deadline {
                tokio::time::sleep(MAX_RENEWAL_PAUSE.mul_f64(rand::random())).await;
            }
            self.renew()
                .await
                .map_err(|failure| error_of_watch(failure, &self.resource, self.revision))?;
        }
    }

    /// Requests the events after the current version. The API server answers from its cache; if its etcd does not answer, the
    /// version is checked the next time.
    async fn renew(&mut self) -> Result<(), Failure> {
        self.opened = Instant::now();
        let (answer, duration) = request(&self.client, &self.resource, &self.version).await?;
        (self.answer, self.deadline, self.has_received) = (answer, self.opened + duration, false);
        match confirm_version(&self.client, &self.resource, &self.version).await {
            Err(rewound @ Failure::Store(StoreError::Rewound { .. })) => Err(rewound),
            _ => Ok(()),
        }
    }

    /// The next event; none when the request ends, or was silent for long.
    async fn event(&mut self) -> Result<Option<WatchEvent>, StoreError> {
        let Ok(event) = timeout(IDLE_TIMEOUT, self.answer.next()).await else {
            return Ok(None);
        };
        event.map_err(|error| match error {
            WatchBodyError::Lost(reason) => self.failed(&reason),
            WatchBodyError::NoEvent(reason) => self.unusable(reason),
        })
    }

    fn failed(&self, reason: &str) -> StoreError {
        unavailable(
            &self.client.endpoint,
            format!("a watch of {}: {reason}", self.resource.name()),
        )
    }

    /// The error of an event that cannot be used. The same would come again: a list goes past it.
    fn unusable(&self, reason: String) -> StoreError {
        let (inconsistency, key) = (Inconsistency::Unusable, Key::prefix(self.resource.kind));
        StoreError::Inconsistent {
            inconsistency,
            key,
            reason,
        }
    }

    /// Fails if an event is older than one before it: an object would go back to an earlier state.
    fn check_order(&self, version: &str, change: Option<&WatchChange>) -> Result<(), StoreError> {
        if version.is_empty() {
            return Err(self.unusable("an event has no resourceVersion".to_owned()));
        }
        // A version that is not a number cannot be compared.
        let (Ok(before), Ok(now)) = (self.version.parse::<i64>(), version.parse::<i64>()) else {
            return Ok(());
        };
        if now >= before {
            return Ok(());
        }
        let key = match change {
            Some(WatchChange::Put(received)) => received.key.clone(),
            Some(WatchChange::Delete { key }) => key.clone(),
            None => Key::prefix(self.resource.kind),
        };
        let reason = format!("version {now} of it came after version {before}");
        Err(StoreError::Inconsistent {
            inconsistency: Inconsistency::Order,
            key,
            reason,
        })
    }

    fn read(&mut self, event: &WatchEvent) -> Result<ResourceEvent, StoreError> {
        let failed = |reason: String| self.failed(&reason);
        let unusable = |reason: String| self.unusable(reason);
        let WatchEvent { event, object } = event;
        let receive = || receive(self.resource.kind, object);
        let (version, change) = match event.as_str() {
            "ADDED" | "MODIFIED" => {
                let received = receive().map_err(unusable)?;
                (received.version.clone(), Some(WatchChange::Put(received)))
            }
            "DELETED" => {
                let ReceivedObject { key, version, .. } = receive().map_err(unusable)?;
                (version, Some(WatchChange::Delete { key }))
            }
            "BOOKMARK" => (version_of(object).map_err(unusable)?, None),
            "ERROR" => {
                let status: Status =
                    serde_json::from_str(object).map_err(|error| failed(error.to_string()))?;
                return Err(if is_gone(&status) {
                    expired(self.revision)
                } else {
                    failed(status.message)
                });
            }
            other => return Err(unusable(format!("an event has the unknown type {other:?}"))),
        };
        self.check_order(&version, change.as_ref())?;
        self.version.clone_from(&version);
        Ok(ResourceEvent {
            resource: self.resource.clone(),
            version,
            change,
        })
    }
}

/// Requests a watch. Returns its answer, and the requested duration.
async fn request(
    client: &Client,
    resource: &Resource,
    version: &str,
) -> Result<(WatchBody, Duration), Failure> {
    let seconds = rand::rng().random_range(WATCH_TIMEOUT_SECONDS / 2..=WATCH_TIMEOUT_SECONDS);
    let mut query = format!("{}?", resource.path);
    resource.add_selectors(&mut query);
    let _ = write!(
        query,
        "watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={}",
        escape(version)
    );
    let answer = client.watch(resource, &query).await?;
    Ok((answer, Duration::from_secs(seconds)))
}

/// The error of a watch from this revision of the store.
pub(super) fn error_of(failure: Failure, revision: i64) -> StoreError {
    match failure {
        Failure::Gone | Failure::TooNew => expired(revision),
        Failure::Denied(denial) => denial.error,
        Failure::Store(error) => error,
    }
}

/// The error of the watch of one type. An optional type that is no longer there is listed again.
fn error_of_watch(failure: Failure, resource: &Resource, revision: i64) -> StoreError {
    match failure {
        Failure::Denied(_) if resource.is_optional() => expired(revision),
        failure => error_of(failure, revision),
    }
}

/// The API server no longer has the events since this revision.
pub(super) const fn expired(revision: i64) -> StoreError {
    StoreError::Compacted {
        requested: revision,
        oldest: revision + 1,
    }
}

#[cfg(test)]
mod tests;
