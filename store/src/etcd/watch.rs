//! Watches changes after a revision, without a gap.

use std::{pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use etcd_client::{Error, GetOptions, ResponseHeader, WatchResponse, proto::PbEvent};
use futures::{
    StreamExt,
    future::{Either, select},
    stream,
};
use tokio::time::{Instant, timeout};

use super::{
    failure::{self, Failure},
    history,
    key_text::key_text,
    known::{DELETE, KnownKeys, KnownPrefixes},
    replay::Replays,
    session::{MAX_RESPONSE_BYTES, Session, watch_options},
};
use crate::{Batch, Change, Entry, Position, StoreError, WatchEvent, WatchStream};

/// The `watch_id` of an answer to a request for progress.
const ALL_WATCHES: i64 = -1;
/// After so much time without a message the progress of a watch is requested,
const PROGRESS_REQUEST_DELAY: Duration = Duration::from_secs(3);
/// and counts as dead after so much more. A busy member takes a second or two.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// If such requests are never answered, as behind `etcd grpc-proxy`, the watch is opened again after this time.
const ANSWER_TIMEOUT_WITHOUT_PROGRESS: Duration = Duration::from_secs(27);
/// To a lagging watch etcd sends up to a thousand revisions in one response, in fragments. Complete revisions are delivered
/// once they have this many bytes.
const MAX_BATCH_BYTES: usize = 4 << 20;

/// Opens a watch on all changes below `prefix` after `position`.
pub(super) async fn watch(
    session: Session,
    known: Arc<KnownPrefixes>,
    prefix: &str,
    position: &Position,
) -> Result<WatchStream, Failure> {
    let revision = position.revision();
    // Starts one revision early: after a compaction at the next one, etcd (3.4.23, for one) still accepts a watch from there,
    // but has forgotten the deletions of that revision. A watch from an earlier one is refused.
    let responses = open(&session, prefix, position, revision.max(1)).await?;
    let keys = known.take(prefix, revision);
    let replays = Replays::start(session.clone(), prefix.to_owned(), Arc::clone(&keys.window));
    let watch = Watch {
        session,
        known,
        keys,
        prefix: prefix.to_owned(),
        responses,
        start: position.clone(),
        begins_early: true,
        revision,
        begun: Vec::new(),
    };
    Ok(
        stream::try_unfold((watch, replays), |(mut watch, mut replays)| async move {
            let next = tokio::select! {
                biased;
                next = watch.next() => next,
                difference = replays.difference() => Err(difference),
            };
            let batch = next.inspect_err(|error| {
                if matches!(error, StoreError::Inconsistent { .. }) {
                    watch.keys.set_suspect();
                }
                // Another member may not lie.
                if matches!(
                    error,
                    StoreError::Unavailable { .. } | StoreError::Inconsistent { .. }
                ) {
                    watch.session.give_up();
                }
            })?;
            Ok(Some((WatchEvent::Changed(batch), (watch, replays))))
        })
        .boxed(),
    )
}

/// Opens a watch for a reader who knows everything up to `position`.
async fn open(
    session: &Session,
    prefix: &str,
    position: &Position,
    start: i64,
) -> Result<etcd_client::WatchStream, Failure> {
    let options = watch_options(prefix, start).with_progress_notify();
    let mut client = session.watches();
    let action = action(prefix);
    let mut responses = session
        .request(&action, client.watch(prefix, Some(options)))
        .await?;

    let created = session
        .request(&action, responses.message())
        .await?
        .ok_or_else(|| session.unavailable("the watch was closed before it began".to_owned()))?;
    refuse_canceled(session, prefix, &created, position.revision())?;
    let newest = created.header().map_or(0, ResponseHeader::revision);
    // After opening: a store that is replaced later ends the watch.
    history::confirm(session, prefix, position, newest).await?;
    Ok(responses)
}

fn action(prefix: &str) -> String {
    format!("watch {prefix}")
}

struct Watch {
    session: Session,
    prefix: String,
    responses: etcd_client::WatchStream,
    /// What is known of all keys.
    keys: KnownKeys,
    /// Gets them when this ends.
    known: Arc<KnownPrefixes>,
    /// The position of the reader when the watch began; changes up to here are not delivered.
    start: Position,
    /// Whether the watch began at that position, and not after it.
    begins_early: bool,
    /// The newest revision that was delivered.
    revision: i64,
    /// The first events of an incomplete revision.
    begun: Vec<PbEvent>,
}

impl Watch {
    async fn next(&mut self) -> Result<Batch, StoreError> {
        let mut events = std::mem::take(&mut self.begun);
        loop {
            let response = match self.response().await {
                Err(StoreError::TooLarge { .. }) if self.is_at_start() => {
                    self.begin_later().await?;
                    continue;
                }
                response => response?,
            };
            refuse_canceled(&self.session, &self.prefix, &response, self.revision)?;
            let response = response.0;
            if response.watch_id == ALL_WATCHES {
                // It is alive. The revision is ignored: etcd before 3.4.25 and 3.5.8 sends it ahead of the changes up to it
                // (etcd-io/etcd#15220), and a watch that begins after it would miss them.
                continue;
            }
            if response.events.is_empty() && events.is_empty() {
                // A progress notification: everything up to this revision has been sent.
                self.revision = response
                    .header
                    .map_or(0, |header| header.revision)
                    .max(self.revision);
                self.keys.advance(self.revision);
                return Ok(Batch {
                    revision: self.revision,
                    changes: Vec::new(),
                });
            }
            self.keys.check_order(&response.events)?;
            let known = self.start.revision();
            events.extend(
                response
                    .events
                    .into_iter()
                    .filter(|event| revision_of(event) > known),
            );
            if response.fragment {
                self.begun = unfinished(&mut events);
                if events.is_empty() {
                    events = std::mem::take(&mut self.begun);
                    continue;
                }
            }
            if let Some(newest) = events.last() {
                self.revision = revision_of(newest).max(self.revision);
                events
                    .iter()
                    .try_for_each(|event| self.keys.follow(event))?;
                self.keys.advance(self.revision);
                let changes = events.into_iter().filter_map(change).collect();
                return Ok(Batch {
                    revision: self.revision,
                    changes,
                });
            }
        }
    }

    /// True if a change that the reader has already may still come.
    fn is_at_start(&self) -> bool {
        self.begins_early && self.revision == self.start.revision()
    }

    /// Skips the change that the reader has already: it was too large then, and is so again.
    async fn begin_later(&mut self) -> Result<(), StoreError> {
        self.begins_early = false;
        // Nothing was missed if the preceding revision still exists, which is confirmed too.
        self.responses = open(
            &self.session,
            &self.prefix,
            &self.start,
            self.start.revision() + 1,
        )
        .await?;
        Ok(())
    }

    /// The next response. A stopped or partitioned member sends none.
    ///
    /// Time counts only while the reader waits here: a slow reader does not make a dead member.
    async fn response(&mut self) -> Result<WatchResponse, StoreError> {
        self.keys.window.lock().start_waiting(Instant::now());
        let response = match timeout(PROGRESS_REQUEST_DELAY, self.responses.message()).await {
            Ok(response) => response,
            Err(_) => self.ask_for_progress().await?,
        };
        match response {
            Ok(Some(response)) => {
                if !response.events().is_empty() {
                    self.keys.window.lock().stop_waiting();
                }
                // A concurrent change is not the answer.
                if response.watch_id() == ALL_WATCHES {
                    self.session.progress_answered();
                }
                Ok(response)
            }
            Ok(None) => Err(self.session.unavailable("the watch was closed".to_owned())),
            Err(error) if failure::is_too_large(&error) => Err(StoreError::TooLarge {
                limit: MAX_RESPONSE_BYTES,
            }),
            Err(error) => Err(self.session.failure(&action(&self.prefix), error).into()),
        }
    }

    /// The first response after a request for progress. A member that may not answer such requests gets another request too;
    /// one that never answered may answer this one.
    async fn ask_for_progress(
        &mut self,
    ) -> Result<Result<Option<WatchResponse>, Error>, StoreError> {
        let session = self.session.clone();
        let answers_progress = session.answers_progress();
        let answer_timeout = match answers_progress {
            Some(false) => ANSWER_TIMEOUT_WITHOUT_PROGRESS,
            _ => ANSWER_TIMEOUT,
        };
        let silence = PROGRESS_REQUEST_DELAY + answer_timeout;
        let response = pin!(timeout(answer_timeout, async {
            self.responses.request_progress().await?;
            self.responses.message().await
        }));
        let probe = pin!(timeout(ANSWER_TIMEOUT, async {
            answers_progress.is_none()
                && session
                    .probe(GetOptions::new().with_serializable())
                    .await
                    .is_ok()
        }));
        let (response, is_alive) = match select(response, probe).await {
            Either::Left((Ok(response), _)) => return Ok(response),
            Either::Left((silent, probe)) => (silent, probe.await),
            Either::Right((is_alive, response)) => (response.await, is_alive),
        };
        match response {
            Ok(response) => Ok(response),
            Err(_) if answers_progress == Some(false) => Err(session.silent(silence)),
            Err(_) if is_alive == Ok(true) => {
                session.progress_unanswered();
                Err(session.silent(silence))
            }
            Err(_) => {
                Err(session.unavailable(format!("the watch has sent nothing for {silence:?}")))
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.known
            .put_back(&self.prefix, std::mem::take(&mut self.keys));
    }
}

/// Takes out the events that must wait for the next fragment: all, or if there are many, those of the newest revision.
fn unfinished(events: &mut Vec<PbEvent>) -> Vec<PbEvent> {
    let size = |event: &PbEvent| {
        event
            .kv
            .as_ref()
            .map_or(0, |pair| pair.key.len() + pair.value.len())
    };
    if events.iter().map(size).sum::<usize>() < MAX_BATCH_BYTES {
        return std::mem::take(events);
    }
    let newest = events.last().map_or(0, revision_of);
    events.split_off(events.partition_point(|event| revision_of(event) < newest))
}

fn revision_of(event: &PbEvent) -> i64 {
    event.kv.as_ref().map_or(0, |pair| pair.mod_revision)
}

fn change(event: PbEvent) -> Option<Change> {
    let pair = event.kv?;
    let key = key_text(pair.key);
    Some(if event.r#type == DELETE {
        Change::Delete { key }
    } else {
        let (create_revision, mod_revision) = (pair.create_revision, pair.mod_revision);
        Change::Put(Entry {
            key,
            value: Bytes::from(pair.value),
            create_revision,
            mod_revision,
        })
    })
}

fn refuse_canceled(
    session: &Session,
    prefix: &str,
    response: &WatchResponse,
    revision: i64,
) -> Result<(), Failure> {
    if !response.canceled() {
        return Ok(());
    }
    Err(
        match (response.compact_revision(), response.cancel_reason()) {
            (oldest, _) if oldest > 0 => StoreError::Compacted {
                requested: revision + 1,
                oldest,
            }
            .into(),
            (_, reason) if failure::may_need_login(reason) => Failure::LoginRequired {
                action: action(prefix),
                reason: reason.to_owned(),
            },
            (_, reason) => session
                .unavailable(format!("the watch was canceled: {reason}"))
                .into(),
        },
    )
}
