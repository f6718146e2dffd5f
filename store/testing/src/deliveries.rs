//! Waits for deliveries of a feed, with a time limit.

use std::time::Duration;

use contiv_store::{Delivery, FeedEvent};
use tokio::{sync::mpsc::Receiver, time::timeout};

/// Far longer than any feed takes, on a busy machine too.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(60);

/// The next event.
///
/// # Panics
/// When there is none within a minute, or the feed has ended.
pub async fn next(events: &mut Receiver<Delivery>) -> FeedEvent {
    let Ok(delivery) = timeout(DELIVERY_TIMEOUT, events.recv()).await else {
        panic!("nothing within a minute")
    };
    let Some(delivery) = delivery else {
        panic!("the feed has ended")
    };
    delivery.event
}

/// The first event that is not another cause of the outage.
///
/// # Panics
/// As [`next`].
pub async fn after_outage(events: &mut Receiver<Delivery>) -> FeedEvent {
    loop {
        match next(events).await {
            FeedEvent::Down { .. } => {}
            event => return event,
        }
    }
}

/// The next cause of an outage; the lost connection may come first.
///
/// # Panics
/// As [`next`], and when the next event is another one.
pub async fn down(events: &mut Receiver<Delivery>) -> String {
    match next(events).await {
        FeedEvent::Down { reason } => reason,
        other => panic!("expected an outage: {other:?}"),
    }
}
