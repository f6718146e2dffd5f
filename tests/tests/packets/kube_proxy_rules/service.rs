//! A service as kube-proxy sees it, and what it makes of its endpoints.

use std::net::{IpAddr, SocketAddr};

use contiv_tests::{
    cluster::{Frontend, PORT, TARGET_PORT},
    lab::{Family, Host, Lab},
};

/// The zone of this node.
pub(crate) const ZONE: &str = "here";

/// A service.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a field of a Service"
)]
pub(crate) struct Service {
    pub(crate) name: String,
    pub(crate) families: Vec<Family>,
    pub(crate) headless: bool,
    pub(crate) ports: Vec<Port>,
    /// Its cluster IP, external IP and load-balancer address in each family, if it has them.
    pub(crate) addresses: [[IpAddr; 2]; 3],
    pub(crate) has_external_ip: bool,
    pub(crate) is_balanced: bool,
    pub(crate) source_ranges: Vec<&'static str>,
    pub(crate) external_local: bool,
    pub(crate) internal_local: bool,
    pub(crate) affinity: Option<u32>,
    pub(crate) endpoints: Vec<Endpoint>,
}

/// A port of a service.
#[derive(Debug, Clone)]
#[expect(clippy::struct_field_names, reason = "the names in a Service")]
pub(crate) struct Port {
    pub(crate) name: &'static str,
    /// "tcp", "udp" or "sctp".
    pub(crate) protocol: &'static str,
    pub(crate) port: u16,
    pub(crate) target: u16,
    pub(crate) node_port: Option<u16>,
}

/// An endpoint, with an address in each family.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    /// Its address in each family.
    pub(crate) addresses: [IpAddr; 2],
    /// It is on this node.
    pub(crate) is_local: bool,
    pub(crate) condition: Condition,
    /// The zone of its topology hint.
    pub(crate) zone: Option<&'static str>,
}

/// What a slice says of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    Ready,
    Terminating,
    Unready,
}

/// The endpoints that kube-proxy uses for a port.
#[derive(Debug, Default)]
pub(crate) struct Categories {
    /// For policy Cluster.
    pub(crate) cluster: Vec<SocketAddr>,
    /// For policy Local.
    pub(crate) local: Vec<SocketAddr>,
    /// Those of either that are used, each once.
    pub(crate) used: Vec<SocketAddr>,
    /// Of those used the ones on this node.
    pub(crate) on_node: Vec<SocketAddr>,
}

impl Service {
    /// A service of the lab, with an address of each kind and ready endpoints.
    pub(crate) fn of(lab: &Lab, service: &contiv_tests::cluster::Service) -> Self {
        let addresses = [
            Frontend::ClusterIp,
            Frontend::ExternalIp,
            Frontend::LoadBalancer,
        ];
        let endpoint = |host: &&Host| Endpoint {
            addresses: Family::BOTH.map(|family| host.address(family)),
            is_local: host.node == lab.node.host.name,
            condition: Condition::Ready,
            zone: None,
        };
        Self {
            name: service.name.to_owned(),
            families: Family::BOTH.to_vec(),
            headless: false,
            ports: vec![Port {
                name: "web",
                protocol: "tcp",
                port: PORT,
                target: TARGET_PORT,
                node_port: Some(service.node_port()),
            }],
            addresses: addresses.map(|frontend| {
                Family::BOTH.map(|family| service.address(lab, frontend, family).ip())
            }),
            has_external_ip: true,
            is_balanced: true,
            source_ranges: Vec::new(),
            external_local: false,
            internal_local: false,
            affinity: None,
            endpoints: service.backends.iter().map(endpoint).collect(),
        }
    }

    pub(crate) fn cluster_ip(&self, family: Family) -> IpAddr {
        self.addresses[0][index(family)]
    }

    pub(crate) fn external_ip(&self, family: Family) -> Option<IpAddr> {
        self.has_external_ip
            .then_some(self.addresses[1][index(family)])
    }

    pub(crate) fn balancer_ip(&self, family: Family) -> Option<IpAddr> {
        self.is_balanced.then_some(self.addresses[2][index(family)])
    }

    /// The ranges of sources of a family.
    pub(crate) fn ranges(&self, family: Family) -> Vec<&'static str> {
        let is_of_family = |range: &&&str| range.contains(':') == (family == Family::V6);
        self.source_ranges
            .iter()
            .filter(is_of_family)
            .copied()
            .collect()
    }

    pub(crate) fn is_external(&self) -> bool {
        self.has_external_ip
            || self.is_balanced
            || self.ports.iter().any(|port| port.node_port.is_some())
    }

    /// As kube-proxy categorizes endpoints: hints count if every ready endpoint has one and one is of this zone; terminating ones
    /// are used where no ready one is.
    pub(crate) fn categories(&self, port: &Port, family: Family) -> Categories {
        let socket = |endpoint: &&Endpoint| SocketAddr::new(endpoint.address(family), port.target);
        let with = |condition: Condition, is_local: bool| -> Vec<&Endpoint> {
            self.endpoints
                .iter()
                .filter(|it| it.condition == condition && (it.is_local || !is_local))
                .collect()
        };
        let ready = with(Condition::Ready, false);
        let has_hints = ready.iter().all(|it| it.zone.is_some())
            && ready.iter().any(|it| it.zone == Some(ZONE));
        let mut cluster: Vec<SocketAddr> = ready
            .iter()
            .filter(|it| !has_hints || it.zone == Some(ZONE))
            .map(socket)
            .collect();
        if cluster.is_empty() {
            cluster = with(Condition::Terminating, false)
                .iter()
                .map(socket)
                .collect();
        }
        let mut local: Vec<SocketAddr> = with(Condition::Ready, true).iter().map(socket).collect();
        if local.is_empty() {
            local = with(Condition::Terminating, true)
                .iter()
                .map(socket)
                .collect();
        }
        let is_local_used = self.internal_local || self.external_local && self.is_external();
        let is_cluster_used = !self.internal_local || self.is_external();
        if !is_local_used {
            local.clear();
        }
        let mut used = if is_cluster_used {
            cluster.clone()
        } else {
            Vec::new()
        };
        used.extend(&local);
        used.sort();
        used.dedup();
        let own: Vec<IpAddr> = self
            .endpoints
            .iter()
            .filter(|endpoint| endpoint.is_local)
            .map(|endpoint| endpoint.address(family))
            .collect();
        Categories {
            on_node: used
                .iter()
                .filter(|it| own.contains(&it.ip()))
                .copied()
                .collect(),
            cluster,
            local,
            used,
        }
    }
}

impl Endpoint {
    pub(crate) fn address(&self, family: Family) -> IpAddr {
        self.addresses[index(family)]
    }
}

/// The place of a family among both.
const fn index(family: Family) -> usize {
    match family {
        Family::V4 => 0,
        Family::V6 => 1,
    }
}
