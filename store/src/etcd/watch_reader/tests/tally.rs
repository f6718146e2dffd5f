//! What a simulation has counted.

use std::{collections::BTreeMap, fmt, time::Duration};

use crate::Inconsistency;
use contiv_store_testing::{Lie, LieKind};

/// The lies of one kind.
#[derive(Default)]
struct LieTally {
    told: u64,
    /// By what showed them.
    reported: BTreeMap<&'static str, u64>,
    /// By the reason why nobody had to notice them.
    harmless: BTreeMap<&'static str, u64>,
    healing: Duration,
    longest_healing: Duration,
}

#[derive(Default)]
pub(super) struct Tally {
    pub(super) duration: Duration,
    /// Changes that the store made,
    pub(super) events: u64,
    /// that the reader got from its watch,
    pub(super) delivered: u64,
    /// and that replays brought once more.
    pub(super) replayed: u64,
    pub(super) replays: u64,
    /// Pages of lists after the first list.
    pub(super) pages: u64,
    /// Watches after the first, each with a request that confirms the history.
    pub(super) watches: u64,
    /// How often the store was taken for another one.
    pub(super) replaced: u64,
    /// The longest time for which a key was not as in the store.
    pub(super) longest_difference: Duration,
    reports: BTreeMap<&'static str, u64>,
    lies: BTreeMap<LieKind, LieTally>,
}

impl Tally {
    pub(super) fn count_lie(&mut self, lie: &Lie) {
        self.lies.entry(lie.kind).or_default().told += 1;
    }

    pub(super) fn count_report(&mut self, inconsistency: Inconsistency) {
        *self.reports.entry(inconsistency.name()).or_default() += 1;
    }

    /// A reported lie has been healed by a list.
    pub(super) fn count_healed(
        &mut self,
        lie: &Lie,
        inconsistency: Inconsistency,
        after: Duration,
    ) {
        let tally = self.lies.entry(lie.kind).or_default();
        *tally.reported.entry(inconsistency.name()).or_default() += 1;
        tally.healing += after;
        tally.longest_healing = tally.longest_healing.max(after);
    }

    pub(super) fn count_harmless(&mut self, lie: &Lie, why: &'static str) {
        let tally = self.lies.entry(lie.kind).or_default();
        *tally.harmless.entry(why).or_default() += 1;
    }

    pub(super) fn lies(&self) -> u64 {
        self.lies.values().map(|tally| tally.told).sum()
    }

    pub(super) fn reports(&self) -> u64 {
        self.reports.values().sum()
    }

    /// Requests that a reader without the checks would not send, in percent of the delivered changes.
    pub(super) fn extra_read_percentage(&self) -> f64 {
        percentage(self.extra_reads(), self.delivered)
    }

    fn extra_reads(&self) -> u64 {
        self.replays + self.pages + 2 * self.watches
    }
}

#[expect(clippy::cast_precision_loss, reason = "to be printed")]
fn percentage(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole as f64
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(clippy::cast_precision_loss, reason = "to be printed")]
        let rate = self.events as f64 / self.duration.as_secs_f64();
        writeln!(
            f,
            "{} changes in {:.0} simulated s ({rate:.1}/s), {} delivered; {} lies; reports: {:?}, {} of another store",
            self.events,
            self.duration.as_secs_f64(),
            self.delivered,
            self.lies(),
            self.reports,
            self.replaced
        )?;
        writeln!(
            f,
            "extra reads: {} replays, {} pages, {} watches with a confirmation: {:.3} % of the deliveries; \
             replayed changes: {} ({:.1} %)",
            self.replays,
            self.pages,
            self.watches,
            self.extra_read_percentage(),
            self.replayed,
            percentage(self.replayed, self.delivered)
        )?;
        writeln!(
            f,
            "longest time that a key was not as in the store: {:.1?}",
            self.longest_difference
        )?;
        for (kind, tally) in &self.lies {
            let reported: u64 = tally.reported.values().sum();
            let mean = tally.healing / u32::try_from(reported.max(1)).unwrap_or(u32::MAX);
            writeln!(
                f,
                "{:<21} {:>4} told, reported {:?}, harmless {:?}; healed after {mean:.1?} on average, {:.1?} at most",
                format!("{kind:?}"),
                tally.told,
                tally.reported,
                tally.harmless,
                tally.longest_healing
            )?;
        }
        Ok(())
    }
}
