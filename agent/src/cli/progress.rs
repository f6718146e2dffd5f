//! Progress of long work: on standard error, if that is a terminal.

use contiv_store::store::TRANSACTION_LIMIT;
use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar that disappears when this is dropped.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar for this many objects, if that takes more than one transaction.
    pub(super) fn of_objects(total: usize) -> Self {
        if total <= TRANSACTION_LIMIT {
            return Self { bar: ProgressBar::hidden() };
        }
        let bar = ProgressBar::new(total as u64);
        Self { bar: bar.with_style(style("{bar:40} {pos} of {len} objects, {eta} left")) }
    }

    /// For elements read from the kernel; the total is set later.
    pub(super) fn of_elements() -> Self {
        let bar = ProgressBar::no_length();
        Self { bar: bar.with_style(style("{bar:40} {pos} of about {len} elements read")) }
    }

    /// Sets the progress, and an approximate total.
    pub(super) fn set(&self, done: usize, total: usize) {
        self.bar.set_length(total.max(done) as u64);
        self.bar.set_position(done as u64);
    }

    /// How many are done.
    pub(super) fn done(&self) -> u64 {
        self.bar.position()
    }

    /// So many more are done.
    pub(super) fn add(&self, count: usize) {
        self.bar.inc(count as u64);
    }

    /// Hides it while something is printed.
    pub(super) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
