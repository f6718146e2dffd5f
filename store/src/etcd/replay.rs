//! Compares the changes of the last minute with etcd's history, while they are watched.
//!
//! A second watch begins at a revision of a minute ago: etcd reads these changes from its database, another way than that of
//! new ones. It costs one more delivery of each change. A count of all keys would cost etcd 45 ms for 200,000 keys.

use std::{ops::Range, sync::Arc, time::Duration};

use parking_lot::Mutex;
use rand::RngExt;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tracing::debug;

use super::{
    session::{Session, watch_options},
    window::{LINGER_TIME, ReplayStep, Window},
};
use crate::StoreError;

/// The pause between two replays, random so that those of many nodes are spread.
pub(super) const REPLAY_PAUSE: Range<Duration> = Duration::from_secs(30)..Duration::from_secs(40);
/// How long after a replay the watch may take to deliver the same change.
pub(super) const DELIVERY_LIMIT: Duration = Duration::from_secs(5);

/// Replays changes until it is dropped.
pub(super) struct Replays(JoinSet<StoreError>);

impl Replays {
    /// Begins to compare what is watched below `prefix`.
    pub(super) fn start(session: Session, prefix: String, window: Arc<Mutex<Window>>) -> Self {
        let mut task = JoinSet::new();
        task.spawn(async move {
            loop {
                let pause = rand::rng().random_range(REPLAY_PAUSE);
                sleep(pause).await;
                match replay(&session, &prefix, &window).await {
                    Err(error @ StoreError::Inconsistent { .. }) => return error,
                    // The watch itself shows what is wrong.
                    Err(error) => debug!(%error, "changes could not be compared"),
                    Ok(()) => {}
                }
            }
        });
        Self(task)
    }

    /// Waits until a difference is found.
    pub(super) async fn difference(&mut self) -> StoreError {
        match self.0.join_next().await {
            Some(Ok(error)) => error,
            _ => std::future::pending().await,
        }
    }
}

async fn replay(session: &Session, prefix: &str, window: &Mutex<Window>) -> Result<(), StoreError> {
    let mut replay = window.lock().begin_replay();
    let options = watch_options(prefix, replay.since + 1);
    let (action, begun) = ("watch past changes", Instant::now());
    let mut client = session.watches();
    let mut responses = session
        .request(action, client.watch(prefix, Some(options)))
        .await?;
    loop {
        let response = match timeout(LINGER_TIME, responses.message()).await {
            Ok(response) => {
                let response = response.map_err(|error| session.failure(action, error))?;
                Some(
                    response
                        .ok_or_else(|| session.unavailable("the watch was closed".to_owned()))?,
                )
            }
            Err(_) => None,
        };
        let response = response.as_ref().map(|response| &response.0);
        let elapsed = begun.elapsed();
        match window
            .lock()
            .read_replayed(&mut replay, response, elapsed)?
        {
            ReplayStep::Read => {}
            ReplayStep::Compare => break,
            ReplayStep::Skip => return Ok(()),
        }
    }
    let ahead_since = Instant::now();
    if replay.is_ahead() {
        drop(responses);
        sleep(DELIVERY_LIMIT).await;
    }
    window.lock().end_replay(replay, ahead_since)
}
