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
    /// The last event was a request, so the next is none if there is anything else.
    pub(super) was_asked: bool,
}

impl Inputs {
    /// The next event. None when the store's feed has ended.
    pub(super) async fn next(&mut self, deadline: Option<Instant>) -> Option<Event> {
        if let Some(event) = self.follow_ups.pop_front() {
            return Some(event);
        }
        if std::mem::take(&mut self.was_asked)
            && let Some(event) = self.at_hand(deadline)
        {
            return Some(event);
        }
        // A report frees a renderer for what is pending: so it comes before more of that.
        tokio::select! {
            biased;
            Some(done) = self.reports.recv() => Some(Event::Renderer(done)),
            Some(notice) = self.notices.recv() => Some(Event::Notice(notice)),
            Some(request) = self.requests.recv() => {
                self.was_asked = true;
                Some(request.into())
            }
            Some(looked) = self.looks.recv() => Some(Event::Looked(looked)),
            Some(report) = self.mirror.recv() => Some(Event::Mirror(report)),
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => Some(Event::Timer),
            delivery = self.store.recv() => Some(Event::Store(self.with_what_came_too(delivery?))),
        }
    }

    /// What is there of that which comes after requests. Who is answered may ask again at once, and many may do so.
    fn at_hand(&mut self, deadline: Option<Instant>) -> Option<Event> {
        if let Ok(looked) = self.looks.try_recv() {
            Some(Event::Looked(looked))
        } else if let Ok(report) = self.mirror.try_recv() {
            Some(Event::Mirror(report))
        } else if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            Some(Event::Timer)
        } else {
            let delivery = self.store.try_recv().ok()?;
            Some(Event::Store(self.with_what_came_too(delivery)))
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use contiv_store::Snapshot;
    use tokio::sync::{mpsc, oneshot};

    use super::*;
    use crate::event_loop::Query;

    #[tokio::test(start_paused = true)]
    async fn however_much_is_asked_what_the_store_says_and_what_is_due_have_their_turn() {
        let (store, deliveries) = mpsc::channel(64);
        let (ask, requests) = mpsc::channel(64);
        let (_reports, reports) = mpsc::channel(1);
        let (_mirror, mirror) = mpsc::channel(1);
        let (_notices, notices) = mpsc::channel(1);
        let (_looks, looks) = mpsc::channel(1);
        let follow_ups = VecDeque::new();
        let mut inputs = Inputs {
            store: deliveries,
            requests,
            reports,
            mirror,
            notices,
            looks,
            follow_ups,
            was_asked: false,
        };
        let said = || Delivery { event: FeedEvent::Snapshot(Snapshot::default()), received: Instant::now() };
        for round in 0..10 {
            store.send(said()).await.unwrap();
            let mut deadline = Some(Instant::now());
            tokio::time::advance(Duration::from_secs(1)).await;
            let mut turns = Vec::new();
            for _ in 0..6 {
                // Who has been answered asks again at once.
                while ask.try_send(Request::Query(Query::Status(oneshot::channel().0))).is_ok() {}
                turns.push(match inputs.next(deadline).await {
                    Some(Event::Query(_)) => "asked",
                    Some(Event::Store(_)) => "said",
                    Some(Event::Timer) => {
                        deadline = None;
                        "due"
                    }
                    other => panic!("{other:?}"),
                });
            }
            assert!(turns.contains(&"said") && turns.contains(&"due"), "{round}: {turns:?}");
            assert!(turns.iter().filter(|turn| **turn == "asked").count() >= 3, "{round}: {turns:?}");
        }
    }
}
