//! Watches changes after a revision, without a gap.

use std::{pin::pin, sync::Arc, time::Duration};

use etcd_client::{Error, GetOptions, ResponseHeader, WatchResponse};
use futures::{
    StreamExt,
    future::{Either, select},
    stream,
};
use tokio::time::{Instant, timeout};

use super::{
    failure::{self, Failure},
    history,
    key_range::KeyRanges,
    known::KnownPrefixes,
    replay::Replays,
    session::{MAX_RESPONSE_BYTES, Session, watch_options},
    watch_reader::{ALL_WATCHES, WatchReader},
};
use crate::{Batch, Position, StoreError, StoreIdentity, WatchEvent, WatchStream};

/// After so much time without a message the progress of a watch is requested,
const PROGRESS_REQUEST_DELAY: Duration = Duration::from_secs(3);
/// and counts as dead after so much more. A busy member takes a second or two.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// If such requests are never answered, as behind `etcd grpc-proxy`, the watch is opened again after this time.
const ANSWER_TIMEOUT_WITHOUT_PROGRESS: Duration = Duration::from_secs(27);

/// Opens a watch on all changes of `keys` after `position`: one on their prefix, so that they come in the order of their revisions.
pub(super) async fn watch(
    session: Session,
    known: Arc<KnownPrefixes>,
    keys: Arc<KeyRanges>,
    position: &Position,
) -> Result<WatchStream, Failure> {
    let (revision, prefix) = (position.revision(), &*keys.prefix);
    // Starts one revision early: after a compaction at the next one, etcd (3.4.23, for one) still accepts a watch from there,
    // but has forgotten the deletions of that revision. A watch from an earlier one is refused.
    let (responses, identity) = open(&session, &keys, position, revision.max(1)).await?;
    known.set_identity(identity);
    let taken = known.take(prefix, revision);
    let reader = WatchReader::new(taken, Arc::clone(&keys), revision);
    let replays = Replays::start(session.clone(), prefix.to_owned(), reader.window());
    let watch = Watch {
        session,
        known,
        reader,
        keys,
        responses,
        start: position.clone(),
        begins_early: true,
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
                    watch.reader.set_suspect();
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

/// Opens a watch for a reader who knows everything up to `position`. Returns what the store says of itself, too.
async fn open(
    session: &Session,
    keys: &KeyRanges,
    position: &Position,
    start: i64,
) -> Result<(etcd_client::WatchStream, Option<StoreIdentity>), Failure> {
    let prefix = &*keys.prefix;
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
    let identity = history::confirm(session, keys, position, newest).await?;
    Ok((responses, identity))
}

fn action(prefix: &str) -> String {
    format!("watch {prefix}")
}

struct Watch {
    session: Session,
    keys: Arc<KeyRanges>,
    responses: etcd_client::WatchStream,
    reader: WatchReader,
    /// Gets what the reader knows when this ends.
    known: Arc<KnownPrefixes>,
    /// The position of the reader when the watch began.
    start: Position,
    /// Whether the watch began at that position, and not after it.
    begins_early: bool,
}

impl Watch {
    async fn next(&mut self) -> Result<Batch, StoreError> {
        loop {
            let response = match self.response().await {
                Err(StoreError::TooLarge { .. }) if self.is_at_start() => {
                    self.begin_later().await?;
                    continue;
                }
                response => response?,
            };
            refuse_canceled(
                &self.session,
                &self.keys.prefix,
                &response,
                self.reader.revision(),
            )?;
            if let Some(batch) = self.reader.read(response.0)? {
                return Ok(batch);
            }
        }
    }

    /// True if a change that the reader has already may still come.
    fn is_at_start(&self) -> bool {
        self.begins_early && self.reader.revision() == self.start.revision()
    }

    /// Skips the change that the reader has already: it was too large then, and is so again.
    async fn begin_later(&mut self) -> Result<(), StoreError> {
        self.begins_early = false;
        // Nothing was missed if the preceding revision still exists, which is confirmed too.
        let start = self.start.revision() + 1;
        (self.responses, _) = open(&self.session, &self.keys, &self.start, start).await?;
        Ok(())
    }

    /// The next response. A stopped or partitioned member sends none.
    ///
    /// Time counts only while the reader waits here: a slow reader does not make a dead member.
    async fn response(&mut self) -> Result<WatchResponse, StoreError> {
        self.reader.start_waiting(Instant::now());
        let response = match timeout(PROGRESS_REQUEST_DELAY, self.responses.message()).await {
            Ok(response) => response,
            Err(_) => self.ask_for_progress().await?,
        };
        match response {
            Ok(Some(response)) => {
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
            Err(error) => Err(self
                .session
                .failure(&action(&self.keys.prefix), error)
                .into()),
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
            .put_back(&self.keys.prefix, self.reader.take_keys());
    }
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
