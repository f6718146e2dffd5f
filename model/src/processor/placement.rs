//! Locates an endpoint's address: on this node or elsewhere, a node's or a pod's, and the address it is redirected to.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use ipnetwork::IpNetwork;

use super::{LocalDetect, NodePortAddresses, ProcessorConfig, cache::Cache};
use crate::{
    ClusterIpMasquerade, NodeFacts, NodeName, PodId,
    object::{EndpointAddress, Node},
};

/// The data that endpoint addresses are located by. Derived from all nodes and custom allocations at once, so that nothing of a
/// deleted object remains.
#[derive(Debug, Clone)]
pub(super) struct Placement {
    /// Facts for renderers.
    pub(super) facts: NodeFacts,
    /// This node.
    pub(super) node_name: NodeName,
    /// The zone of this node.
    pub(super) zone: Option<Arc<str>>,
    /// All addresses of this node in the store or the configuration.
    own_ips: BTreeSet<IpAddr>,
    /// Endpoints in these ranges without a node name are on this node.
    local_cidrs: BTreeSet<IpNetwork>,
    all_node_ips: BTreeSet<IpAddr>,
    redirects: Redirects,
}

/// Maps a pod's main address to that of its service-endpoint interface. For a moment two pods can have one address, when it is
/// reused.
type Redirects = BTreeMap<(IpAddr, PodId), IpAddr>;

/// The location of one endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The address to send to.
    pub(super) ip: IpAddr,
    /// It is on this node.
    pub(super) local: bool,
    /// The address belongs to a node.
    pub(super) on_node_address: bool,
}

/// The addresses whose location may have changed. It spares the check of all others.
pub(super) enum MovedAddresses {
    /// Any address: the ranges of this node changed.
    Any,
    /// Only these addresses.
    Of(BTreeSet<IpAddr>),
}

impl MovedAddresses {
    /// True if the location of this address may have changed.
    pub(super) fn concern(&self, ip: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::Of(ips) => ips.contains(&ip),
        }
    }
}

impl Placement {
    /// Reads the nodes and allocations. The configuration of this node overrides the store. `local_ips` are the addresses of
    /// this node's interfaces.
    pub(super) fn derive(
        cache: &Cache,
        config: &ProcessorConfig,
        local_ips: &BTreeSet<IpAddr>,
    ) -> Self {
        let this = &config.node_name;
        let stored = cache.nodes.get(this);
        let of_vpp_nodes = |is_selected: &dyn Fn(&NodeName) -> bool| -> Vec<IpAddr> {
            let vpp_nodes = cache
                .vpp_nodes
                .values()
                .filter(|node| is_selected(&node.name));
            vpp_nodes
                .flat_map(|node| node.ips.iter().copied())
                .collect()
        };
        let mut all_node_ips = config.node_ips.clone();
        all_node_ips.extend(cache.nodes.values().flat_map(Node::ips));
        all_node_ips.extend(of_vpp_nodes(&|_| true));
        let own_vpp_ips = of_vpp_nodes(&|name| name == this);
        let mut own_ips = config.node_ips.clone();
        own_ips.extend(
            stored
                .into_iter()
                .flat_map(Node::ips)
                .chain(own_vpp_ips.iter().copied()),
        );
        let primary_ips: BTreeSet<IpAddr> = if config.node_ips.is_empty() {
            stored
                .into_iter()
                .flat_map(Node::host_ips)
                .chain(own_vpp_ips)
                .collect()
        } else {
            config.node_ips.clone()
        };
        let stored_cidrs = stored.map(|node| &node.pod_cidrs);
        let facts = NodeFacts {
            other_node_ips: if config
                .node_port_addresses
                .contains(&NodePortAddresses::Cluster)
            {
                let others = all_node_ips
                    .difference(&own_ips)
                    .filter(|ip| !local_ips.contains(ip));
                others.copied().collect()
            } else {
                BTreeSet::new()
            },
            node_ips: node_port_ips(config, &primary_ips, local_ips),
            primary_ips,
            local_ips: local_ips.clone(),
            pod_cidrs: match config.local_detect {
                LocalDetect::PodCidrs if config.pod_cidrs.is_empty() => {
                    stored_cidrs.cloned().unwrap_or_default()
                }
                LocalDetect::PodCidrs => config.pod_cidrs.clone(),
                LocalDetect::Interfaces(_) | LocalDetect::None => BTreeSet::new(),
            },
            pod_interfaces: match &config.local_detect {
                LocalDetect::Interfaces(interfaces) => interfaces.clone(),
                LocalDetect::PodCidrs | LocalDetect::None => BTreeSet::new(),
            },
            cluster_ip_masquerade: match config.local_detect {
                _ if config.masquerade_all => ClusterIpMasquerade::All,
                LocalDetect::None => ClusterIpMasquerade::None,
                LocalDetect::PodCidrs | LocalDetect::Interfaces(_) => {
                    ClusterIpMasquerade::AllButPods
                }
            },
            service_cidrs: config.service_cidrs.clone(),
            // The interfaces are not known here.
            service_interfaces: None,
            masquerade_sources: BTreeMap::new(),
            non_masquerade_cidrs: config
                .masquerade_egress
                .then(|| non_masquerade_cidrs(cache, config, of_vpp_nodes(&|_| true))),
        };
        // If the store has this node, the configured range may be that of the whole cluster.
        let local_cidrs = stored_cidrs.unwrap_or(&config.pod_cidrs).clone();
        let zone = config
            .zone
            .clone()
            .or_else(|| stored.and_then(|node| node.zone.clone()));
        let redirects = redirects(cache);
        Self {
            facts,
            node_name: this.clone(),
            zone,
            own_ips,
            local_cidrs,
            all_node_ips,
            redirects,
        }
    }

