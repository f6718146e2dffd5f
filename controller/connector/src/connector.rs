//! Assembles the connector as one controller: registries, sink and syncs.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use contiv_controller::{
    BoxError, Context, Controller, Key, Mapper, Outcome, ResourceType, queue::Debounce,
};
use contiv_proto::{Kind, message::namespace::Namespace};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::{
    aggregator::{Aggregator, HostNames},
    host_names,
    metrics::ConnectorMetrics,
    plan::Target,
    registry::{self, HostLookup, NamedRegistry, Publisher},
    sink::{Sink, StoreSync},
    stored,
};

/// `K8SQuietPeriod` and `K8SMaxPeriod`.
pub const DEBOUNCE: Debounce = Debounce {
    quiet: Duration::from_secs(1),
    max_delay: Duration::from_secs(5),
};

/// The maximum back-off of a failing sync.
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// The parts of a connector.
#[derive(Debug)]
pub struct Parts {
    /// The target of services.
    pub target: Target,
    /// Whether to wait until the store has the namespace.
    pub wait_for_namespace: bool,
    /// How often everything is compared again, without a change (flomesh's `SyncPeriod`).
    pub sync_period: Duration,
    /// The registries with their settings, in the order in which they get a name that several want.
    pub registries: Vec<(NamedRegistry, Aggregator)>,
    /// Looks up host names, for registries that need it; none if no registry does.
    pub host_lookup: Option<Arc<dyn HostLookup>>,
    /// The connector's metrics.
    pub metrics: ConnectorMetrics,
}

/// A controller that brings services of other registries into the store, and its sink, which may have other writers too. It is
/// a singleton: only the process that writes watches the registries.
///
/// # Errors
/// When the namespace is invalid.
pub fn controller(parts: Parts) -> Result<(Controller<Namespace>, Sink), BoxError> {
    let (sink, requests) = Sink::new();
    let Parts {
        target,
        wait_for_namespace,
        sync_period,
        registries,
        host_lookup,
        metrics,
    } = parts;
    let resolving: BTreeSet<String> = registries
        .iter()
        .filter(|(_, aggregator)| aggregator.host_names == HostNames::Resolve)
        .map(|(registry, _)| registry.name.clone())
        .collect();
    sink.set_sync_namespace(&target.namespace)?;
    let (services, endpoints) = (stored::services(), stored::endpoints());
    let sync = Arc::new(StoreSync {
        sink: sink.clone(),
        aggregators: registries
            .iter()
            .map(|(registry, aggregator)| (registry.name.clone(), aggregator.clone()))
            .collect(),
        cluster_ip_ranges: target.cluster_ip_ranges,
        period: sync_period,
        services: services.clone(),
        endpoints: endpoints.clone(),
        metrics: metrics.clone(),
        reported: Mutex::default(),
    });
    let publishers: Vec<(NamedRegistry, Publisher)> = registries
        .into_iter()
        .map(|(registry, _)| {
            let publisher = Publisher::new(&registry.name, sink.clone(), metrics.clone());
            (registry, publisher)
        })
        .collect();
    let background_sink = sink.clone();
    // The namespace that does not exist, once the log has said so.
    let awaited = Arc::new(Mutex::new(None::<Key>));
    let controller = Controller::for_type(&namespaces())
        .named("connector")
        // Every event causes a sync of everything, under the key of the namespace at that time.
        .with_watch(&services, to(&sink))
        .with_watch(&endpoints, to(&sink))
        .with_custom_watch(requests, {
            let sink = sink.clone();
            move |_, ()| Ok::<_, BoxError>(vec![key_of(&sink)])
        })
        .with_debounce(DEBOUNCE)
        .with_warm_standby()
        .with_backoff(Duration::from_millis(5), MAX_BACKOFF)
        .on_start({
            let sink = sink.clone();
            // Another process may have written since: the previous content of the sink is too old.
            move || sink.forget()
        })
        .with_background(move |context: Context<Namespace>| {
            let publishers = publishers.clone();
            let resolver = host_lookup.clone().filter(|_| !resolving.is_empty());
            let resolver = resolver
                .map(|lookup| host_names::keep_resolved(background_sink.clone(), resolving.clone(), lookup));
            async move {
                let mut tasks = JoinSet::new();
                if let Some(resolver) = resolver {
                    tasks.spawn(resolver);
                }
                for (registry, publisher) in publishers {
                    tasks.spawn(registry::watch_with_retries(registry, publisher));
                }
                context.stop().cancelled().await;
                tasks.shutdown().await;
                Ok(())
            }
        })
        .with_reconciler(move |context: Context<Namespace>, key: Key| {
            let (sync, namespace, awaited) = (Arc::clone(&sync), key_of(&sync.sink), Arc::clone(&awaited));
            async move {
                // Another namespace, or the one before it was changed.
                if key != namespace {
                    return Ok(Outcome::Done);
                }
                if wait_for_namespace && context.cache().get(&key).is_none() {
                    // Once for each namespace, not at every change of a registry.
                    if awaited.lock().replace(key.clone()).as_ref() != Some(&key) {
                        warn!(%namespace, "the namespace does not exist in the store: no service is written until it does (wait-for-namespace)");
                    }
                    return Ok(Outcome::Done);
                }
                if awaited.lock().take().is_some() {
                    info!(%namespace, "the namespace exists now");
                }
                sync.run(&context).await
            }
        })
        .build()?;
    Ok((controller, sink))
}

fn namespaces() -> ResourceType<Namespace> {
    let prefix = contiv_proto::Key::prefix(Kind::Namespace);
    ResourceType::new("namespace", &prefix, |entry| {
        contiv_proto::value::decode::<Namespace>(&entry.value)
    })
}

/// The full key of the namespace of the stored services, which is that of their syncs.
fn key_of(sink: &Sink) -> Key {
    [
        &contiv_proto::Key::prefix(Kind::Namespace),
        &*sink.sync_namespace(),
    ]
    .concat()
    .into()
}

fn to<T: Send + Sync + 'static>(sink: &Sink) -> Mapper<T> {
    let sink = sink.clone();
    Mapper::of(move |_| vec![key_of(&sink)])
}
