//! The connector's metrics.

use std::collections::BTreeMap;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::plan::{Change, Problem, Size};

/// The metrics of a connector. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct ConnectorMetrics {
    up: Family<RegistryLabel, Gauge>,
    answers: Family<RegistryLabel, Counter>,
    failures: Family<RegistryLabel, Counter>,
    services: Family<RegistryLabel, Gauge>,
    endpoints: Family<RegistryLabel, Gauge>,
    problems: Family<RegistryLabel, Gauge>,
    writes: Family<OperationLabel, Counter>,
}

/// The figures of one registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegistryFigures {
    /// Whether the last query was answered.
    pub is_up: bool,
    /// Its services in the store.
    pub services: i64,
    /// Ready addresses of these services.
    pub endpoints: i64,
    /// Services that are not stored, or differ from the registry, and unusable instances.
    pub problems: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RegistryLabel {
    registry: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabel {
    operation: &'static str,
}

impl ConnectorMetrics {
    /// Creates and registers them, in a registry that prefixes every name with `contiv_`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        metrics.describe(registry);
        metrics
    }

    /// Registers them.
    pub fn describe(&self, registry: &mut Registry) {
        registry.register(
            "connector_registry_up",
            "Whether the registry answered the last query",
            self.up.clone(),
        );
        registry.register(
            "connector_registry_answers",
            "How often the registry answered",
            self.answers.clone(),
        );
        registry.register(
            "connector_registry_failures",
            "How often a query of the registry failed",
            self.failures.clone(),
        );
        registry.register(
            "connector_services",
            "Services of the registry in the store",
            self.services.clone(),
        );
        registry.register(
            "connector_endpoints",
            "Ready addresses of these services",
            self.endpoints.clone(),
        );
        registry.register(
            "connector_problems",
            "Services that are not stored, or differ from the registry, and instances that are left out",
            self.problems.clone(),
        );
        registry.register("connector_writes", "Objects written", self.writes.clone());
    }

    /// The figures of one registry.
    pub fn of(&self, registry: &str) -> RegistryFigures {
        let label = label(registry);
        let get = |family: &Family<RegistryLabel, Gauge>| family.get_or_create(&label).get();
        RegistryFigures {
            is_up: get(&self.up) == 1,
            services: get(&self.services),
            endpoints: get(&self.endpoints),
            problems: get(&self.problems),
        }
    }

    /// Counts an answer. True if the previous query failed.
    pub(crate) fn registry_up(&self, registry: &str) -> bool {
        self.answers.get_or_create(&label(registry)).inc();
        self.up.get_or_create(&label(registry)).set(1) != 1
    }

    /// Counts a failure. True if it is the first since an answer, or the very first.
    pub(crate) fn registry_failed(&self, registry: &str) -> bool {
        let is_first = self.failures.get_or_create(&label(registry)).inc() == 0;
        self.up.get_or_create(&label(registry)).set(0) == 1 || is_first
    }

    pub(crate) fn partly_failed(&self, registry: &str) {
        self.failures.get_or_create(&label(registry)).inc();
    }

    pub(crate) fn answers(&self, registry: &str) -> u64 {
        self.answers.get_or_create(&label(registry)).get()
    }

    pub(crate) fn record_plan(&self, sizes: &BTreeMap<String, Size>, problems: &[Problem]) {
        for (registry, size) in sizes {
            let set = |family: &Family<RegistryLabel, Gauge>, count: usize| {
                family
                    .get_or_create(&label(registry))
                    .set(i64::try_from(count).unwrap_or(i64::MAX));
            };
            set(&self.services, size.services);
            set(&self.endpoints, size.endpoints);
            set(
                &self.problems,
                problems
                    .iter()
                    .filter(|problem| problem.registry == *registry)
                    .count(),
            );
        }
    }

    pub(crate) fn written(&self, changes: &[Change]) {
        for change in changes {
            let operation = match change {
                Change::Delete(_) => "delete",
                Change::Update(_) => "update",
                Change::Create(_) => "create",
            };
            self.writes
                .get_or_create(&OperationLabel { operation })
                .inc();
        }
    }
}

fn label(registry: &str) -> RegistryLabel {
    RegistryLabel {
        registry: registry.to_owned(),
    }
}