    /// True if the store or the configuration gives this address to this node.
    pub(super) fn is_own(&self, address: IpAddr) -> bool {
        self.own_ips.contains(&address)
    }

    /// Locates this address.
    pub(super) fn place(&self, address: &EndpointAddress) -> Place {
        // Located by the pod's main address: the custom one may be of any network.
        let ip = address.ip;
        let local = match &address.node_name {
            Some(node_name) => *node_name == self.node_name,
            None => {
                self.local_cidrs.iter().any(|cidr| cidr.contains(ip)) || self.own_ips.contains(&ip)
            }
        };
        Place {
            ip: self.redirect(address).unwrap_or(ip),
            local,
            on_node_address: self.all_node_ips.contains(&ip),
        }
    }

    /// The addresses whose location may have changed; none if none did.
    pub(super) fn moves_since(&self, before: &Self) -> Option<MovedAddresses> {
        if self.local_cidrs != before.local_cidrs {
            return Some(MovedAddresses::Any);
        }
        let mut ips = BTreeSet::new();
        ips.extend(self.own_ips.symmetric_difference(&before.own_ips));
        ips.extend(self.all_node_ips.symmetric_difference(&before.all_node_ips));
        // An entry with a new target differs on both sides.
        let differing = |these: &Redirects, those: &Redirects| -> Vec<IpAddr> {
            let differs = these
                .iter()
                .filter(|(from, to)| those.get(*from) != Some(*to));
            differs.map(|((ip, _), _)| *ip).collect()
        };
        ips.extend(differing(&self.redirects, &before.redirects));
        ips.extend(differing(&before.redirects, &self.redirects));
        (!ips.is_empty()).then_some(MovedAddresses::Of(ips))
    }

