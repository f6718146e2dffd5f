//! The history of the agent, held against what the simulation itself told the agent: every event is recorded once, in order, with
//! the outcome of the call of the renderer that applied it; and counted by the metrics.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Instant,
};

use contiv_agent::node::{
    Answer, Core, HistoryQuery, Outcome, Record,
    decode::StoreEvent,
    message::{Input, Metric, Now, Output, Work, WorkDone},
};
use contiv_renderer::Report;
use jiff::Timestamp;

use crate::{
    config::{self, RENDERER},
    metrics::Scrape,
};

/// The kinds of events that only the store causes. Others may overtake them while a first list waits.
const OF_STORE: [&str; 6] = ["snapshot", "change", "problems", "store-down", "store-replaced", "store-up"];
/// The kinds of events that somebody else asks for.
const OF_OTHERS: [&str; 4] = ["addresses", "resync", "pod-added", "pod-deleted"];
/// The kind of a change by another program.
const FOREIGN_CHANGE: &str = "foreign-change";

/// An event that must be recorded.
#[derive(Debug)]
struct Told {
    at: Instant,
    kind: &'static str,
    /// The store's revision, if the event tells it.
    revision: Option<i64>,
}

/// A call of the renderer.
#[derive(Debug)]
struct Call {
    name: &'static str,
    /// The last event before it.
    after: u64,
    /// When it was done, and what it reported.
    done: Option<(Timestamp, Report)>,
}

/// The history that the running agent must have.
#[derive(Debug, Default)]
pub(crate) struct ExpectedHistory {
    of_store: VecDeque<Told>,
    of_others: VecDeque<Told>,
    /// The events counted so far.
    events: u64,
    calls: VecDeque<Call>,
    /// What counters must show, by series.
    counts: BTreeMap<String, u64>,
}

fn push<T>(queue: &mut VecDeque<T>, new: T) {
    // No more records are kept than these.
    if queue.len() > config::HISTORY_EVENTS {
        queue.pop_front();
    }
    queue.push_back(new);
}

fn series(name: &str) -> String {
    format!("contiv_{name}{{renderer=\"{RENDERER}\"}}")
}

impl ExpectedHistory {
    /// The agent is given an input.
    pub(crate) fn on_input(&mut self, input: &Input, now: Now) {
        let told = |kind, revision| Told { at: now.instant, kind, revision };
        match input {
            Input::Store(event, _) => {
                let told = match event {
                    StoreEvent::Listed(list) => told("snapshot", Some(list.revision)),
                    StoreEvent::Changed(batch, _) => told("change", Some(batch.revision)),
                    StoreEvent::Problems(_) => told("problems", None),
                    StoreEvent::Down { .. } => told("store-down", None),
                    StoreEvent::Replaced { .. } => told("store-replaced", None),
                    StoreEvent::Up => told("store-up", None),
                };
                push(&mut self.of_store, told);
            }
            Input::LocalAddresses(_) => push(&mut self.of_others, told("addresses", None)),
            Input::Resync { .. } => push(&mut self.of_others, told("resync", None)),
            Input::ForeignChange(..) => self.count("foreign_changes_total"),
            Input::WorkDone(done) => self.on_work_done(done, now),
            _ => {}
        }
    }

    fn on_work_done(&mut self, done: &WorkDone, now: Now) {
        let Ok(report) = &done.result else { return self.count("sync_failures_total") };
        self.count("sync_proxy_rules_duration_seconds_count");
        let Some(call) = self.calls.back_mut() else { return };
        call.done = Some((now.time, report.clone()));
        match call.name {
            "heal" => self.count("repairs_total"),
            "update" => self.count("network_programming_duration_seconds_count"),
            _ => {}
        }
    }

    fn count(&mut self, name: &str) {
        *self.counts.entry(series(name)).or_default() += 1;
    }

    /// A caller that attaches or detaches a pod has been heard: it is an event unless it is refused, or there was nothing to detach.
    pub(crate) fn on_pod_request(&mut self, kind: &'static str, first: Option<&Answer>, now: Now) {
        let is_event = match first {
            Some(Ok(is_done)) => *is_done,
            Some(Err(_)) => false,
            None => true,
        };
        if is_event {
            push(&mut self.of_others, Told { at: now.instant, kind, revision: None });
        }
    }

    /// The agent wants something.
    pub(crate) fn on_output(&mut self, output: &Output) {
        match output {
            Output::Count(Metric::Event(_)) => self.events += 1,
            Output::Render(_, work) => {
                push(&mut self.calls, Call { name: Work::name(work), after: self.events, done: None });
            }
            _ => {}
        }
    }

    /// Compares all of it, at rest.
    pub(crate) fn check(&self, core: &Core, scrape: &Scrape, now: Instant) -> Result<(), String> {
        let records = core.history(HistoryQuery::default(), now);
        self.check_numbers(core, &records)?;
        let is_full = records.len() >= config::HISTORY_EVENTS;
        check_told(&self.of_store, &OF_STORE, &records, is_full, now)?;
        check_told(&self.of_others, &OF_OTHERS, &records, is_full, now)?;
        for record in &records {
            self.check_outcome(record)?;
        }
        for (series, expected) in &self.counts {
            let counted = scrape.count(series);
            if counted != *expected {
                return Err(format!("{series} is {counted}, and {expected} were told"));
            }
        }
        Ok(())
    }

    fn check_numbers(&self, core: &Core, records: &[Record]) -> Result<(), String> {
        let newest = core.events();
        let expected = newest + 1 - records.len() as u64..=newest;
        if newest != self.events || !records.iter().map(|record| record.seq_num).eq(expected) {
            return Err(format!(
                "{} events were counted, and the history has others until {newest}",
                self.events
            ));
        }
        Ok(())
    }

    /// The outcome is that of the first call after the event that could apply it: an update undoes no foreign change, and a repair
    /// applies nothing else.
    fn check_outcome(&self, record: &Record) -> Result<(), String> {
        let useless = if record.kind == FOREIGN_CHANGE { "update" } else { "heal" };
        for outcome in record.renderers.values() {
            let mut calls =
                self.calls.iter().filter(|call| call.after >= record.seq_num && call.name != useless);
            let expected = calls.find_map(|call| call.done.as_ref());
            let is_right = matches!((outcome, expected), (Outcome::Applied { at, report, .. }, Some((done, reported)))
                if at == done && report == reported);
            if !is_right {
                return Err(format!("the history has {record:#?}, and the renderer has told {expected:?}"));
            }
        }
        Ok(())
    }
}

/// The records of these kinds are the last events that were told, and no other is missing.
fn check_told(
    told: &VecDeque<Told>,
    kinds: &[&str],
    records: &[Record],
    is_full: bool,
    now: Instant,
) -> Result<(), String> {
    let recorded: Vec<&Record> = records.iter().filter(|record| kinds.contains(&record.kind)).collect();
    for (told, record) in told.iter().rev().zip(recorded.iter().rev()) {
        let has_revision = told.revision.is_none_or(|revision| record.revision == revision);
        if told.kind != record.kind || !has_revision || record.since < told.at {
            return Err(format!("the history has {record:#?}, and the agent was told {told:?}"));
        }
    }
    let missing = told.len().checked_sub(recorded.len());
    let Some(missing) = missing else { return Err("the history has more than was told".to_owned()) };
    let last_missing = missing.checked_sub(1).and_then(|last| told.get(last));
    match last_missing.filter(|last| !is_full && last.at + config::HISTORY_AGE >= now) {
        Some(last) => Err(format!("the history has nothing of {last:?}")),
        None => Ok(()),
    }
}
