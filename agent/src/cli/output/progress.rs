//! Shows the progress of a long operation on standard error, if that is a terminal.

use contiv_store::store::TRANSACTION_LIMIT;
use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar. It disappears when it is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// For this many objects. The bar is hidden if one transaction is enough for them.
    pub(crate) fn for_objects(total: usize) -> Self {
        if total <= TRANSACTION_LIMIT {
            return Self {
                bar: ProgressBar::hidden(),
            };
        }
        let bar = ProgressBar::new(total as u64);
        Self {
            bar: bar.with_style(style("{bar:40} {pos} of {len} objects, {eta} left")),
        }
    }

    /// For elements that are read from the kernel. The total is not known yet; [`Self::set`] sets it.
    pub(crate) fn for_elements() -> Self {
        let bar = ProgressBar::no_length();
        Self {
            bar: bar.with_style(style("{bar:40} {pos} of about {len} elements read")),
        }
    }

    /// For what these words say is done. [`Self::set`] sets the total.
    pub(crate) fn with_words(words: &str) -> Self {
        let bar = ProgressBar::no_length();
        let template = format!("{{bar:30}} {{pos}} of {{len}} {words}, {{eta}} left");
        Self {
            bar: bar.with_style(style(&template)),
        }
    }

    /// Sets how many are done, and the approximate total.
    pub(crate) fn set(&self, done: usize, total: usize) {
        self.bar.set_length(total.max(done) as u64);
        self.bar.set_position(done as u64);
    }

    /// How many are done.
    pub(crate) fn done(&self) -> u64 {
        self.bar.position()
    }

    /// Adds to the number of those that are done.
    pub(crate) fn add(&self, count: usize) {
        self.bar.inc(count as u64);
    }

    /// Hides the bar while `print` runs.
    pub(crate) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
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
