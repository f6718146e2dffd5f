//! Sends connections through services to the collector: a watcher of them like any other, which has its bounds and sample too.

use std::time::Duration;

use contiv_node::flows::FlowFilter;
use opentelemetry::{
    InstrumentationScope,
    logs::{Logger, LoggerProvider},
};
use opentelemetry_otlp::LogExporter;
use opentelemetry_sdk::logs::{
    LogBatch, LogExporter as _, SdkLogRecord, SdkLogger, SdkLoggerProvider,
};
use serde_json::json;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until},
};
use tracing::{info, warn};

use super::{
    collector::CollectorConnection,
    flow_records::{fill_flow, fill_notice},
    outbox::{Batch, Outbox},
};
use crate::{
    drivers::{Question, Request},
    flows::{Flows, Pieces},
};

/// What happens meanwhile is sent together.
const EXPORT_INTERVAL: Duration = Duration::from_secs(1);
/// The pause before connections are watched again that cannot be.
const WATCH_RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// How often to look whether the store was read, without which there are no services.
const START_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Watches connections, and sends them as log records.
pub(super) struct FlowExporter {
    exporter: LogExporter,
    flows: Flows,
    /// Makes records, which only the library can.
    logger: SdkLogger,
    scope: InstrumentationScope,
    outbox: Outbox,
    /// The connections to the collector, as they are made.
    opened: mpsc::Receiver<CollectorConnection>,
    is_failing: bool,
}

impl FlowExporter {
    pub(super) fn new(
        exporter: LogExporter,
        flows: Flows,
        opened: mpsc::Receiver<CollectorConnection>,
    ) -> Self {
        Self {
            exporter,
            flows,
            logger: SdkLoggerProvider::builder().build().logger("contiv"),
            scope: InstrumentationScope::builder("contiv").build(),
            outbox: Outbox::default(),
            opened,
            is_failing: false,
        }
    }

    /// Runs until the node has ended.
    pub(super) async fn run(mut self, node: mpsc::Sender<Request>) {
        let mut known = String::new();
        wait_for_services(&node).await;
        while !node.is_closed() {
            match self.flows.watch(FlowFilter::default()).await {
                Ok(pieces) => {
                    if !std::mem::take(&mut known).is_empty() {
                        info!("connections are watched for the collector");
                    }
                    let text = "connections are watched from here on";
                    self.outbox.notify(json!({"text": text, "watched": true}));
                    self.export(pieces).await;
                }
                Err(reason) if reason != known => {
                    warn!(%reason, "no connections for the collector; trying again");
                    known = reason;
                }
                Err(_) => {}
            }
            sleep(WATCH_RETRY_INTERVAL).await;
        }
    }

