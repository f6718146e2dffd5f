//! Checks the agent's history against the inputs of the simulation: every event is recorded once, in order, with the result of
//! the renderer call that applied it; and metrics count it once.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Instant,
};

use contiv_node::{
    Answer, Core, Outcome, Record,
    decode::StoreEvent,
    message::{Input, Metric, Now, Output, Work, WorkDone},
};
use contiv_renderer::Report;
use jiff::Timestamp;

use crate::{
    config::{self, RENDERER},
    metrics::Scrape,
};

/// The kinds of events of the store. Other events may overtake them while a first list waits for the mirror.
const OF_STORE: [&str; 7] = [
    "snapshot",
    "change",
    "problems",
    "store-down",
    "store-replaced",
    "store-repair",
    "store-up",
];
/// The kinds of other requested events.
const OF_OTHERS: [&str; 4] = ["addresses", "resync", "pod-added", "pod-deleted"];
/// The kind of a change by another program.
const FOREIGN_CHANGE: &str = "foreign-change";

/// An event that must be recorded.
#[derive(Debug)]
struct ExpectedEvent {
    at: Instant,
    kind: &'static str,
    /// The store's revision, if the event has one.
    revision: Option<i64>,
}

/// A call of the renderer.
#[derive(Debug)]
struct Call {
    name: &'static str,
    /// The number of the last event before it.
    after: u64,
    /// The time of its end, and its report.
    done: Option<(Timestamp, Report)>,
}

/// The history that the running agent must have.
#[derive(Debug, Default)]
pub(crate) struct ExpectedHistory {
    of_store: VecDeque<ExpectedEvent>,
    of_others: VecDeque<ExpectedEvent>,
    /// The events counted so far.
    events: u64,
    calls: VecDeque<Call>,
    /// The expected values of counters, by series.
    counts: BTreeMap<String, u64>,
}

fn push<T>(queue: &mut VecDeque<T>, new: T) {
    // The agent keeps no more records than this.
    if queue.len() > config::HISTORY_EVENTS {
        queue.pop_front();
    }
    queue.push_back(new);
}

fn series(name: &str) -> String {
    format!("contiv_{name}{{renderer=\"{RENDERER}\"}}")
}

impl ExpectedHistory {
    /// Must be called with each input of the agent.
    pub(crate) fn on_input(&mut self, input: &Input, now: Now) {
        let new_event = |kind, revision| ExpectedEvent {
            at: now.instant,
            kind,
            revision,
        };
        match input {
            Input::Store(event, _) => {
                let event = match event {
                    StoreEvent::ListProgress | StoreEvent::Progress { .. } => return,
                    StoreEvent::Listed(list) => new_event("snapshot", Some(list.revision)),
                    StoreEvent::Changed(batch, _) => new_event("change", Some(batch.revision)),
                    StoreEvent::Problems(_) => new_event("problems", None),
                    StoreEvent::Down { .. } => new_event("store-down", None),
                    StoreEvent::Replaced { .. } => new_event("store-replaced", None),
                    StoreEvent::Inconsistent { .. } => new_event("store-repair", None),
                    StoreEvent::Up => new_event("store-up", None),
                };
                push(&mut self.of_store, event);
            }
            Input::LocalAddresses(_) => push(&mut self.of_others, new_event("addresses", None)),
            Input::Resync { .. } => push(&mut self.of_others, new_event("resync", None)),
            Input::ForeignChange(..) => self.count("foreign_changes_total"),
            Input::WorkDone(done) => self.on_work_done(done, now),
            _ => {}
        }
    }

