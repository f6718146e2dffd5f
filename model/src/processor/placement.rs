//! Where an endpoint's address is: on this node or not, a node's own or a pod's, and what to send to instead.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use ipnetwork::IpNetwork;

use super::{LocalDetect, NodePortAddresses, ProcessorConfig, cache::Cache};
use crate::{ClusterIpMasquerade, NodeFacts, NodeName, PodId, object::EndpointAddress};

/// What endpoint addresses are judged by. Derived from the nodes and custom allocations as a whole, so that nothing of an
/// object that is gone can stay behind.
#[derive(Debug, Clone)]
pub(super) struct Placement {
    /// What renderers are told of this node.
    pub(super) facts: NodeFacts,
    /// This node.
    pub(super) node_name: NodeName,
    /// The zone of this node.
    pub(super) zone: Option<Arc<str>>,
    /// The addresses this node is known by.
    pub(super) own_ips: BTreeSet<IpAddr>,
    pod_cidrs: BTreeSet<IpNetwork>,
    all_node_ips: BTreeSet<IpAddr>,
    redirects: Redirects,
}

/// From a pod's main address to that of its service-endpoint interface. Two pods can claim one address for a moment, when
/// it is reused.
type Redirects = BTreeMap<(IpAddr, PodId), IpAddr>;

/// Where one endpoint is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The address to send to.
    pub(super) ip: IpAddr,
    /// It is on this node.
    pub(super) local: bool,
    /// The address is a node's own.
    pub(super) on_node_address: bool,
}

/// Which addresses may be elsewhere after a change. It spares a look at all the others, which is nearly all.
pub(super) enum Moves {
    /// Any: the ranges of this node's pods changed.
    Any,
    /// These.
    Of(BTreeSet<IpAddr>),
}

impl Moves {
    /// This address may be elsewhere.
    pub(super) fn concern(&self, ip: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::Of(ips) => ips.contains(&ip),
        }
    }
}

impl Placement {
    /// Reads the nodes and allocations. What the configuration says of this node replaces what the store says. The
    /// interfaces of this node have the addresses `local_ips`.
    pub(super) fn derive(cache: &Cache, config: &ProcessorConfig, local_ips: &BTreeSet<IpAddr>) -> Self {
        let this = &config.node_name;
        let of_nodes = cache.nodes.values().map(|node| (&node.name, &node.ips));
        let of_vpp_nodes = cache.vpp_nodes.values().map(|node| (&node.name, &node.ips));
        let mut own_ips = BTreeSet::new();
        let mut all_node_ips = config.node_ips.clone();
        for (name, ips) in of_nodes.chain(of_vpp_nodes) {
            all_node_ips.extend(ips);
            if name == this {
                own_ips.extend(ips);
            }
        }
        let stored = cache.nodes.get(this);
        let pod_cidrs = if config.pod_cidrs.is_empty() {
            stored.map(|node| node.pod_cidrs.clone()).unwrap_or_default()
        } else {
            config.pod_cidrs.clone()
        };
        let primary = if config.node_ips.is_empty() { &own_ips } else { &config.node_ips };
        let facts = NodeFacts {
            node_ips: node_port_ips(config, primary, local_ips),
            primary_ips: primary.clone(),
            local_ips: local_ips.clone(),
            pod_cidrs: match config.local_detect {
                LocalDetect::PodCidrs => pod_cidrs.clone(),
                LocalDetect::Interfaces(_) | LocalDetect::None => BTreeSet::new(),
            },
            pod_interfaces: match &config.local_detect {
                LocalDetect::Interfaces(interfaces) => interfaces.clone(),
                LocalDetect::PodCidrs | LocalDetect::None => BTreeSet::new(),
            },
            cluster_ip_masquerade: match config.local_detect {
                _ if config.masquerade_all => ClusterIpMasquerade::All,
                LocalDetect::None => ClusterIpMasquerade::None,
                LocalDetect::PodCidrs | LocalDetect::Interfaces(_) => ClusterIpMasquerade::AllButPods,
            },
            service_cidrs: config.service_cidrs.clone(),
        };
        own_ips.extend(&config.node_ips);
        let zone = config.zone.clone().or_else(|| stored.and_then(|node| node.zone.clone()));
        let redirects = redirects(cache);
        Self { facts, node_name: this.clone(), zone, own_ips, pod_cidrs, all_node_ips, redirects }
    }

