//! A node core with a scripted store.

use contiv_node::health::ProxyHealth;
use contiv_node::{
    Core, CoreConfig, GuardConfig, HistoryLimits, Record, RendererView, Status, VerificationConfig,
};
use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use contiv_model::{Frontend, NodeName, ProcessorConfig, Protocol};
use contiv_proto::key::ROOT;
use contiv_renderer::{
    dry_run::DryRun,
    nftables::counters::{Connections, RefusalReason},
};
use contiv_store::{
    Delivery, Feed, FeedEvent, FeedHandle, Snapshot, Store, StoreError, Transaction, WatchStream,
};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};

use crate::{
    counters::ConnectionCounters,
    drivers::{Node, NodeConfig, Question, RendererSpec, Request, StoreFeedEnded},
    health::{self, HealthCheckQuestions},
    http::Api,
    logging::LogLevel,
    metrics::Metrics,
};

/// After this real time, a test stops waiting.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// The name of the scripted store.
pub(crate) const STORE: &str = "dir:/test";

/// A running node with a renderer `dry-run` and those of the test.
#[derive(Debug)]
pub(crate) struct Harness {
    /// The store's events.
    pub(crate) store: mpsc::Sender<Delivery>,
    pub(crate) requests: mpsc::Sender<Request>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) task: JoinHandle<Result<(), StoreFeedEnded>>,
    /// The health for load balancers: of the first renderer of the test, if any.
    pub(crate) proxy_health: watch::Receiver<ProxyHealth>,
    pub(crate) health_checks: HealthCheckQuestions,
    lists: mpsc::UnboundedReceiver<()>,
}

/// The configuration of a core of the node `n1`.
pub(crate) fn core_config(verification: VerificationConfig, mirror: Option<&Path>) -> CoreConfig {
    CoreConfig {
        store: STORE.to_owned(),
        verification,
        has_mirror: mirror.is_some(),
        guard: GuardConfig {
            percent: 50,
            wait: Duration::from_secs(60),
        },
        local_addresses: [].into(),
        local_interfaces: [].into(),
        attached: mirror
            .map(crate::state_dir::attached_pods)
            .unwrap_or_default(),
        processor: ProcessorConfig::new(NodeName::new("n1")),
        history: HistoryLimits {
            events: 2000,
            age: Duration::from_secs(3600),
            bytes: 1 << 20,
        },
        renderers: Vec::new(),
        verified_renderers: Vec::new(),
        traffic_renderer: "dry-run".into(),
        self_check: None,
    }
}

fn received_now(event: FeedEvent) -> Delivery {
    Delivery {
        event,
        received: tokio::time::Instant::now(),
    }
}

impl Harness {
    /// Starts the node; `events` are queued before it runs.
    pub(crate) fn start(renderers: Vec<RendererSpec>, events: Vec<FeedEvent>) -> Self {
        Self::start_verifying(renderers, events, VerificationConfig::default())
    }

    /// The same, with verification.
    pub(crate) fn start_verifying(
        renderers: Vec<RendererSpec>,
        events: Vec<FeedEvent>,
        verification: VerificationConfig,
    ) -> Self {
        Self::start_with(renderers, events, verification, None)
    }

    /// The same with the mirror in this folder, before any event of the store.
    pub(crate) fn start_with_mirror(renderers: Vec<RendererSpec>, folder: &Path) -> Self {
        Self::start_with(
            renderers,
            Vec::new(),
            VerificationConfig::default(),
            Some(folder),
        )
    }

    fn start_with(
        renderers: Vec<RendererSpec>,
        events: Vec<FeedEvent>,
        verification: VerificationConfig,
        mirror: Option<&Path>,
    ) -> Self {
        let (store, receiver) = mpsc::channel(64);
        for event in events {
            store.try_send(received_now(event)).expect("room for it");
        }
        let (feed, lists) = listed();
        // Its store is a folder.
        let mut harness =
            Self::start_node(renderers, (receiver, feed), verification, mirror, false);
        (harness.store, harness.lists) = (store, lists);
        harness
    }

    /// Starts the node on an etcd, with the mirror in this folder; it goes on from what is saved there, if it may.
    pub(crate) fn start_on_etcd(store: Arc<dyn Store>, folder: &Path, may_resume: bool) -> Self {
        let feed = if may_resume {
            Feed::start_saving(store, ROOT)
        } else {
            Feed::start_paged(store, ROOT)
        };
        Self::start_node(
            Vec::new(),
            feed,
            VerificationConfig::default(),
            Some(folder),
            may_resume,
        )
    }

