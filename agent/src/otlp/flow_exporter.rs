//! Sends connections through services to the collector: a watcher of them like any other, which has its bounds and sample too.

use std::time::Duration;

use contiv_node::{flows::FlowFilter, plural::counted};
use opentelemetry::{
    InstrumentationScope,
    logs::{Logger, LoggerProvider},
};
use opentelemetry_otlp::LogExporter;
use opentelemetry_sdk::{
    error::OTelSdkResult,
    logs::{LogBatch, LogExporter as _, SdkLogRecord, SdkLogger, SdkLoggerProvider},
};
use serde_json::json;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until},
};
use tracing::{info, warn};

use super::flow_records::{fill_flow, fill_notice};
use crate::{
    drivers::Request,
    flows::{Flows, Piece, Pieces},
};

/// What happens meanwhile is sent together.
const EXPORT_INTERVAL: Duration = Duration::from_secs(1);
/// How many records a request has at most, each of about a kilobyte.
const MAX_RECORDS_PER_REQUEST: usize = 2_048;
/// The pauses before a request is sent again. After the last one its records are lost. What the kernel tells meanwhile waits as far as
/// there is room.
const RETRY_PAUSES: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];
/// The pause before connections are watched again that cannot be, as before the store was read.
const WATCH_RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Watches connections, and sends them as log records.
pub(super) struct FlowExporter {
    exporter: LogExporter,
    flows: Flows,
    /// Makes records, which only the library can.
    logger: SdkLogger,
    scope: InstrumentationScope,
    /// The records that the collector did not accept since it accepted some.
    lost: usize,
    is_failing: bool,
}

impl FlowExporter {
    pub(super) fn new(exporter: LogExporter, flows: Flows) -> Self {
        Self {
            exporter,
            flows,
            logger: SdkLoggerProvider::builder().build().logger("contiv"),
            scope: InstrumentationScope::builder("contiv").build(),
            lost: 0,
            is_failing: false,
        }
    }

    /// Runs until the node has ended.
    pub(super) async fn run(mut self, node: mpsc::Sender<Request>) {
        let mut failures = 0_u32;
        while !node.is_closed() {
            match self.flows.watch(FlowFilter::default()).await {
                Ok(pieces) => {
                    failures = 0;
                    self.export(pieces).await;
                }
                Err(reason) => {
                    failures = failures.saturating_add(1);
                    // At the start of the agent the store is not read yet.
                    if failures == 2 {
                        warn!(%reason, "no connections for the collector; trying again");
                    }
                }
            }
            sleep(WATCH_RETRY_INTERVAL).await;
        }
    }

    /// Sends what there is until the watch ends.
    async fn export(&mut self, mut pieces: Pieces) {
        while let Some(Piece {
            mut flows,
            mut notices,
        }) = pieces.recv().await
        {
            let next = Instant::now() + EXPORT_INTERVAL;
            while let Ok(more) = pieces.try_recv() {
                flows.extend(more.flows);
                notices.extend(more.notices);
            }
            for flows in flows.chunks(MAX_RECORDS_PER_REQUEST) {
                self.send(self.records(flows, fill_flow)).await;
            }
            self.send(self.records(&notices, fill_notice)).await;
            sleep_until(next).await;
        }
    }

    fn records<T>(&self, items: &[T], fill: fn(&mut SdkLogRecord, &T)) -> Vec<SdkLogRecord> {
        let record = |item| {
            let mut record = self.logger.create_log_record();
            fill(&mut record, item);
            record
        };
        items.iter().map(record).collect()
    }

    /// Sends records, a few times if need be. How many were lost before is said with the next ones.
    async fn send(&mut self, mut records: Vec<SdkLogRecord>) {
        let count = records.len();
        if self.lost > 0 {
            let lost = self.lost;
            let missing = counted(lost, "record");
            let text = format!("the collector did not accept {missing} before this one");
            let notice = json!({"text": text, "not_accepted": lost});
            records.extend(self.records(&[notice], fill_notice));
        }
        if records.is_empty() {
            return;
        }
        let scope = self.scope.clone();
        let batch: Vec<_> = records.iter().map(|record| (record, &scope)).collect();
        let mut result = self.exporter.export(LogBatch::new(&batch)).await;
        for pause in RETRY_PAUSES {
            let Err(error) = &result else { break };
            if !std::mem::replace(&mut self.is_failing, true) {
                warn!(%error, "the collector does not accept connections; trying again");
            }
            sleep(pause).await;
            result = self.exporter.export(LogBatch::new(&batch)).await;
        }
        self.note(&result, count);
    }

    fn note(&mut self, result: &OTelSdkResult, records: usize) {
        if result.is_err() {
            self.lost += records;
            return;
        }
        if std::mem::take(&mut self.is_failing) {
            let lost = self.lost;
            info!(lost, "the collector accepts connections again");
        }
        self.lost = 0;
    }
}
