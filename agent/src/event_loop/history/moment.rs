//! When something happened, by each of the clocks that durations count from.

use jiff::Timestamp;
use tokio::time::Instant;

/// When an event happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::event_loop) struct Moment {
    /// When the loop took it up, by the clock of people.
    pub(in crate::event_loop) start: Timestamp,
    /// The same, by the clock that is never set.
    pub(in crate::event_loop) since: Instant,
    /// When the store had said it. What does not come from the store never waits.
    pub(in crate::event_loop) received: Instant,
    /// When what the store said was triggered, if that is stored too; of several, the first.
    pub(in crate::event_loop) triggered: Option<Timestamp>,
}

impl Moment {
    /// Of what happens now.
    pub(in crate::event_loop) fn now() -> Self {
        let since = Instant::now();
        Self { start: Timestamp::now(), since, received: since, triggered: None }
    }

    /// Of what the store said at this time, and is taken up now.
    pub(in crate::event_loop) fn received(received: Instant) -> Self {
        Self { received, ..Self::now() }
    }
}
