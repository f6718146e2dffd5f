//! A running connector over a store in memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use contiv_connector::{
    Aggregator, Catalog, ConnectorMetrics, Instance, NamedRegistry, Parts, Publisher, Registry,
    RegistryError, Sink, SourceService, controller, plan::Target, registry::HostLookup,
};
use contiv_controller::{Lease, Manager, queue::WorkQueueMetrics};
use contiv_proto::{
    Key, Kind, Object, Wire,
    message::{endpoints::Endpoints, namespace::Namespace, service::Service},
};
use contiv_store::{Operation, Store};
use contiv_store_testing::{Faults, MemoryStore};
use futures::{FutureExt, future::BoxFuture};
use tokio::{
    sync::{Mutex, mpsc},
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::Field,
    span::{Attributes, Id, Record},
};

/// The time limit for expected events. Generous.
pub(crate) const EVENT_TIMEOUT: Duration = Duration::from_secs(60);

/// The next action of a registry.
pub(crate) enum ScriptedAction {
    All(Catalog),
    Fail,
    Panic,
}

/// A registry with scripted actions.
struct Scripted(Mutex<mpsc::UnboundedReceiver<ScriptedAction>>);

impl Registry for Scripted {
    fn watch<'a>(&'a self, publisher: &'a Publisher) -> BoxFuture<'a, RegistryError> {
        async move {
            let mut script = self.0.lock().await;
            while let Some(action) = script.recv().await {
                match action {
                    ScriptedAction::All(catalog) => publisher.publish(catalog),
                    ScriptedAction::Fail => return RegistryError::new("script", "test error"),
                    ScriptedAction::Panic => panic!("test error"),
                }
            }
            std::future::pending().await
        }
        .boxed()
    }
}

/// The settings of a connector.
pub(crate) struct Setup {
    pub(crate) wait_for_namespace: bool,
    pub(crate) sync_period: Duration,
    pub(crate) lease: Lease,
    pub(crate) aggregator: Aggregator,
    pub(crate) host_lookup: Option<Arc<dyn HostLookup>>,
    pub(crate) faults: Faults,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            wait_for_namespace: false,
            sync_period: Duration::from_secs(600),
            lease: Lease::always_leader(),
            aggregator: Aggregator::default(),
            host_lookup: None,
            faults: Faults::NONE,
        }
    }
}

/// A running connector with one registry, `r`.
pub(crate) struct Running {
    pub(crate) store: MemoryStore,
    pub(crate) metrics: ConnectorMetrics,
    registry: prometheus_client::registry::Registry,
    pub(crate) sink: Sink,
    actions: mpsc::UnboundedSender<ScriptedAction>,
    stop: CancellationToken,
    manager: JoinHandle<()>,
}

impl Running {
    /// Starts it with a scripted registry.
    pub(crate) fn scripted(setup: Setup) -> Self {
        let (actions, script) = mpsc::unbounded_channel();
        Self::start(Arc::new(Scripted(Mutex::new(script))), actions, setup)
    }

    /// Starts it with this registry.
    pub(crate) fn of(registry: impl Registry) -> Self {
        Self::start(
            Arc::new(registry),
            mpsc::unbounded_channel().0,
            Setup::default(),
        )
    }

    fn start(
        registry: Arc<dyn Registry>,
        actions: mpsc::UnboundedSender<ScriptedAction>,
        setup: Setup,
    ) -> Self {
        let Setup {
            wait_for_namespace,
            sync_period,
            lease,
            aggregator,
            host_lookup,
            faults,
        } = setup;
        let store = MemoryStore::with_faults(faults);
        let metrics = ConnectorMetrics::default();
        let parts = Parts {
            target: Target {
                namespace: "cloud".to_owned(),
                cluster_ip_ranges: vec![
                    "10.97.0.0/16".parse().unwrap(),
                    "fd00:97::/112".parse().unwrap(),
                ],
            },
            wait_for_namespace,
            sync_period,
            registries: vec![(
                NamedRegistry {
                    name: "r".to_owned(),
                    registry,
                },
                aggregator,
            )],
            host_lookup,
            metrics: metrics.clone(),
        };
        let mut registry = prometheus_client::registry::Registry::default();
        let queues = WorkQueueMetrics::register(&mut registry);
        let mut manager = Manager::new(store.shared(), lease).with_metrics(&queues);
        let (controller, sink) = controller(parts).unwrap();
        manager.register(controller).unwrap();
        let stop = CancellationToken::new();
        let manager = tokio::spawn(manager.run(stop.clone()));
        Self {
            store,
            metrics,
            registry,
            sink,
            actions,
            stop,
            manager,
        }
    }

