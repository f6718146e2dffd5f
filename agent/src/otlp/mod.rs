//! A trace of each change, and connections through services, for an OpenTelemetry collector.
//!
//! Spans are made afterwards, from the history: the node core and the renderers are not involved, and without a collector
//! nothing of this runs. Traces that the collector refuses are sent again; events that the history drops meanwhile are lost,
//! which is logged.

mod collector;
mod flow_exporter;
mod flow_records;
mod outbox;
mod spans;
#[cfg(test)]
mod test_flows;

use std::time::{Duration, Instant};

use anyhow::Context;
use contiv_node::{Outcome, Record};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::trace::{RandomIdGenerator, SpanExporter as _};
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval},
};
use tracing::{info, warn};

use crate::{
    config::Config,
    drivers::{Question, Request},
    flows::Flows,
};
use collector::{Collector, TIME_LIMIT};
use flow_exporter::FlowExporter;
use spans::{Clock, spans};

/// The polling interval of the history.
const HISTORY_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How many events are sent at a time.
const MAX_EVENTS_PER_REQUEST: usize = 256;
/// How many connections to the collector wait for the exporter, which looks each second.
const MAX_OPENED: usize = 256;
/// A slower renderer is not waited for.
const RENDERER_TIMEOUT: Duration = Duration::from_secs(30);

/// Starts to send traces, and connections if that is configured, if there is a collector. It ends with the node.
///
/// # Errors
/// When the collector's URL or the system's certificates cannot be used.
pub(crate) fn start(
    config: &Config,
    requests: &mpsc::Sender<Request>,
    flows: &Flows,
) -> anyhow::Result<()> {
    if config.otlp_endpoint.is_empty() {
        if config.otlp_flows {
            warn!("otlp-flows has no effect without otlp-endpoint");
        }
        return Ok(());
    }
    let (sender, opened) = mpsc::channel(MAX_OPENED);
    let collector = Collector::new(config, TIME_LIMIT, sender).context("--otlp-endpoint")?;
    let exporter = collector.span_exporter().context("--otlp-endpoint")?;
    info!(otlp = config.otlp_endpoint, "traces of changes");
    if config.otlp_flows {
        let exporter = collector.log_exporter().context("--otlp-endpoint")?;
        info!(otlp = config.otlp_endpoint, "connections through services");
        tokio::spawn(FlowExporter::new(exporter, flows.clone(), opened).run(requests.clone()));
    }
    tokio::spawn(HistoryExporter::new(exporter, requests.clone()).run(HISTORY_POLL_INTERVAL));
    Ok(())
}

/// Polls the history, and sends new events as traces.
struct HistoryExporter {
    exporter: SpanExporter,
    requests: mpsc::Sender<Request>,
    ids: RandomIdGenerator,
    /// The first event that was not sent yet.
    next: u64,
    is_failing: bool,
}

impl HistoryExporter {
    fn new(exporter: SpanExporter, requests: mpsc::Sender<Request>) -> Self {
        Self {
            exporter,
            requests,
            ids: RandomIdGenerator::default(),
            next: 1,
            is_failing: false,
        }
    }

    async fn run(mut self, every: Duration) {
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Some(records) = self.new_records().await else {
                return;
            };
            for records in records.chunks(MAX_EVENTS_PER_REQUEST) {
                if !self.send(records).await {
                    break;
                }
            }
        }
    }

    /// The next completed events. None when the node has ended.
    async fn new_records(&self) -> Option<Vec<Record>> {
        let next = self.next;
        let (question, answer) = Question::new(move |core| {
            let new = core
                .history(Instant::now())
                .skip_while(|record| record.seq_num < next);
            new.take_while(|record| is_complete(record))
                .cloned()
                .collect()
        });
        self.requests.send(Request::Ask(question)).await.ok()?;
        answer.await.ok()
    }

    /// False if the collector refused them.
    async fn send(&mut self, records: &[Record]) -> bool {
        let (Some(first), Some(last)) = (records.first(), records.last()) else {
            return true;
        };
        let clock = Clock::now();
        let batch: Vec<_> = records
            .iter()
            .flat_map(|record| spans(record, &self.ids, clock))
            .collect();
        if !batch.is_empty()
            && let Err(error) = self.exporter.export(batch).await
        {
            if !self.is_failing {
                warn!(%error, "the collector does not accept traces; trying again");
            }
            self.is_failing = true;
            return false;
        }
        if std::mem::take(&mut self.is_failing) {
            info!("the collector accepts traces again");
        }
        let forgotten = first.seq_num - self.next;
        if forgotten > 0 {
            warn!(
                events = forgotten,
                "the history has forgotten events before their traces were sent"
            );
        }
        self.next = last.seq_num + 1;
        true
    }
}

/// True if every renderer has finished with it, or will not soon.
fn is_complete(record: &Record) -> bool {
    let is_pending = record
        .renderers
        .values()
        .any(|outcome| matches!(outcome, Outcome::Pending));
    !is_pending || record.start_instant.elapsed() >= RENDERER_TIMEOUT
}
