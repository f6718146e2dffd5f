//! The metrics of the node. One struct for each concern; sizes are set when they are read.

mod events;
mod failover;
mod kube_proxy;
mod renderers;
mod service_sizes;
mod shared_tables;
mod sizes;
mod value;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use contiv_model::Families;
use contiv_renderer::{ForwardingOff, shared_tables::TableUse};
use prometheus_client::registry::Registry;

use crate::{
    Core,
    message::{Extent, Metric},
};

use events::EventMetrics;
use failover::FailoverMetrics;
pub use kube_proxy::KubeProxyMetrics;
use renderers::RendererMetrics;
pub use service_sizes::{LostFrontend, ServiceSizes};
use shared_tables::SharedTableMetrics;
use sizes::SizeMetrics;

/// The metrics of the node. Clones count together.
#[derive(Debug, Clone)]
pub struct NodeMetrics {
    events: EventMetrics,
    renderers: RendererMetrics,
    sizes: SizeMetrics,
    shared_tables: SharedTableMetrics,
    failover: FailoverMetrics,
    kube_proxy: Option<KubeProxyMetrics>,
}

impl NodeMetrics {
    /// Registers them with a registry whose prefix is `contiv`.
    pub fn register(registry: &mut Registry) -> Self {
        Self {
            events: EventMetrics::register(registry),
            renderers: RendererMetrics::register(registry),
            sizes: SizeMetrics::register(registry),
            shared_tables: SharedTableMetrics::register(registry),
            failover: FailoverMetrics::register(registry),
            kube_proxy: None,
        }
    }

    /// Adds the metrics of kube-proxy, for the renderer of this node's traffic. `registry` has no prefix.
    pub fn add_kube_proxy(&mut self, traffic_renderer: &str, registry: &mut Registry) {
        self.kube_proxy = Some(KubeProxyMetrics::register(
            traffic_renderer.into(),
            registry,
        ));
    }

    /// Those of kube-proxy, if they were added.
    pub const fn kube_proxy(&self) -> Option<&KubeProxyMetrics> {
        self.kube_proxy.as_ref()
    }

    /// Updates a metric.
    pub fn count(&self, metric: &Metric) {
        match metric {
            Metric::Event(kind) => self.events.count(kind),
            Metric::StoreRepair(inconsistency) => self.events.count_repair(*inconsistency),
            Metric::BackendLeft(cause) => self.failover.count_ejection(*cause),
            Metric::BackendReturned => self.failover.count_return(),
            _ => self.renderers.count(metric),
        }
        if let Some(kube_proxy) = &self.kube_proxy {
            kube_proxy.count(metric);
        }
    }

    /// Sets the gauges that are functions of the node's state.
    pub fn set_state(&self, core: &Core, now: Instant) {
        let status = core.status();
        self.failover
            .set(status.failover.as_ref().map_or(0, |failover| failover.out));
        self.sizes.set(&status, &ServiceSizes::of(core));
        self.renderers.set(&core.renderers(now));
        if let Some(kube_proxy) = &self.kube_proxy {
            kube_proxy.set(core);
        }
    }

    /// Sets what keeps packets of services from being forwarded.
    pub fn set_forwarding_off(&self, off: &[ForwardingOff]) {
        self.sizes.set_forwarding_off(off);
    }

    /// Sets how full the kernel's shared tables are.
    pub fn set_shared_tables(&self, tables: &[TableUse]) {
        self.shared_tables.set(tables);
    }

    /// Counts an example of every label, so that the reference documentation lists all of them.
    pub fn count_examples(&self) {
        self.shared_tables.set_examples();
        let renderer: Arc<str> = "nftables".into();
        let extent = |is_full| Extent {
            is_full,
            families: Families::ALL,
        };
        for metric in [
            Metric::Event("change"),
            Metric::Renderer(Arc::clone(&renderer)),
            Metric::Queued(Families::ALL),
            Metric::Applied(Arc::clone(&renderer), Duration::ZERO, extent(true)),
            Metric::Applied(Arc::clone(&renderer), Duration::ZERO, extent(false)),
            Metric::Programmed {
                renderer: Arc::clone(&renderer),
                since_receipt: Some(Duration::ZERO),
                since_trigger: Some(Duration::ZERO),
                families: Families::ALL,
            },
            Metric::Verified(Arc::clone(&renderer), 0),
        ] {
            self.count(&metric);
        }
        self.renderers.create_gauges(&renderer);
        if let Some(kube_proxy) = &self.kube_proxy {
            kube_proxy.set_examples();
        }
    }
}
