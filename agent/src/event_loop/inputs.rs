//! Where events come from, and which comes first.

use std::collections::VecDeque;

use contiv_store::{Delivery, FeedEvent};
use tokio::{
    sync::mpsc::Receiver,
    time::{Instant, sleep_until},
};

use super::{
    event::{Event, Request},
    renderers::{Done, Notice},
    verifiers::Looked,
};
use crate::mirror::MirrorReport;

/// How many batches are taken in as one event, at most.
const BATCHES_PER_EVENT: usize = 256;
/// And of how many bytes, unless it is one batch alone.
const BYTES_PER_EVENT: usize = 4 << 20;

/// Every source of events.
#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) store: Receiver<Delivery>,
    pub(super) requests: Receiver<Request>,
    pub(super) reports: Receiver<Done>,
    pub(super) mirror: Receiver<MirrorReport>,
    pub(super) notices: Receiver<Notice>,
    pub(super) looks: Receiver<Looked>,
    /// What an event has led to. Comes before everything else.
    pub(super) follow_ups: VecDeque<Event>,
}

impl Inputs {
    /// The next event. None when the store's feed has ended.
    pub(super) async fn next(&mut self, deadline: Option<Instant>) -> Option<Event> {
        if let Some(event) = self.follow_ups.pop_front() {
            return Some(event);
        }
        // A report frees a renderer for what is pending: so it comes before more of that.
        tokio::select! {
            biased;
            Some(done) = self.reports.recv() => Some(Event::Renderer(done)),
            Some(notice) = self.notices.recv() => Some(Event::Notice(notice)),
            Some(request) = self.requests.recv() => Some(request.into()),
            Some(looked) = self.looks.recv() => Some(Event::Looked(looked)),
            Some(report) = self.mirror.recv() => Some(Event::Mirror(report)),
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => Some(Event::Timer),
            delivery = self.store.recv() => Some(Event::Store(self.with_what_came_too(delivery?))),
        }
    }

    /// Joins changes that are there already; never waits for any. What was received first counts.
    fn with_what_came_too(&mut self, mut first: Delivery) -> Delivery {
        let FeedEvent::Changed(joined) = &mut first.event else { return first };
        let mut bytes = joined.size();
        for _ in 1..BATCHES_PER_EVENT {
            if bytes > BYTES_PER_EVENT {
                break;
            }
            match self.store.try_recv() {
                Ok(Delivery { event: FeedEvent::Changed(batch), .. }) => {
                    bytes += batch.size();
                    joined.revision = batch.revision;
                    joined.changes.extend(batch.changes);
                }
                Ok(other) => {
                    self.follow_ups.push_back(Event::Store(other));
                    break;
                }
                Err(_) => break,
            }
        }
        first
    }
}
