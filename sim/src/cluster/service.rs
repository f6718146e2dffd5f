//! A Service object with all fields that decide where its connections go, and its stored form.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rand::{RngExt as _, rngs::SmallRng};
use serde_json::{Value, json};

use super::pool::Pools;

/// The ports that a service can have.
pub(crate) const PORTS: [KnownPort; 2] = [
    KnownPort {
        name: "http",
        number: 80,
        transport: Transport::Tcp,
    },
    KnownPort {
        name: "dns",
        number: 53,
        transport: Transport::Udp,
    },
];
/// The only range of clients that a restricted service admits to its load-balancer address.
pub(crate) const ADMITTED_CLIENTS: &str = "11.255.0.0/25";

/// The share of services that balance by client address.
const BALANCE_BY_CLIENT: f64 = 0.05;

/// The annotation for failover, if there is one.
fn random_failover(rng: &mut SmallRng) -> Option<&'static str> {
    [None, None, None, Some("on"), Some("observe"), Some("off")][rng.random_range(0..6)]
}

/// A transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Udp,
}

impl Transport {
    /// The number of the IP protocol.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }

    /// As in stored values.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }
}

/// The name, number and protocol of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KnownPort {
    pub(crate) name: &'static str,
    pub(crate) number: u16,
    pub(crate) transport: Transport,
}

/// A type of services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServiceKind {
    ClusterIp,
    NodePort,
    LoadBalancer,
}

/// A port of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Port {
    /// What it has in common with that of other services.
    pub(crate) known: KnownPort,
    /// Its number at the addresses of nodes. Unused by services of type `ClusterIP`.
    pub(crate) at_nodes: u16,
}

/// A service. Addresses and node ports are numbers of [`Pools`], so no two services have the same.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent fields of the Service object"
)]
pub(crate) struct ServiceSpec {
    pub(crate) cluster_ip: u16,
    /// Whether it has an IPv4 and an IPv6 cluster IP; one of them at least.
    pub(crate) families: [bool; 2],
    pub(crate) kind: ServiceKind,
    pub(crate) external_ip: Option<u16>,
    /// The address of its load balancer.
    pub(crate) ingress_ip: Option<u16>,
    pub(crate) ports: Vec<Port>,
    pub(crate) is_external_local: bool,
    pub(crate) is_internal_local: bool,
    pub(crate) has_affinity: bool,
    pub(crate) has_source_ranges: bool,
    pub(crate) prefers_local: bool,
    pub(crate) balances_by_client: bool,
    pub(crate) resets_connections: bool,
    /// None if the node's setting decides.
    pub(crate) failover: Option<&'static str>,
}

impl ServiceSpec {
    /// A random service, with addresses that no other one has.
    pub(crate) fn random(pools: &Pools, rng: &mut SmallRng) -> Option<Self> {
        let mut spec = Self {
            cluster_ip: pools.free_cluster_ip(rng)?,
            families: [true, rng.random()],
            kind: ServiceKind::ClusterIp,
            external_ip: None,
            ingress_ip: None,
            ports: Vec::new(),
            is_external_local: rng.random(),
            is_internal_local: rng.random_bool(0.2),
            has_affinity: rng.random_bool(0.2),
            has_source_ranges: rng.random_bool(0.3),
            prefers_local: rng.random_bool(0.1),
            balances_by_client: rng.random_bool(BALANCE_BY_CLIENT),
            resets_connections: rng.random_bool(0.1),
            failover: random_failover(rng),
        };
        spec.change_ports(pools, rng);
        spec.change_kind(pools, rng);
        Some(spec)
    }

    /// Notes its addresses and node ports.
    pub(crate) fn add_to(&self, pools: &mut Pools) {
        let external_ips = self.external_ip.into_iter().chain(self.ingress_ip);
        pools.add(
            self.cluster_ip,
            external_ips,
            self.ports.iter().map(|port| port.at_nodes),
        );
    }

    /// Changes one aspect.
    pub(crate) fn change(&mut self, pools: &Pools, rng: &mut SmallRng) {
        match rng.random_range(0..14) {
            0 | 1 => self.change_kind(pools, rng),
            2 | 3 => self.change_ports(pools, rng),
            4 => {
                self.families =
                    [[true, false], [false, true], [true, true]][rng.random_range(0..3)];
            }
            5 => self.cluster_ip = pools.free_cluster_ip(rng).unwrap_or(self.cluster_ip),
            6 => self.is_external_local ^= true,
            7 => self.is_internal_local ^= true,
            8 => self.has_affinity ^= true,
            9 => self.has_source_ranges ^= true,
            10 => self.prefers_local ^= true,
            // Few do: each has a thousand slots for a frontend.
            11 => self.balances_by_client = rng.random_bool(BALANCE_BY_CLIENT),
            12 => self.failover = random_failover(rng),
            _ => self.resets_connections ^= true,
        }
    }

