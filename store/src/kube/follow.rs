//! The watches of all types as one stream.

use std::{collections::VecDeque, sync::Arc};

use futures::{
    Stream, StreamExt,
    stream::{self, BoxStream, ReadyChunks, SelectAll, select_all},
};

use super::{
    object::Received,
    tracks::{Tracks, Versions},
    watch::{Happened, Watch, WatchChange},
};
use crate::{Batch, Change, Problem, StoreError, WatchEvent, WatchStream};

/// How many events become one batch, if they are there.
const LARGEST_BATCH: usize = 256;

type Happenings = SelectAll<BoxStream<'static, Result<Happened, StoreError>>>;

pub(super) struct Follow {
    happenings: ReadyChunks<Happenings>,
    prefix: String,
    versions: Versions,
    tracks: Arc<Tracks>,
    /// What comes next, before anything is read.
    waiting: VecDeque<Result<WatchEvent, StoreError>>,
    has_failed: bool,
}

impl Follow {
    /// What these watches say of keys that begin with `prefix`; they have begun at `versions`.
    pub(super) fn new(watches: Vec<Watch>, prefix: &str, versions: Versions, tracks: Arc<Tracks>) -> Self {
        let happenings = select_all(watches.into_iter().map(|watch| watch.into_stream().boxed()));
        Self {
            happenings: happenings.ready_chunks(LARGEST_BATCH),
            prefix: prefix.to_owned(),
            versions,
            tracks,
            waiting: VecDeque::new(),
            has_failed: false,
        }
    }

    pub(super) fn into_stream(self) -> WatchStream {
        self.events().boxed()
    }

    fn events(self) -> impl Stream<Item = Result<WatchEvent, StoreError>> + Send {
        stream::unfold(self, async |mut follow| {
            while follow.waiting.is_empty() && !follow.has_failed {
                // Nothing to watch is no reason to end.
                let Some(happened) = follow.happenings.next().await else {
                    return std::future::pending().await;
                };
                follow.take_in(happened);
            }
            let next = follow.waiting.pop_front()?;
            Some((next, follow))
        })
    }

    fn take_in(&mut self, happened: Vec<Result<Happened, StoreError>>) {
        let mut changes = Vec::new();
        let mut news = Vec::new();
        let mut failure = None;
        for one in happened {
            match one {
                Ok(Happened { resource, version, change }) => {
                    self.versions.insert(resource.kind, version);
                    let Some((change, problems)) = change.map(into_change) else { continue };
                    if change.key().starts_with(&self.prefix) {
                        news.push((change.key().to_owned(), problems));
                        changes.push(change);
                    }
                }
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        let (revision, problems) = self.tracks.advance(&self.prefix, self.versions.clone(), news);
        // Without changes it says how far everything has been told.
        self.waiting.push_back(Ok(WatchEvent::Changed(Batch { revision, changes })));
        self.waiting.extend(problems.map(|problems| Ok(WatchEvent::Problems(problems))));
        self.has_failed = failure.is_some();
        self.waiting.extend(failure.map(Err));
    }
}

fn into_change(change: WatchChange) -> (Change, Vec<Problem>) {
    let received: Received = match change {
        WatchChange::Put(received) => received,
        WatchChange::Delete { key } => return (Change::Delete { key }, Vec::new()),
    };
    let key = received.key.clone();
    match received.into_entry() {
        (Some(entry), problems) => (Change::Put(entry), problems),
        // It may have been something that is stored before.
        (None, _) => (Change::Delete { key }, Vec::new()),
    }
}
