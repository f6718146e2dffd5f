//! The sources of inputs and their priorities.

use contiv_node::message::{Input, MirrorReport, VerifierReport};
use contiv_store::{Delivery, FeedEvent};
use tokio::{
    sync::mpsc::{Receiver, UnboundedReceiver},
    time::{Instant, sleep_until},
};

use super::api::Request;

/// How many batches of the store are merged at most.
const BATCHES_AT_ONCE: usize = 256;
/// How many bytes merged batches have at most, unless it is a single batch.
const BYTES_AT_ONCE: usize = 4 << 20;

/// The next step of the driver.
#[derive(Debug)]
pub(super) enum Next {
    /// Pass this to the core.
    Input(Input),
    /// Decode an event of the store.
    Store(Delivery),
    /// Serve a request.
    Request(Request),
    /// Handle a report of the mirror.
    Mirror(MirrorReport),
}

/// All sources.
#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) store: Receiver<Delivery>,
    pub(super) requests: Receiver<Request>,
    pub(super) reports: UnboundedReceiver<Input>,
    pub(super) notices: Receiver<Input>,
    pub(super) verified: Receiver<VerifierReport>,
    pub(super) mirror: Receiver<MirrorReport>,
    /// The event of the store after merged changes.
    pub(super) deferred: Option<Delivery>,
    /// Whether the last input was a request; then another source has priority.
    pub(super) was_request: bool,
}

impl Inputs {
    /// The next input; `deadline` is the core's. None when the store's feed has ended.
    pub(super) async fn next(&mut self, deadline: Option<Instant>) -> Option<Next> {
        if let Some(delivery) = self.deferred.take() {
            return Some(Next::Store(delivery));
        }
        // Clients that get an answer may ask again at once, and there may be many: two requests are served in a row only when no other
        // source has an input. A report frees a renderer for pending work, so it is handled before more work arrives.
        let is_first = self.reports.is_empty()
            && self.notices.is_empty()
            && !std::mem::take(&mut self.was_request);
        if is_first && let Ok(request) = self.requests.try_recv() {
            self.was_request = true;
            return Some(Next::Request(request));
        }
        Some(tokio::select! {
            biased;
            Some(report) = self.reports.recv() => Next::Input(report),
            Some(notice) = self.notices.recv() => Next::Input(notice),
            Some(report) = self.verified.recv() => Next::Input(Input::Verified(report)),
            Some(report) = self.mirror.recv() => Next::Mirror(report),
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => Next::Input(Input::Timer),
            delivery = self.store.recv() => Next::Store(self.joined(delivery?)),
            Some(request) = self.requests.recv() => {
                self.was_request = true;
                Next::Request(request)
            }
        })
    }

    /// Merges changes that have already arrived, without waiting for more. The earliest time of receipt is kept.
    fn joined(&mut self, mut first: Delivery) -> Delivery {
        let FeedEvent::Changed(joined) = &mut first.event else {
            return first;
        };
        let mut bytes = joined.size();
        for _ in 1..BATCHES_AT_ONCE {
            if bytes > BYTES_AT_ONCE {
                break;
            }
            match self.store.try_recv() {
                Ok(Delivery {
                    event: FeedEvent::Changed(batch),
                    ..
                }) => {
                    bytes += batch.size();
                    joined.revision = batch.revision;
                    joined.changes.extend(batch.changes);
                }
                Ok(other) => {
                    self.deferred = Some(other);
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
    use tokio::sync::mpsc;

    use super::*;
    use crate::drivers::api::Question;
    use contiv_node::core::Core;

    #[tokio::test(start_paused = true)]
    async fn many_requests_do_not_starve_store_and_timer() {
        let (store, deliveries) = mpsc::channel(64);
        let (ask, requests) = mpsc::channel(64);
        let (_reports, reports) = mpsc::unbounded_channel();
        let (_mirror, mirror) = mpsc::channel(1);
        let (_notices, notices) = mpsc::channel(1);
        let (_verified, verified) = mpsc::channel(1);
        let mut inputs = Inputs {
            store: deliveries,
            requests,
            reports,
            mirror,
            notices,
            verified,
            deferred: None,
            was_request: false,
        };
        let said = || Delivery {
            event: FeedEvent::Snapshot(Snapshot::default()),
            received: Instant::now(),
        };
        for round in 0..10 {
            store.send(said()).await.unwrap();
            let mut deadline = Some(Instant::now());
            tokio::time::advance(Duration::from_secs(1)).await;
            let mut turns = Vec::new();
            for _ in 0..6 {
                // A client that asks again as soon as it has an answer.
                while ask
                    .try_send(Request::Ask(Question::new(Core::status).0))
                    .is_ok()
                {}
                turns.push(match inputs.next(deadline).await {
                    Some(Next::Request(_)) => "asked",
                    Some(Next::Store(_)) => "said",
                    Some(Next::Input(Input::Timer)) => {
                        deadline = None;
                        "due"
                    }
                    other => panic!("{other:?}"),
                });
            }
            assert!(
                turns.contains(&"said") && turns.contains(&"due"),
                "{round}: {turns:?}"
            );
            assert!(
                turns.iter().filter(|turn| **turn == "asked").count() >= 3,
                "{round}: {turns:?}"
            );
        }
    }
}
