//! Tells pages that something has changed, by server-sent events. The pages then fetch themselves again.

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    extract::{Query as Arguments, State},
    http::HeaderMap,
    response::sse::{Event, Sse},
};
use contiv_node::{Core, RendererView};
use futures::stream::{self, Stream};
use serde::Deserialize;
use tokio::{sync::OwnedSemaphorePermit, time::sleep};

use super::super::{Api, error::ApiError, protection::refuse_foreign_site};

/// How often the state is compared: the shortest time between two messages.
const COMPARISON_INTERVAL: Duration = Duration::from_secs(1);
/// After so many comparisons there is a message anyway: counters grow, and ages too.
const COMPARISONS_WITHOUT_MESSAGE: u32 = 10;

/// What pages show, as far as a change of it is told at once.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Digest {
    events: u64,
    revision: i64,
    /// The state and revision of each renderer, its failures, and what differs in the kernel.
    renderers: Vec<(&'static str, i64, u32, usize)>,
    table_problems: usize,
    /// Of pages that show connections.
    flows: Option<u64>,
}

/// What a page follows besides.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
pub(super) struct EventsQuery {
    flows: bool,
}

/// The stream of one page.
struct Watcher {
    api: Api,
    query: EventsQuery,
    last: Digest,
    _permit: OwnedSemaphorePermit,
}

/// `GET /page/events`: a message when something has changed. A page of another site could occupy the places of those that watch.
pub(super) async fn events(
    State(api): State<Api>,
    headers: HeaderMap,
    Arguments(query): Arguments<EventsQuery>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    refuse_foreign_site(&headers)?;
    let permit = Arc::clone(&api.page_watchers).try_acquire_owned();
    let watcher = Watcher {
        last: digest(&api, query).await?,
        api,
        query,
        _permit: permit.map_err(|_| ApiError::TooManyRequests)?,
    };
    // The node's end ends it.
    let messages = stream::unfold(watcher, async |mut watcher| {
        let message = watcher.next_message().await?;
        Some((Ok(message), watcher))
    });
    Ok(Sse::new(messages))
}

impl Watcher {
    /// Waits for a change. None if the node does not answer any more.
    async fn next_message(&mut self) -> Option<Event> {
        let mut comparisons = 0;
        loop {
            sleep(COMPARISON_INTERVAL).await;
            let digest = digest(&self.api, self.query).await.ok()?;
            comparisons += 1;
            if digest != self.last || comparisons == COMPARISONS_WITHOUT_MESSAGE {
                let data = format!("{} {}", digest.events, digest.revision);
                self.last = digest;
                return Some(Event::default().data(data));
            }
        }
    }
}

async fn digest(api: &Api, query: EventsQuery) -> Result<Digest, ApiError> {
    let flows = query.flows.then(|| api.recent_flows.changes());
    let table_problems = api.table_problems().len();
    let ask = move |core: &Core| {
        let renderers = core.renderers(Instant::now()).into_iter();
        let renderer = |it: RendererView| {
            let drift = it.verification.map_or(0, |it| it.drift);
            (it.state, it.applied_revision, it.failures, drift)
        };
        Digest {
            events: core.events(),
            revision: core.status().revision,
            renderers: renderers.map(renderer).collect(),
            table_problems,
            flows,
        }
    };
    api.query(ask).await
}