    pub(crate) fn act(&self, action: ScriptedAction) {
        self.actions
            .send(action)
            .unwrap_or_else(|_| panic!("the registry is gone"));
    }

    /// Stops it and waits for its end.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.manager.await.unwrap();
    }

    pub(crate) async fn put(&self, object: impl Into<Object>) {
        let object = object.into();
        let put = Operation::Put {
            key: object.key().unwrap().to_path(),
            value: object.encode().unwrap().into(),
        };
        self.store.commit(vec![put]).await.unwrap();
    }

    pub(crate) async fn delete(&self, kind: Kind, name: &str) {
        let key = Key::new(kind, "cloud", name).unwrap().to_path();
        self.store
            .commit(vec![Operation::Delete { key }])
            .await
            .unwrap();
    }

    /// Everything of one type, by name.
    pub(crate) async fn all<M: Wire>(&self) -> BTreeMap<String, M> {
        let listed = self.store.list(&Key::prefix(M::KIND)).await.unwrap();
        let read = listed.entries.iter().map(|entry| {
            let key = Key::parse(&entry.key).unwrap().unwrap();
            (
                key.name().to_owned(),
                contiv_proto::value::decode(&entry.value).unwrap(),
            )
        });
        read.collect()
    }

    pub(crate) async fn service(&self, name: &str) -> Service {
        self.all()
            .await
            .remove(name)
            .unwrap_or_else(|| panic!("there is no service {name}"))
    }

    /// The ready addresses of a service, each with its port; none without endpoints of that name.
    pub(crate) async fn backends(&self, name: &str) -> Option<BTreeSet<String>> {
        let endpoints: Endpoints = self.all().await.remove(name)?;
        let subsets = endpoints.endpoint_subsets.iter();
        let found = subsets.flat_map(|subset| {
            subset
                .addresses
                .iter()
                .map(|address| format!("{} {}", address.ip, subset.ports[0].port))
        });
        Some(found.collect())
    }

    /// Waits until a service has these backends.
    pub(crate) async fn wait_until_backends(&self, name: &str, expected: &[&str]) {
        let expected: Option<BTreeSet<String>> =
            Some(expected.iter().map(|one| (*one).to_owned()).collect());
        let start = Instant::now();
        while self.backends(name).await != expected {
            let found = self.backends(name).await;
            assert!(
                start.elapsed() < EVENT_TIMEOUT,
                "{name} has the backends {found:?}, expected {expected:?}"
            );
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until there is no service of this name.
    pub(crate) async fn wait_until_gone(&self, name: &str) {
        let start = Instant::now();
        while self.all::<Service>().await.contains_key(name) {
            assert!(start.elapsed() < EVENT_TIMEOUT, "{name} is still there");
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// How many syncs were requested so far.
    pub(crate) fn syncs(&self) -> u64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let line = text
            .lines()
            .find(|line| line.starts_with("workqueue_adds_total"))
            .unwrap();
        line.split(' ').next_back().unwrap().parse().unwrap()
    }

    /// A metric of the registry, as text.
    pub(crate) fn metric(&self, name: &str) -> String {
        let mut registry = prometheus_client::registry::Registry::default();
        self.metrics.describe(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split(' ').next_back())
            .unwrap_or_default()
            .to_owned()
    }
}

pub(crate) fn instance(address: &str, port: u16) -> Instance {
    Instance::new(address.parse().unwrap(), port)
}

pub(crate) fn catalog<const N: usize>(services: [(&str, &[(&str, u16)]); N]) -> ScriptedAction {
    let service = |instances: &[(&str, u16)]| SourceService {
        instances: instances
            .iter()
            .map(|(address, port)| instance(address, *port))
            .collect(),
        ..SourceService::default()
    };
    let services = services
        .into_iter()
        .map(|(name, of)| (name.to_owned(), Some(Arc::new(service(of)))));
    ScriptedAction::All(services.collect())
}

pub(crate) fn namespace() -> Namespace {
    Namespace {
        name: "cloud".to_owned(),
        ..Namespace::default()
    }
}

/// Waits long enough for all pending events.
pub(crate) async fn settle() {
    sleep(Duration::from_secs(20)).await;
}

/// Counts the warnings of this process that contain a text. There can be only one instance.
pub(crate) struct Warnings {
    pub(crate) text: &'static str,
    pub(crate) count: Arc<AtomicUsize>,
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut is_match = false;
        event.record(&mut |_: &Field, value: &dyn Debug| {
            is_match |= format!("{value:?}").contains(self.text);
        });
        if is_match {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