    /// True if services reach this pod, with these main addresses, through its custom interface.
    pub(super) fn is_redirected(&self, pod: &PodId, ips: &BTreeSet<IpAddr>) -> bool {
        ips.iter()
            .any(|ip| self.redirects.contains_key(&(*ip, pod.clone())))
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

/// The addresses on which node ports answer. If the setting has only ranges and none of a family, all addresses of that family.
/// Source: kube-proxy's `NodePortAddresses`.
fn node_port_ips(
    config: &ProcessorConfig,
    primary: &BTreeSet<IpAddr>,
    local_ips: &BTreeSet<IpAddr>,
) -> BTreeSet<IpAddr> {
    let of_interfaces = |is_selected: &dyn Fn(&IpAddr) -> bool| -> Vec<IpAddr> {
        local_ips
            .iter()
            .filter(|ip| !ip.is_loopback() && is_selected(ip))
            .copied()
            .collect()
    };
    let mut ips = BTreeSet::new();
    for addresses in &config.node_port_addresses {
        match addresses {
            NodePortAddresses::Primary | NodePortAddresses::Cluster => ips.extend(primary),
            NodePortAddresses::All => ips.extend(of_interfaces(&|ip| !is_link_local(ip))),
            NodePortAddresses::Within(range) => {
                // As in kube-proxy, ::/0 has no link-local addresses: each interface has one. A range of them has.
                let is_meant =
                    |ip: &IpAddr| ip.is_ipv4() || !is_link_local(ip) || is_link_local(&range.ip());
                ips.extend(of_interfaces(&|ip| range.contains(*ip) && is_meant(ip)));
            }
        }
    }
    if let Some(ipv4) = uncovered_family(&config.node_port_addresses) {
        ips.extend(of_interfaces(&|ip| {
            ip.is_ipv4() == ipv4 && !is_link_local(ip)
        }));
    }
    if config.node_ports_on_loopback {
        // Without ::1: the kernel accepts it only on the loopback interface, so replies would not return (`rt6_need_strict` in
        // `net/ipv6/route.c`).
        ips.insert(IpAddr::from(Ipv4Addr::LOCALHOST));
    }
    ips
}

/// The destinations that pods reach without masquerading: the cluster (nodes, ranges of pods), the configured ranges, and
/// link-local addresses, as in ip-masq-agent. External addresses of nodes are not among them: mostly they are translated on the way.
fn non_masquerade_cidrs(
    cache: &Cache,
    config: &ProcessorConfig,
    vpp_ips: Vec<IpAddr>,
) -> BTreeSet<IpNetwork> {
    let internal_ips = cache
        .nodes
        .values()
        .flat_map(|node| node.internal_ips.iter().copied());
    let node_ips = internal_ips
        .chain(config.node_ips.iter().copied())
        .chain(vpp_ips);
    let pod_cidrs = cache
        .nodes
        .values()
        .flat_map(|node| &node.pod_cidrs)
        .chain(&config.pod_cidrs);
    let cidrs = pod_cidrs.chain(&config.non_masquerade_cidrs).copied();
    cidrs
        .chain(node_ips.map(IpNetwork::from))
        .chain(link_local())
        .collect()
}

/// The link-local ranges.
fn link_local() -> impl Iterator<Item = IpNetwork> {
    let ranges = [
        (IpAddr::from(Ipv4Addr::new(169, 254, 0, 0)), 16),
        (IpAddr::from(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10),
    ];
    ranges
        .into_iter()
        .filter_map(|(address, prefix)| IpNetwork::new(address, prefix).ok())
}

/// The family that no setting covers (true for IPv4); none if both are covered. `primary` and `all` cover both.
fn uncovered_family(addresses: &BTreeSet<NodePortAddresses>) -> Option<bool> {
    let names = |ipv4: bool| {
        addresses.iter().any(|addresses| match addresses {
            NodePortAddresses::Primary | NodePortAddresses::All | NodePortAddresses::Cluster => {
                true
            }
            NodePortAddresses::Within(range) => range.is_ipv4() == ipv4,
        })
    };
    match (names(true), names(false)) {
        (true, false) => Some(false),
        (false, true) => Some(true),
        (true, true) | (false, false) => None,
    }
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
        let Some(custom) = allocation
            .service_endpoint()
            .and_then(|interface| interface.ip)
        else {
            continue;
        };
        let Some(pod) = cache
            .pods
            .get(&allocation.pod)
            .filter(|pod| !pod.host_network)
        else {
            continue;
        };
        for main in pod
            .ips
            .iter()
            .filter(|main| main.is_ipv4() == custom.is_ipv4())
        {
            redirects.insert((*main, pod.id.clone()), custom);
        }
    }
    redirects
}
