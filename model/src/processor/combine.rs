//! Combines a service with its endpoints.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use ipnetwork::IpNetwork;

use super::{
    ProcessorConfig, backends, cache::Cache, not_served::not_served_because, placement::Placement,
    sources::Sources,
};
use crate::{
    Assignment, ContivService, FailoverMode, PodId, ServicePort, TrafficPolicy,
    object::{EndpointSlice, Seniority, Service},
};

/// A service as renderers get it, with the processor's own data about it.
#[derive(Debug, Clone)]
pub(super) struct ServiceRecord {
    pub(super) service: Arc<ContivService>,
    pub(super) seniority: Seniority,
    /// Whether routes should carry it, if they can.
    pub(super) asks_for_routes: bool,
    /// The pods of this node among its backends.
    pub(super) local_pods: BTreeSet<PodId>,
}

/// Combines a service; none if it is not for this proxy.
///
/// Unlike in Contiv, a service without any endpoints is combined too, so that its clients are rejected instead of timing out.
pub(super) fn combine<'a>(
    sources: Sources<'a, impl Iterator<Item = &'a EndpointSlice>>,
    cache: &Cache,
    placement: &Placement,
    config: &ProcessorConfig,
    failing: Option<&BTreeSet<SocketAddr>>,
) -> Option<ServiceRecord> {
    let spec = sources.service;
    if not_served_because(spec, config).is_some() {
        return None;
    }
    let failover = spec.options.failover.unwrap_or(config.failover);
    let failing = failing.filter(|_| failover == FailoverMode::On);
    let backends = backends::collect(
        sources,
        cache,
        placement,
        config.local_endpoint_weight,
        failing,
    );
    let ports = spec
        .ports
        .iter()
        .zip(backends.of_ports)
        .map(|(port, backends)| ServicePort {
            port: port.port,
            protocol: port.protocol,
            name: port.name.clone(),
            node_port: port.node_port,
            backends,
        });
    let mut ports: Vec<ServicePort> = ports.collect();
    // The order in the object has no meaning.
    ports.sort();
    let source_ranges = source_ranges(spec, placement);
    let service = ContivService {
        id: spec.id.clone(),
        external_policy: spec.external_policy,
        internal_policy: if config.contiv_local_policy
            && spec.external_policy == TrafficPolicy::Local
        {
            TrafficPolicy::Local
        } else {
            spec.internal_policy
        },
        session_affinity_timeout: spec.session_affinity_timeout,
        affinity_shared: spec.options.affinity_shared && spec.session_affinity_timeout != 0,
        balance: spec.options.balance,
        reset_connections: spec.options.reset_connections,
        failover,
        // Depends on other services too, so it is set later.
        assignment: Assignment::default(),
        cluster_ips: spec.cluster_ips.clone(),
        external_ips: spec.external_ips.union(&spec.load_balancer_ips),
        load_balancer_ips: spec.load_balancer_ips.clone(),
        source_ranges_on_node_ports: config.source_ranges_on_node_ports
            && !source_ranges.is_empty(),
        source_ranges,
        health_check_node_port: spec.health_check_node_port,
        ports,
        lost: BTreeMap::new(),
    };
    Some(ServiceRecord {
        service: Arc::new(service),
        seniority: spec.seniority,
        asks_for_routes: spec.options.routed.unwrap_or(config.route_all),
        local_pods: backends.local_pods,
    })
}

/// The source ranges, if any apply.
///
/// If this node may connect, the load balancer's own address may too: it is the source address when the node has it on an
/// interface. Source: kube-proxy's firewall chains.
fn source_ranges(spec: &Service, placement: &Placement) -> BTreeSet<IpNetwork> {
    let mut ranges = restricting(&spec.source_ranges);
    let includes = |ip: &IpAddr| ranges.iter().any(|range| range.contains(*ip));
    let families_of_node: BTreeSet<bool> = placement
        .facts
        .primary_ips
        .iter()
        .filter(|ip| includes(ip))
        .map(IpAddr::is_ipv4)
        .collect();
    let own = spec
        .load_balancer_ips
        .iter()
        .filter(|ip| families_of_node.contains(&ip.is_ipv4()));
    ranges.extend(own.map(|ip| IpNetwork::from(*ip)));
    ranges
}

/// The ranges without families that are open to everyone: a range of all addresses makes the others of its family meaningless.
fn restricting(ranges: &BTreeSet<IpNetwork>) -> BTreeSet<IpNetwork> {
    let is_open = |ipv4: bool| {
        ranges
            .iter()
            .any(|range| range.prefix() == 0 && range.is_ipv4() == ipv4)
    };
    let (ipv4_is_open, ipv6_is_open) = (is_open(true), is_open(false));
    let restricts = |range: &IpNetwork| {
        if range.is_ipv4() {
            !ipv4_is_open
        } else {
            !ipv6_is_open
        }
    };
    ranges.iter().copied().filter(restricts).collect()
}