    /// Sends what there is until the watch ends.
    async fn export(&mut self, mut pieces: Pieces) {
        while let Some(piece) = pieces.recv().await {
            let next = Instant::now() + EXPORT_INTERVAL;
            let mut told = vec![piece];
            while let Ok(more) = pieces.try_recv() {
                told.push(more);
            }
            while let Ok(connection) = self.opened.try_recv() {
                self.outbox.leave_out(connection);
            }
            let batch = self.outbox.batch(told);
            self.send(&batch).await;
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

    /// Sends connections, and what is to be known of them.
    async fn send(&mut self, batch: &Batch) {
        let mut records = self.records(&batch.flows, fill_flow);
        records.extend(self.records(&self.outbox.notices(batch), fill_notice));
        if records.is_empty() {
            return;
        }
        let records: Vec<_> = records.iter().map(|record| (record, &self.scope)).collect();
        let result = self.exporter.export(LogBatch::new(&records)).await;
        let was_failing = std::mem::replace(&mut self.is_failing, result.is_err());
        match result {
            Err(error) if !was_failing => {
                warn!(%error, "the collector does not accept connections; trying with others");
            }
            Ok(()) if was_failing => {
                let lost = self.outbox.not_accepted();
                info!(lost, "the collector accepts connections again");
            }
            _ => {}
        }
        self.outbox.on_sent(batch, !self.is_failing);
    }
}

/// Waits until the store was read, or the node has ended.
async fn wait_for_services(node: &mpsc::Sender<Request>) {
    loop {
        let (question, answer) = Question::new(|core| core.status().synced);
        if node.send(Request::Ask(question)).await.is_err() || answer.await != Ok(false) {
            return;
        }
        sleep(START_POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{Ipv4Addr, SocketAddr},
        pin::pin,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use axum::{Router, body::Bytes, extract::ConnectInfo, http::StatusCode, routing::post};
    use contiv_node::flows::ServiceFlow;
    use opentelemetry_proto::tonic::{
        collector::logs::v1::ExportLogsServiceRequest, common::v1::any_value::Value as Body,
    };
    use prost::Message;
    use tokio::{net::TcpListener, time::timeout};

    use super::{
        super::{collector::Collector, test_flows::flow},
        *,
    };
    use crate::{
        config::Config,
        flows::Piece,
        test_support::{Harness, service, snapshot},
    };

    const TEST_TIMEOUT: Duration = Duration::from_secs(20);
    const COLLECTOR_TIME_LIMIT: Duration = Duration::from_millis(2_500);

    /// What a collector does with a request.
    #[derive(Debug, Clone, Copy)]
    enum Deed {
        Answer(StatusCode),
        Hang,
    }

    /// An exporter and its collector.
    struct Export {
        pieces: mpsc::Sender<Piece>,
        /// The sender and texts of each request.
        requests: mpsc::UnboundedReceiver<(SocketAddr, Vec<String>)>,
        collector: SocketAddr,
    }

    impl Export {
        /// The collector does this with the first requests, and accepts others.
        async fn start(deeds: &'static [Deed]) -> Self {
            let (sender, requests) = mpsc::unbounded_channel();
            let count = Arc::new(AtomicUsize::new(0));
            let take = move |ConnectInfo(from): ConnectInfo<SocketAddr>, body: Bytes| {
                let request = ExportLogsServiceRequest::decode(body).unwrap();
                // At the end of the test the receiver is gone.
                let _ = sender.send((from, texts(request)));
                let deed = deeds.get(count.fetch_add(1, Ordering::Relaxed));
                async move {
                    match deed {
                        Some(Deed::Answer(status)) => *status,
                        Some(Deed::Hang) => std::future::pending().await,
                        None => StatusCode::OK,
                    }
                }
            };
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let collector = listener.local_addr().unwrap();
            let router = Router::new().route("/v1/logs", post(take));
            let service = router.into_make_service_with_connect_info::<SocketAddr>();
            tokio::spawn(async move { axum::serve(listener, service).await });
            let config = Config {
                otlp_endpoint: format!("http://{collector}"),
                ..Config::default()
            };
            let (sender, opened) = mpsc::channel(8);
            let client = Collector::new(&config, COLLECTOR_TIME_LIMIT, sender).unwrap();
            let flows = Flows::new(mpsc::channel(1).0);
            let mut exporter = FlowExporter::new(client.log_exporter().unwrap(), flows, opened);
            let (pieces, told) = mpsc::channel(8);
            tokio::spawn(async move { exporter.export(told).await });
            Self {
                pieces,
                requests,
                collector,
            }
        }

        async fn tell(&self, flows: Vec<ServiceFlow>, notices: Vec<serde_json::Value>) {
            self.pieces.send(Piece { flows, notices }).await.unwrap();
        }

        /// The texts of the next request.
        async fn next(&mut self) -> Vec<String> {
            let request = timeout(TEST_TIMEOUT, self.requests.recv()).await;
            request.unwrap().unwrap().1
        }
    }

    fn texts(request: ExportLogsServiceRequest) -> Vec<String> {
        let scopes = request
            .resource_logs
            .into_iter()
            .flat_map(|it| it.scope_logs);
        let bodies = scopes
            .flat_map(|it| it.log_records)
            .filter_map(|it| it.body?.value);
        let text = |body| match body {
            Body::StringValue(text) => text,
            other => format!("{other:?}"),
        };
        bodies.map(text).collect()
    }

    fn text(id: u32) -> String {
        format!("new: 10.0.0.9:{id} to shop/web (node port 30080/tcp): served")
    }

    const LOSS: &str = "the collector may not have accepted 1 record before this one";

    #[tokio::test]
    async fn request_that_is_refused_for_good_is_sent_once_but_its_notices_again() {
        let mut export = Export::start(&[Deed::Answer(StatusCode::BAD_REQUEST)]).await;
        let sample = json!({"event": "notice", "text": "a sample", "one_in": 4});
        export.tell(vec![flow(1)], vec![sample]).await;
        assert_eq!(export.next().await, [text(1), "a sample".to_owned()]);
        export.tell(Vec::new(), Vec::new()).await;
        assert_eq!(export.next().await, ["a sample", LOSS]);
        export.tell(vec![flow(2)], Vec::new()).await;
        assert_eq!(export.next().await, [text(2)]);
    }

    #[tokio::test]
    async fn request_that_comes_at_a_bad_time_is_sent_again() {
        let busy = &[Deed::Answer(StatusCode::SERVICE_UNAVAILABLE)];
        let mut export = Export::start(busy).await;
        export.tell(vec![flow(1)], Vec::new()).await;
        assert_eq!(export.next().await, [text(1)]);
        export.tell(vec![flow(2)], Vec::new()).await;
        assert_eq!(export.next().await, [text(1)]);
        assert_eq!(export.next().await, [text(2)]);
    }

    #[tokio::test]
    async fn collector_that_hangs_gets_no_copies() {
        let mut export = Export::start(&[Deed::Hang]).await;
        export.tell(vec![flow(1)], Vec::new()).await;
        assert_eq!(export.next().await, [text(1)]);
        export.tell(vec![flow(2)], Vec::new()).await;
        assert_eq!(export.next().await, [text(2), LOSS.to_owned()]);
    }

    #[tokio::test]
    async fn connection_to_the_collector_is_not_sent() {
        let mut export = Export::start(&[]).await;
        export.tell(vec![flow(1)], Vec::new()).await;
        let (client, _) = export.requests.recv().await.unwrap();
        let own = ServiceFlow {
            client,
            destination: export.collector,
            ..flow(2)
        };
        export.tell(vec![own], Vec::new()).await;
        // They would be sent together.
        tokio::time::sleep(EXPORT_INTERVAL * 2).await;
        export.tell(vec![flow(3)], Vec::new()).await;
        assert_eq!(export.next().await, [text(3)]);
    }

    #[tokio::test]
    async fn connections_are_watched_when_the_store_was_read() {
        let harness = Harness::start(vec![], vec![]);
        let mut waiting = pin!(wait_for_services(&harness.requests));
        let early = timeout(START_POLL_INTERVAL * 2, &mut waiting).await;
        assert!(early.is_err());
        harness.deliver(snapshot(7, vec![service("web", 1)])).await;
        timeout(TEST_TIMEOUT, waiting).await.unwrap();
    }
}
