//! Numbers of objects: set from the node's sizes when they are read.

use contiv_renderer::ForwardingOff;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};

use super::{service_sizes::ServiceSizes, value};
use crate::Status;

/// The gauges.
#[derive(Debug, Clone, Default)]
pub(super) struct SizeMetrics {
    services: Gauge,
    service_ports: Gauge,
    backends: Gauge,
    services_without_backends: Gauge,
    services_with_lost_frontends: Gauge,
    services_without_address: Gauge,
    quarantined: Gauge,
    revision: Gauge,
    ready: Gauge,
    store_up: Gauge,
    from_mirror: Gauge,
    self_check_failing: Gauge,
    mirror_revision: Gauge,
    forwarding_off: Family<FamilyLabel, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FamilyLabel {
    ip_family: &'static str,
}

impl SizeMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let sizes = Self::default();
        let gauges = [
            ("services", "Services of the renderers", &sizes.services),
            (
                "service_ports",
                "Ports of these services",
                &sizes.service_ports,
            ),
            (
                "backends",
                "Backends of these services, summed over all ports",
                &sizes.backends,
            ),
            (
                "services_without_backends",
                "Services with a port without a backend",
                &sizes.services_without_backends,
            ),
            (
                "services_with_lost_frontends",
                "Services that claim an address and port, or a node port, that another service has",
                &sizes.services_with_lost_frontends,
            ),
            (
                "services_without_address",
                "Stored services with neither an address nor a node port, which cannot be served",
                &sizes.services_without_address,
            ),
            (
                "quarantined_objects",
                "Stored objects that cannot be used, or only in part",
                &sizes.quarantined,
            ),
            (
                "store_revision",
                "The last handled revision of the store",
                &sizes.revision,
            ),
            (
                "ready",
                "1 when every renderer has applied its first snapshot",
                &sizes.ready,
            ),
            ("store_up", "1 while the store is watched", &sizes.store_up),
            (
                "from_mirror",
                "1 while the active state is that of the mirror",
                &sizes.from_mirror,
            ),
            (
                "self_check_failing",
                "1 while the agent does not reach itself through its rules",
                &sizes.self_check_failing,
            ),
            (
                "mirror_revision",
                "The last revision saved in the mirror",
                &sizes.mirror_revision,
            ),
        ];
        for (name, help, gauge) in gauges {
            registry.register(name, help, gauge.clone());
        }
        let help = "1 if services need forwarding of the family, and it is off";
        registry.register("forwarding_off", help, sizes.forwarding_off.clone());
        sizes.set_forwarding_off(&[]);
        sizes
    }

    /// Sets whether packets are not forwarded.
    pub(super) fn set_forwarding_off(&self, off: &[ForwardingOff]) {
        for ip_family in ["IPv4", "IPv6"] {
            let is_off = off.iter().any(|off| off.ip_family == ip_family);
            self.forwarding_off
                .get_or_create(&FamilyLabel { ip_family })
                .set(is_off.into());
        }
    }

    /// Sets all of them.
    pub(super) fn set(&self, status: &Status, sizes: &ServiceSizes) {
        for (gauge, size) in [
            (&self.services, sizes.services),
            (&self.service_ports, sizes.service_ports),
            (&self.backends, sizes.backends),
            (
                &self.services_without_backends,
                sizes.services_without_backends,
            ),
            (
                &self.services_with_lost_frontends,
                sizes.services_with_lost_frontends,
            ),
            (
                &self.services_without_address,
                sizes.services_without_address,
            ),
            (&self.quarantined, status.quarantined),
        ] {
            gauge.set(value::gauge(size));
        }
        self.revision.set(status.revision);
        self.ready.set(status.ready.into());
        self.from_mirror.set(status.from_mirror.into());
        self.self_check_failing
            .set(status.self_check.is_some().into());
        let saved = status.mirror.as_ref().and_then(|mirror| mirror.revision);
        self.mirror_revision.set(saved.unwrap_or_default());
        self.store_up
            .set((status.synced && status.store_down.is_none()).into());
    }
}
