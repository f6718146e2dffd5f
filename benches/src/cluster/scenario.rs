//! The measurements at one size.

use std::time::Duration;

use crate::{figures::Limit, workload::Workload};

/// Longer than any list takes.
pub(super) const LIST_TIMEOUT: Duration = Duration::from_secs(300);

/// The section of these figures in the table.
pub const SECTION: &str = "cluster";

/// The measurements to make at one size.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// The section of the figures in the table.
    pub section: &'static str,
    /// The size.
    pub workload: Workload,
    /// The time from the start of the process until it is ready.
    pub start: Option<Limit>,
    /// The same over rules that exist.
    pub restart: Option<Limit>,
    /// The agent's memory a while after the start.
    pub memory: Option<Limit>,
    /// The latency of one change: the median and the 99th percentile.
    pub change: [Option<Limit>; 2],
    /// Whether to measure how long etcd needs to give the same keys in pages.
    pub list_alone: bool,
    /// How long to make 1,000 changes a second.
    pub churn: Option<Duration>,
    /// Whether to open connections during restarts.
    pub restart_under_load: bool,
}
