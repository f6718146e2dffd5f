//! How fast changes reach the kernel.

use serde::Serialize;

use super::views::EventView;

/// The time from the store's message until a renderer sent a change to the kernel, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) worst: f64,
    /// How many times were measured.
    #[serde(skip)]
    pub(crate) count: usize,
}

impl Latency {
    /// The latency of the changes among these events; none if none has reached the kernel.
    pub(crate) fn of<'a>(events: impl IntoIterator<Item = &'a EventView>) -> Option<Self> {
        let events = events.into_iter();
        let mut sent: Vec<f64> = events.flat_map(EventView::latencies).collect();
        sent.sort_by(f64::total_cmp);
        let at = |percent: usize| {
            sent.get((sent.len() * percent / 100).min(sent.len().saturating_sub(1)))
                .copied()
        };
        Some(Self {
            p50: at(50)?,
            p99: at(99)?,
            worst: *sent.last()?,
            count: sent.len(),
        })
    }
}
