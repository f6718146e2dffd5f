//! Observers of searches for stale flows.

use std::{fmt, time::Duration};

use contiv_model::Families;

/// Called for each search, on the thread that searches.
pub trait StaleFlowObserver: fmt::Debug + Send + Sync {
    /// The flows of `family`, which is one, were searched for `took`, and so many of them `deleted`.
    fn searched(&self, family: Families, took: Duration, deleted: usize);
}