    fn start_node(
        renderers: Vec<RendererSpec>,
        feed: (mpsc::Receiver<Delivery>, FeedHandle),
        verification: VerificationConfig,
        mirror: Option<&Path>,
        resumes: bool,
    ) -> Self {
        let (requests, asked) = mpsc::channel(64);
        let traffic_renderer = renderers.first().map_or("dry-run", |spec| spec.name());
        let metrics = Arc::new(Metrics::new(10).with_kube_proxy(traffic_renderer));
        let traffic_renderer = traffic_renderer.into();
        let (outputs, server, health_checks, proxy_health) = health::channels();
        tokio::spawn(server.run());
        let dry_run = RendererSpec::new("dry-run", || Box::new(DryRun::new()));
        let node = Node::new(
            NodeConfig {
                core: CoreConfig {
                    traffic_renderer,
                    ..core_config(verification, mirror)
                },
                mirror: mirror.map(Path::to_owned),
                derives_slices: true,
                answer_within: Duration::from_secs(1),
                resumes,
            },
            feed,
            asked,
            std::iter::once(dry_run).chain(renderers).collect(),
            Arc::<Metrics>::clone(&metrics),
            outputs,
        )
        .expect("threads");
        let task = tokio::spawn(node.run());
        // No event of a test's own, and no list.
        let ((store, _), (_, lists)) = (mpsc::channel(1), mpsc::unbounded_channel());
        Self {
            store,
            requests,
            metrics,
            task,
            proxy_health,
            health_checks,
            lists,
        }
    }

    pub(crate) async fn deliver(&self, event: FeedEvent) {
        self.store
            .send(received_now(event))
            .await
            .expect("the node runs");
    }

    /// Delivers an event that was received this long ago.
    pub(crate) async fn deliver_late(&self, event: FeedEvent, ago: Duration) {
        let received = tokio::time::Instant::now() - ago;
        self.store
            .send(Delivery { event, received })
            .await
            .expect("the node runs");
    }

    /// Queries the node, and so waits until all earlier events are handled, but not for renderers.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Core) -> T + Send + 'static,
    ) -> T {
        let (question, answer) = Question::new(ask);
        self.requests
            .send(Request::Ask(question))
            .await
            .expect("the node runs");
        answer.await.expect("the node answers")
    }

    /// The state of the debug HTTP's handlers.
    pub(crate) fn api(&self) -> Api {
        Api::new(
            self.requests.clone(),
            Arc::clone(&self.metrics),
            self.health_checks.clone(),
            LogLevel::new("info", |_| Ok(())),
            ConnectionCounters::new(|| Ok(counted()), || Ok(Vec::new())),
        )
        .with_attempts(true)
    }

    pub(crate) async fn status(&self) -> Status {
        self.ask(Core::status).await
    }

    /// Waits until a renderer satisfies the condition, and returns it.
    pub(crate) async fn renderer(
        &self,
        name: &str,
        is_wanted: impl Fn(&RendererView) -> bool,
    ) -> RendererView {
        let start = Instant::now();
        loop {
            let views = self.ask(|core| core.renderers(Instant::now())).await;
            assert!(start.elapsed() < TEST_TIMEOUT, "timed out: {views:#?}");
            if let Some(view) = views
                .into_iter()
                .find(|view| &*view.name == name && is_wanted(view))
            {
                return view;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Waits until the history satisfies the condition, and returns it.
    pub(crate) async fn history(&self, is_wanted: impl Fn(&[Record]) -> bool) -> Vec<Record> {
        let start = Instant::now();
        loop {
            let records = self
                .ask(|core| core.history(Instant::now()).cloned().collect::<Vec<_>>())
                .await;
            assert!(start.elapsed() < TEST_TIMEOUT, "timed out: {records:#?}");
            if is_wanted(&records) {
                return records;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Waits until the store has been listed once more.
    pub(crate) async fn next_list(&mut self) {
        self.lists.recv().await.expect("the feed runs");
    }
}

/// The counters of the test's kernel: 5 connections of the service `web`.
fn counted() -> Connections {
    let address = |last| Frontend::Address {
        address: [10, 96, 0, last].into(),
        protocol: Protocol::Tcp,
        port: 80,
    };
    Connections {
        served: [(address(1), 5)].into(),
        refused: [((address(9), RefusalReason::NoEndpoints), 3)].into(),
    }
}

/// The handle of a feed that reports each list, and nothing else.
fn listed() -> (FeedHandle, mpsc::UnboundedReceiver<()>) {
    let (lists, receiver) = mpsc::unbounded_channel();
    let (mut events, handle) = Feed::start(Arc::new(ListNotifier(lists)), "/");
    // The feed ends with its receiver.
    tokio::spawn(async move { while events.recv().await.is_some() {} });
    (handle, receiver)
}

struct ListNotifier(mpsc::UnboundedSender<()>);

impl Store for ListNotifier {
    fn list<'a>(&'a self, _prefix: &'a str) -> BoxFuture<'a, Result<Snapshot, StoreError>> {
        let _ = self.0.send(());
        async { Ok(Snapshot::default()) }.boxed()
    }

    fn watch<'a>(&'a self, _: &'a str, _: i64) -> BoxFuture<'a, Result<WatchStream, StoreError>> {
        async { Ok(stream::pending().boxed()) }.boxed()
    }

    fn transact(&self, _: Transaction) -> BoxFuture<'_, Result<i64, StoreError>> {
        async { Ok(0) }.boxed()
    }
}
