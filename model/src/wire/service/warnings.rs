//! Warns of valid fields that have no effect, mostly because they do not belong to the type of their service, and of source
//! ranges that leave a family open.
//!
//! An API server refuses nearly all of them; other stores, and services whose type was changed, have them. Source: Kubernetes'
//! `ValidateService` and kube-proxy's `ShouldSkipService`, `ExternalPolicyLocal` and source ranges.

use contiv_proto::message::service as proto;
use ipnetwork::IpNetwork;

use crate::{
    object::{Service, ServiceType},
    wire::error::Problems,
};

/// Whether services of this type have node ports.
pub(super) const fn has_node_ports(service_type: ServiceType) -> bool {
    matches!(
        service_type,
        ServiceType::NodePort | ServiceType::LoadBalancer
    )
}

/// Warns of the fields of a service. `service` is the validated form of `message`.
pub(super) fn warn(message: &proto::Service, service: &Service, problems: &mut Problems) {
    let is_balancer = service.service_type == ServiceType::LoadBalancer;
    let has_node_ports = has_node_ports(service.service_type);
    let is_local = |policy: &str| policy == "Local";
    let has_external_policy = is_local(&message.external_traffic_policy);
    let mut fields = Fields { service, problems };

    fields.check("spec.clusterIP", !service.cluster_ips.is_empty(), true, "");
    fields.check(
        "spec.externalIPs",
        !message.external_ips.is_empty(),
        true,
        "",
    );
    fields.check(
        "spec.sessionAffinity",
        message.session_affinity == "ClientIP",
        true,
        "",
    );
    fields.check(
        "spec.internalTrafficPolicy",
        is_local(&message.internal_traffic_policy),
        true,
        "",
    );
    for (i, _) in message
        .port
        .iter()
        .enumerate()
        .filter(|(_, port)| port.node_port != 0)
    {
        let needed = "only services of type NodePort and LoadBalancer have node ports";
        fields.check(
            format_args!("spec.ports[{i}].nodePort"),
            true,
            has_node_ports,
            needed,
        );
    }
    let is_external = has_node_ports || !service.external_ips.is_empty();
    let needed = "it is for node ports, load balancers and external IPs";
    fields.check(
        "spec.externalTrafficPolicy",
        has_external_policy,
        is_external,
        needed,
    );
    let needed =
        "only services of type LoadBalancer with externalTrafficPolicy Local have a health check";
    let is_checked = is_balancer && has_external_policy;
    fields.check(
        "spec.healthCheckNodePort",
        message.health_check_node_port != 0,
        is_checked,
        needed,
    );

    let needed = "it is for services of type LoadBalancer";
    let has_ranges = !message.loadbalancer_source_ranges.is_empty();
    fields.check(
        "spec.loadBalancerSourceRanges",
        has_ranges,
        is_balancer,
        needed,
    );
    fields.check(
        "spec.loadBalancerClass",
        !message.load_balancer_class.is_empty(),
        is_balancer,
        needed,
    );
    fields.check(
        "spec.loadBalancerIP",
        !message.loadbalancer_ip.is_empty(),
        is_balancer,
        needed,
    );
    let has_ingress = message
        .load_balancer_ingress
        .iter()
        .any(|ingress| !ingress.ip.is_empty())
        || message.lb_ingress_ips.iter().any(|ip| !ip.is_empty());
    fields.check(
        "status.loadBalancer.ingress",
        has_ingress,
        is_balancer,
        needed,
    );

    let has_timeout = message.session_affinity_timeout != 0;
    let needed = "it is for sessionAffinity ClientIP";
    let has_affinity = service.session_affinity_timeout != 0;
    fields.check(
        "spec.sessionAffinityConfig",
        has_timeout,
        has_affinity,
        needed,
    );

    warn_of_open_family(service, problems);
}

struct Fields<'a> {
    service: &'a Service,
    problems: &'a mut Problems,
}

impl Fields<'_> {
    /// Warns of a field that is given and has no effect: since no proxy serves the service, or since the field does not belong
    /// to a service of its type, and why.
    fn check(
        &mut self,
        field: impl std::fmt::Display,
        is_given: bool,
        belongs: bool,
        needed: &str,
    ) {
        if !is_given {
            return;
        }
        let no_proxy = match self.service {
            Service {
                service_type: ServiceType::ExternalName,
                ..
            } => Some("a service of type ExternalName is an alias in DNS, which no proxy serves"),
            Service { headless: true, .. } => {
                Some("no proxy serves a headless service (clusterIP None)")
            }
            _ => None,
        };
        if let Some(reason) = no_proxy {
            self.problems
                .warn(field, format!("it has no effect: {reason}"));
        } else if !belongs {
            let name = match self.service.service_type {
                ServiceType::ClusterIp => "ClusterIP",
                ServiceType::NodePort => "NodePort",
                ServiceType::LoadBalancer => "LoadBalancer",
                ServiceType::ExternalName => "ExternalName",
            };
            self.problems.warn(
                field,
                format!("it has no effect: {needed}, and this one is of type {name}"),
            );
        }
    }
}

/// Warns of an address of a load balancer whose family has no source range, although the other family is restricted.
fn warn_of_open_family(service: &Service, problems: &mut Problems) {
    let ranges = &service.source_ranges;
    if ranges.iter().any(|range| range.prefix() == 0) {
        return;
    }
    for (is_ipv6, family) in [(false, "IPv4"), (true, "IPv6")] {
        let is_restricted = ranges
            .iter()
            .any(|range: &IpNetwork| range.is_ipv6() == is_ipv6);
        let open = service
            .load_balancer_ips
            .iter()
            .find(|ip| ip.is_ipv6() == is_ipv6);
        if let Some(address) = open.filter(|_| !ranges.is_empty() && !is_restricted) {
            let reason = format!(
                "none of the ranges is {family}, so everyone may connect to {address}, as with kube-proxy; add {family} \
                 ranges to restrict it"
            );
            problems.warn("spec.loadBalancerSourceRanges", reason);
        }
    }
}