    /// Where this address is.
    pub(super) fn place(&self, address: &EndpointAddress) -> Place {
        // Judged by the pod's main address: the custom one may be of any network.
        let ip = address.ip;
        let local = match &address.node_name {
            Some(node_name) => *node_name == self.node_name,
            None => self.pod_cidrs.iter().any(|cidr| cidr.contains(ip)) || self.own_ips.contains(&ip),
        };
        Place {
            ip: self.redirect(address).unwrap_or(ip),
            local,
            on_node_address: self.all_node_ips.contains(&ip),
        }
    }

    /// Which addresses may be elsewhere than they were; none if none can be.
    pub(super) fn moves_since(&self, before: &Self) -> Option<Moves> {
        if self.pod_cidrs != before.pod_cidrs {
            return Some(Moves::Any);
        }
        let mut ips = BTreeSet::new();
        ips.extend(self.own_ips.symmetric_difference(&before.own_ips));
        ips.extend(self.all_node_ips.symmetric_difference(&before.all_node_ips));
        // An entry whose target alone changed is different on both sides.
        let differing = |these: &Redirects, those: &Redirects| -> Vec<IpAddr> {
            let differs = these.iter().filter(|(from, to)| those.get(*from) != Some(*to));
            differs.map(|((ip, _), _)| *ip).collect()
        };
        ips.extend(differing(&self.redirects, &before.redirects));
        ips.extend(differing(&before.redirects, &self.redirects));
        (!ips.is_empty()).then_some(Moves::Of(ips))
    }

    /// Services reach this pod, known by these main addresses, through its custom interface.
    pub(super) fn is_redirected(&self, pod: &PodId, ips: &BTreeSet<IpAddr>) -> bool {
        ips.iter().any(|ip| self.redirects.contains_key(&(*ip, pod.clone())))
    }

    fn redirect(&self, address: &EndpointAddress) -> Option<IpAddr> {
        if self.redirects.is_empty() {
            return None;
        }
        if let Some(pod) = &address.pod {
            return self.redirects.get(&(address.ip, pod.clone())).copied();
        }
        let from = (address.ip, PodId::new("", ""));
        let (first, ip) = self.redirects.range(from..).next()?;
        (first.0 == address.ip).then_some(*ip)
    }
}

/// The addresses on which node ports answer.
fn node_port_ips(
    config: &ProcessorConfig,
    primary: &BTreeSet<IpAddr>,
    local_ips: &BTreeSet<IpAddr>,
) -> BTreeSet<IpAddr> {
    let of_interfaces = |is_meant: &dyn Fn(&IpAddr) -> bool| -> Vec<IpAddr> {
        local_ips.iter().filter(|ip| !ip.is_loopback() && is_meant(ip)).copied().collect()
    };
    let mut ips = BTreeSet::new();
    for addresses in &config.node_port_addresses {
        match addresses {
            NodePortAddresses::Primary => ips.extend(primary),
            NodePortAddresses::All => ips.extend(of_interfaces(&|ip| !is_link_local(ip))),
            NodePortAddresses::Within(range) => ips.extend(of_interfaces(&|ip| range.contains(*ip))),
        }
    }
    if config.node_ports_on_loopback {
        // Not ::1: the kernel takes it for an address of the loopback interface alone, so answers do not find back
        // (`rt6_need_strict` in `net/ipv6/route.c`).
        ips.insert(IpAddr::from(Ipv4Addr::LOCALHOST));
    }
    ips
}

const fn is_link_local(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

fn redirects(cache: &Cache) -> Redirects {
    let mut redirects = BTreeMap::new();
    for allocation in cache.ip_allocations.values() {
        let Some(custom) = allocation.service_endpoint().and_then(|interface| interface.ip) else { continue };
        let Some(pod) = cache.pods.get(&allocation.pod).filter(|pod| !pod.host_network) else { continue };
        for main in pod.ips.iter().filter(|main| main.is_ipv4() == custom.is_ipv4()) {
            redirects.insert((*main, pod.id.clone()), custom);
        }
    }
    redirects
}