    fn change_kind(&mut self, pools: &Pools, rng: &mut SmallRng) {
        use ServiceKind::{ClusterIp, LoadBalancer, NodePort};
        self.kind = [ClusterIp, NodePort, LoadBalancer][rng.random_range(0..3)];
        self.external_ip = pools.free_external_ip(rng).filter(|_| rng.random_bool(0.3));
        let ingress_ip = pools
            .free_external_ip(rng)
            .filter(|_| self.kind == LoadBalancer);
        self.ingress_ip = ingress_ip.filter(|ip| Some(*ip) != self.external_ip);
    }

    fn change_ports(&mut self, pools: &Pools, rng: &mut SmallRng) {
        let chosen = [&PORTS[..1], &PORTS[..], &PORTS[1..]][rng.random_range(0..3)];
        let node_ports = pools.free_node_ports(rng);
        let ports = chosen.iter().zip(node_ports);
        self.ports = ports
            .map(|(known, node_port)| Port {
                known: *known,
                at_nodes: node_port,
            })
            .collect();
    }

    /// Whether its node ports are open.
    pub(crate) const fn has_node_ports(&self) -> bool {
        !matches!(self.kind, ServiceKind::ClusterIp)
    }

    /// Its cluster IPs.
    pub(crate) fn cluster_ips(&self) -> Vec<IpAddr> {
        self.in_families(self.cluster_ip, [0x0a60, 0xfd96])
    }

    /// Its external addresses without those of the load balancer.
    pub(crate) fn external_ips(&self) -> Vec<IpAddr> {
        self.external_ip.map_or_else(Vec::new, |number| {
            self.in_families(number, [0xcb00, 0xfd98])
        })
    }

    /// The addresses of its load balancer.
    pub(crate) fn ingress_ips(&self) -> Vec<IpAddr> {
        self.ingress_ip.map_or_else(Vec::new, |number| {
            self.in_families(number, [0xcb00, 0xfd98])
        })
    }

    /// The address of this number in each family, below these 16 bits.
    fn in_families(&self, number: u16, prefixes: [u16; 2]) -> Vec<IpAddr> {
        let last = number + 1;
        let v4 = Ipv4Addr::from(u32::from(prefixes[0]) << 16 | u32::from(last));
        let v6 = Ipv6Addr::new(prefixes[1], 0, 0, 0, 0, 0, 0, last);
        let both = [
            (self.families[0], IpAddr::from(v4)),
            (self.families[1], IpAddr::from(v6)),
        ];
        both.into_iter()
            .filter_map(|(has_family, address)| has_family.then_some(address))
            .collect()
    }

    /// The stored value.
    pub(crate) fn value(&self, health_check_port: u16) -> Value {
        let texts = |addresses: Vec<IpAddr>| {
            addresses
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        let policy = |is_local| if is_local { "Local" } else { "Cluster" };
        let port = |port: &Port| {
            let node_port = if self.has_node_ports() {
                port.at_nodes
            } else {
                0
            };
            let KnownPort {
                name,
                number,
                transport,
            } = port.known;
            json!({"name": name, "protocol": transport.name(), "port": number, "node_port": node_port})
        };
        let ingress = |ip: String| json!({"ip": ip});
        let annotation =
            |name: &str, is_set: bool, value: &str| is_set.then(|| (name.to_owned(), json!(value)));
        let failover = self.failover.unwrap_or_default();
        let annotations = [
            annotation("contiv.io/prefer-local", self.prefers_local, "true"),
            annotation(
                "contiv.io/balance",
                self.balances_by_client,
                "client-address",
            ),
            annotation(
                "contiv.io/reset-connections",
                self.resets_connections,
                "true",
            ),
            annotation("contiv.io/failover", self.failover.is_some(), failover),
        ];
        let annotations: serde_json::Map<String, Value> =
            annotations.into_iter().flatten().collect();
        let cluster_ips = texts(self.cluster_ips());
        let mut value = json!({
            "cluster_ip": cluster_ips.first(),
            "cluster_ips": cluster_ips,
            "service_type": match self.kind {
                ServiceKind::ClusterIp => "ClusterIP",
                ServiceKind::NodePort => "NodePort",
                ServiceKind::LoadBalancer => "LoadBalancer",
            },
            "external_ips": texts(self.external_ips()),
            "load_balancer_ingress": texts(self.ingress_ips()).into_iter().map(ingress).collect::<Vec<_>>(),
            "port": self.ports.iter().map(port).collect::<Vec<_>>(),
            "internal_traffic_policy": policy(self.is_internal_local),
            "session_affinity": if self.has_affinity { "ClientIP" } else { "None" },
            "annotations": annotations,
        });
        if self.kind != ServiceKind::ClusterIp || self.external_ip.is_some() {
            value["external_traffic_policy"] = json!(policy(self.is_external_local));
        }
        if self.kind == ServiceKind::LoadBalancer {
            if self.is_external_local {
                value["health_check_node_port"] = json!(health_check_port);
            }
            if self.has_source_ranges {
                value["loadbalancer_source_ranges"] = json!([ADMITTED_CLIENTS]);
            }
        }
        value
    }
}