    fn on_work_done(&mut self, done: &WorkDone, now: Now) {
        let Ok(report) = &done.result else {
            return self.count("sync_failures_total");
        };
        self.count("sync_proxy_rules_duration_seconds_count");
        let Some(call) = self.calls.back_mut() else {
            return;
        };
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

    /// Must be called after each request to attach or detach a pod. It is an event unless it was refused, or there was nothing
    /// to detach.
    pub(crate) fn on_pod_request(&mut self, kind: &'static str, first: Option<&Answer>, now: Now) {
        let is_event = match first {
            Some(Ok(is_done)) => *is_done,
            Some(Err(_)) => false,
            None => true,
        };
        if is_event {
            push(
                &mut self.of_others,
                ExpectedEvent {
                    at: now.instant,
                    kind,
                    revision: None,
                },
            );
        }
    }

    /// Must be called with each output of the agent.
    pub(crate) fn on_output(&mut self, output: &Output) {
        match output {
            Output::Count(Metric::Event(_)) => self.events += 1,
            Output::Render(_, work) => {
                push(
                    &mut self.calls,
                    Call {
                        name: Work::name(work),
                        after: self.events,
                        done: None,
                    },
                );
            }
            _ => {}
        }
    }

    /// Compares the whole history, at rest.
    pub(crate) fn check(&self, core: &Core, scrape: &Scrape, now: Instant) -> Result<(), String> {
        let records = core.history(now).collect::<Vec<_>>();
        self.check_numbers(core, &records)?;
        let is_full = records.len() >= config::HISTORY_EVENTS;
        check_events(&self.of_store, &OF_STORE, &records, is_full, now)?;
        check_events(&self.of_others, &OF_OTHERS, &records, is_full, now)?;
        for record in records {
            self.check_outcome(record)?;
        }
        for (series, expected) in &self.counts {
            let counted = scrape.count(series);
            if counted != *expected {
                return Err(format!("{series} is {counted}, expected {expected}"));
            }
        }
        Ok(())
    }

    fn check_numbers(&self, core: &Core, records: &[&Record]) -> Result<(), String> {
        let newest = core.events();
        let expected = newest + 1 - records.len() as u64..=newest;
        if newest != self.events || !records.iter().map(|record| record.seq_num).eq(expected) {
            return Err(format!(
                "{} events were counted, but the history has others up to {newest}",
                self.events
            ));
        }
        Ok(())
    }

    /// The result must be that of the first call after the event that could apply it: an update does not revert a foreign
    /// change, and a repair applies nothing else.
    fn check_outcome(&self, record: &Record) -> Result<(), String> {
        let useless = if record.kind == FOREIGN_CHANGE {
            "update"
        } else {
            "heal"
        };
        for outcome in record.renderers.values() {
            let mut calls = self
                .calls
                .iter()
                .filter(|call| call.after >= record.seq_num && call.name != useless);
            let expected = calls.find_map(|call| call.done.as_ref());
            let is_right = matches!((outcome, expected), (Outcome::Applied { at, report, .. }, Some((done, reported)))
                if at == done && report == reported);
            if !is_right {
                return Err(format!(
                    "the history has {record:#?}, but the renderer reported {expected:?}"
                ));
            }
        }
        Ok(())
    }
}

/// The records of these kinds must be the last expected events, and none may be missing.
fn check_events(
    expected: &VecDeque<ExpectedEvent>,
    kinds: &[&str],
    records: &[&Record],
    is_full: bool,
    now: Instant,
) -> Result<(), String> {
    let recorded: Vec<&Record> = records
        .iter()
        .copied()
        .filter(|record| kinds.contains(&record.kind))
        .collect();
    for (event, record) in expected.iter().rev().zip(recorded.iter().rev()) {
        let has_revision = event
            .revision
            .is_none_or(|revision| record.revision == revision);
        if event.kind != record.kind || !has_revision || record.start_instant < event.at {
            return Err(format!("the history has {record:#?}, expected {event:?}"));
        }
    }
    let missing = expected.len().checked_sub(recorded.len());
    let Some(missing) = missing else {
        return Err("the history has more events than expected".to_owned());
    };
    let last_missing = missing.checked_sub(1).and_then(|last| expected.get(last));
    match last_missing.filter(|last| !is_full && last.at + config::HISTORY_AGE >= now) {
        Some(last) => Err(format!("the history lacks {last:?}")),
        None => Ok(()),
    }
}
