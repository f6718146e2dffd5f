//! One sync: compare desired and stored objects, plan, write.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use contiv_controller::{BoxError, Cache, Context, Key, Object, Outcome, ResourceType, Write};
use contiv_proto::{
    Kind,
    message::{endpoints::Endpoints, service::Service},
};
use ipnetwork::IpNetwork;
use parking_lot::Mutex;
use tracing::{debug, info, warn};

use super::Sink;
use crate::{
    aggregator::Aggregator,
    metrics::ConnectorMetrics,
    plan::{Change, Plan, Problem, RegistryState, Target, plan},
    stored::{Ownership, Stored},
};

/// How long a sync waits to see its own writes. Otherwise the next one may plan them again, and its conditions fail.
const OWN_WRITES: Duration = Duration::from_secs(1);

/// The context of syncs.
pub(crate) struct StoreSync {
    pub(crate) sink: Sink,
    /// In the order of the configuration.
    pub(crate) aggregators: Vec<(String, Aggregator)>,
    pub(crate) cluster_ip_ranges: Vec<IpNetwork>,
    /// Everything is compared again after this time, even without a change.
    pub(crate) period: Duration,
    pub(crate) services: ResourceType<Ownership<Service>>,
    pub(crate) endpoints: ResourceType<Ownership<Endpoints>>,
    pub(crate) metrics: ConnectorMetrics,
    /// The reported problems, so that each is reported once.
    pub(crate) reported: Mutex<Vec<Problem>>,
}

type Objects<T> = Vec<Arc<Object<Ownership<T>>>>;

impl StoreSync {
    /// Syncs the store with the registries.
    pub(crate) async fn run<T>(&self, context: &Context<T>) -> Result<Outcome, BoxError> {
        let services = context.cache_of(&self.services)?.clone();
        let endpoints = context.cache_of(&self.endpoints)?.clone();
        let (service_objects, mut unreadable) = objects(&services);
        let (endpoints_objects, more) = objects(&endpoints);
        unreadable.extend(more);
        let stored = Stored::new(&service_objects, &endpoints_objects, &unreadable);
        let target = Target {
            namespace: self.sink.sync_namespace().to_string(),
            cluster_ip_ranges: self.cluster_ip_ranges.clone(),
        };
        let hosts = self.sink.hosts();
        let plan = self.sink.read(|catalogs| {
            let states = self
                .aggregators
                .iter()
                .map(|(name, aggregator)| RegistryState {
                    name,
                    aggregator,
                    catalog: catalogs.get(name),
                    hosts: &hosts,
                });
            plan(&states.collect::<Vec<_>>(), &stored, &target)
        });
        self.report(&plan);
        if plan.changes.is_empty() {
            return Ok(Outcome::RequeueAfter(self.period));
        }
        let mut writes = Vec::with_capacity(plan.changes.len());
        for change in &plan.changes {
            writes.push(write(change, &service_objects, &endpoints_objects)?);
        }
        let revision = context.writer().commit(writes).await?;
        self.metrics.written(&plan.changes);
        info!(
            writes = plan.changes.len(),
            revision, "synced services of other registries"
        );
        let writes = |kind: Kind| plan.changes.iter().any(|change| change.kind() == kind);
        if let Some(revision) = revision {
            if writes(Kind::Service) {
                wait_for(&services, revision).await;
            }
            if writes(Kind::Endpoints) {
                wait_for(&endpoints, revision).await;
            }
        }
        Ok(Outcome::RequeueAfter(self.period))
    }

    fn report(&self, plan: &Plan) {
        self.metrics.record_plan(&plan.sizes, &plan.problems);
        let mut reported = self.reported.lock();
        for problem in plan
            .problems
            .iter()
            .filter(|problem| !reported.contains(problem))
        {
            let Problem {
                registry,
                service,
                reason,
            } = problem;
            warn!(
                registry,
                service, reason, "a service is not stored as its registry wants it"
            );
        }
        reported.clone_from(&plan.problems);
    }
}

/// All objects of a cache, by key, and the keys of unreadable ones.
fn objects<T>(cache: &Cache<Ownership<T>>) -> (Objects<T>, BTreeSet<Key>) {
    let view = cache.view();
    (
        view.list(),
        view.problems().map(|(key, _)| Arc::clone(key)).collect(),
    )
}

async fn wait_for<T>(cache: &Cache<T>, revision: i64) {
    if tokio::time::timeout(OWN_WRITES, cache.wait_for_revision(revision))
        .await
        .is_err()
    {
        debug!(revision, "the cache does not show the last write yet");
    }
}

/// The write, conditional on the object being unchanged since the plan.
fn write(
    change: &Change,
    services: &Objects<Service>,
    endpoints: &Objects<Endpoints>,
) -> Result<Write, BoxError> {
    let path = change.key()?.to_path();
    let value = match change {
        Change::Delete(_) => Vec::new(),
        Change::Update(object) | Change::Create(object) => object.encode()?,
    };
    let is_delete = match change {
        Change::Create(_) => return Ok(Write::create(&path, value)),
        Change::Delete(_) => true,
        Change::Update(_) => false,
    };
    match change.kind() {
        Kind::Service => existing(services, &path, is_delete, value),
        _ => existing(endpoints, &path, is_delete, value),
    }
}

fn existing<T>(
    objects: &Objects<T>,
    path: &str,
    is_delete: bool,
    value: Vec<u8>,
) -> Result<Write, BoxError> {
    let position = objects.binary_search_by(|object| object.key.as_ref().cmp(path));
    let object = &objects[position.map_err(|_| format!("{path} is planned, but was not read"))?];
    Ok(if is_delete {
        Write::delete(object)
    } else {
        Write::update(object, value)
    })
}
