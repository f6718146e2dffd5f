//! Which stored services this proxy does not serve.

use super::ProcessorConfig;
use crate::{
    NotServed, UnservedService,
    object::{Service, ServiceType},
};

/// The service, if this proxy does not serve it.
pub(super) fn unserved(spec: &Service, config: &ProcessorConfig) -> Option<UnservedService> {
    Some(UnservedService {
        id: spec.id.clone(),
        not_served: not_served_because(spec, config)?,
        cluster_ips: spec.cluster_ips.clone(),
        external_ips: spec.external_ips.union(&spec.load_balancer_ips),
        ports: spec.ports.clone(),
    })
}

/// Why this proxy does not serve a service; none if it does.
///
/// kube-proxy's `ShouldSkipService` and the label selector of its watch. One difference: a service without a cluster IP that
/// has other frontends is served. Kubernetes never stores one; on machines without Kubernetes it is the normal case.
pub(super) fn not_served_because(spec: &Service, config: &ProcessorConfig) -> Option<NotServed> {
    let has_frontends = !spec.cluster_ips.is_empty()
        || !spec.external_ips.is_empty()
        || !spec.load_balancer_ips.is_empty()
        || spec.ports.iter().any(|port| port.node_port.is_some());
    if spec.service_type == ServiceType::ExternalName {
        Some(NotServed::ExternalName)
    } else if spec.headless {
        Some(NotServed::Headless)
    } else if spec.proxy_name != config.service_proxy_name {
        Some(NotServed::OtherProxy(spec.proxy_name.clone()))
    } else {
        (!has_frontends).then_some(NotServed::NoAddress)
    }
}
