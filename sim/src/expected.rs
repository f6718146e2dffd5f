//! The expected result of connections to a service, derived from the stored objects alone. It shares no code with the agent: its
//! rules are those of kube-proxy.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use crate::{
    cluster::{
        Cluster, Condition, Endpoint, NODE_ADDRESS, NodeFacts, Port, ServedService, ServiceSpec,
        TARGET_PORT_OFFSET, Transport,
    },
    kernel::{Connection, Fate, NewConnection},
};

/// A client of services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Client {
    /// Another host, in the range that restricted services admit.
    Admitted,
    /// Another host, outside of that range.
    Excluded,
    /// A pod of the node.
    Pod,
    /// The node itself.
    Node,
}

/// A kind of address of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Frontend {
    ClusterIp,
    ExternalIp,
    IngressIp,
    NodePort,
}

/// The result of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Expected {
    /// It reaches one of these. Whether the server sees the client's address, where that is certain.
    Backends(BTreeSet<SocketAddr>, Option<bool>),
    Dropped,
    Rejected,
}

/// A connection to a service, and its expected result.
#[derive(Debug, Clone)]
pub(crate) struct ExpectedConnection {
    connection: NewConnection,
    expected: Expected,
}

impl Client {
    /// All kinds.
    pub(crate) const ALL: [Self; 4] = [Self::Admitted, Self::Excluded, Self::Pod, Self::Node];

    fn address(self, is_ipv4: bool) -> IpAddr {
        match (self, is_ipv4) {
            (Self::Admitted, true) => Ipv4Addr::new(11, 255, 0, 1).into(),
            (Self::Admitted | Self::Excluded, false) => {
                Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, 1).into()
            }
            (Self::Excluded, true) => Ipv4Addr::new(11, 255, 0, 200).into(),
            (Self::Pod, true) => Ipv4Addr::new(10, 244, 1, 7).into(),
            (Self::Pod, false) => Ipv6Addr::new(0xfd44, 1, 0, 0, 0, 0, 0, 7).into(),
            (Self::Node, true) => NODE_ADDRESS,
            (Self::Node, false) => NODE_IPV6.into(),
        }
    }

    fn connection(self, transport: Transport, destination: SocketAddr, port: u16) -> NewConnection {
        let interface = match self {
            Self::Admitted | Self::Excluded => Some("eth0".to_owned()),
            Self::Pod => Some("veth7".to_owned()),
            Self::Node => None,
        };
        let client = SocketAddr::new(self.address(destination.is_ipv4()), port);
        NewConnection {
            protocol: transport.number(),
            client,
            destination,
            interface,
        }
    }

    /// Whether policies for external clients concern it.
    const fn is_external(self, node: &NodeFacts) -> bool {
        match self {
            Self::Admitted | Self::Excluded => true,
            Self::Pod => !node.has_pod_cidrs,
            Self::Node => false,
        }
    }
}

/// An address of the node in IPv6, which its interfaces always have.
pub(crate) const NODE_IPV6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);

/// The connections of `client` to all addresses of a service, with the expected results. `node_addresses` are those at which
/// node ports answer. `client_port` is the client's port.
pub(crate) fn connections(
    service: &ServedService,
    client: Client,
    client_port: u16,
    node: &NodeFacts,
    node_addresses: &BTreeSet<IpAddr>,
) -> Vec<ExpectedConnection> {
    let spec = &service.spec;
    let mut all = Vec::new();
    for port in &spec.ports {
        for (frontend, destination) in destinations(spec, port, node_addresses) {
            let connection = client.connection(port.known.transport, destination, client_port);
            let expected = expect(service, frontend, port, client, destination.is_ipv4(), node);
            all.push(ExpectedConnection {
                connection,
                expected,
            });
        }
    }
    all
}

/// The destinations of a port of a service.
fn destinations(
    spec: &ServiceSpec,
    port: &Port,
    node_addresses: &BTreeSet<IpAddr>,
) -> impl Iterator<Item = (Frontend, SocketAddr)> {
    let of_family = |address: &&IpAddr| spec.families[usize::from(!address.is_ipv4())];
    let node_ports = node_addresses
        .iter()
        .filter(of_family)
        .filter(|_| spec.has_node_ports());
    let number = port.known.number;
    let frontends = [
        (Frontend::ClusterIp, spec.cluster_ips(), number),
        (Frontend::ExternalIp, spec.external_ips(), number),
        (Frontend::IngressIp, spec.ingress_ips(), number),
        (
            Frontend::NodePort,
            node_ports.copied().collect(),
            port.at_nodes,
        ),
    ];
    frontends
        .into_iter()
        .flat_map(|(frontend, addresses, number)| {
            addresses
                .into_iter()
                .map(move |address| (frontend, SocketAddr::new(address, number)))
        })
}

/// The endpoints of a port in a family.
fn endpoints<'a>(service: &'a ServedService, port: &Port, is_ipv4: bool) -> Vec<&'a Endpoint> {
    let slices = service
        .slices
        .iter()
        .filter(|slice| slice.is_ipv4 == is_ipv4);
    let with_port = slices.filter(|slice| slice.has_port(port.known.name));
    with_port.flat_map(|slice| &slice.endpoints).collect()
}

fn server(endpoint: &Endpoint, port: &Port, is_ipv4: bool) -> SocketAddr {
    SocketAddr::new(
        endpoint.address(is_ipv4),
        port.known.number + TARGET_PORT_OFFSET,
    )
}

/// A frontend of a service with the servers to which its flows may go on, wherever new ones go.
#[derive(Debug, Clone)]
pub(crate) struct ServedFrontend {
    pub(crate) servers: BTreeSet<SocketAddr>,
    /// Connections to other servers are reset.
    pub(crate) has_reset: bool,
    /// No stored value of it is invalid.
    pub(crate) is_certain: bool,
}

/// The frontends of all services, by protocol and destination.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServedFrontends(BTreeMap<(u8, SocketAddr), ServedFrontend>);

impl ServedFrontends {
    /// Those of a cluster, with node ports at these addresses.
    pub(crate) fn of(cluster: &Cluster, node_addresses: &BTreeSet<IpAddr>) -> Self {
        let mut frontends = BTreeMap::new();
        for (_, service, is_certain) in cluster.served() {
            for port in &service.spec.ports {
                for (_, destination) in destinations(&service.spec, port, node_addresses) {
                    let is_ipv4 = destination.is_ipv4();
                    let usable = endpoints(&service, port, is_ipv4).into_iter();
                    let usable =
                        usable.filter(|endpoint| endpoint.condition != Condition::Unusable);
                    let servers = usable
                        .map(|endpoint| server(endpoint, port, is_ipv4))
                        .collect();
                    let has_reset = service.spec.resets_connections;
                    let frontend = ServedFrontend {
                        servers,
                        has_reset,
                        is_certain,
                    };
                    frontends.insert((port.known.transport.number(), destination), frontend);
                }
            }
        }
        Self(frontends)
    }

    /// The frontend of a connection.
    pub(crate) fn get(&self, connection: &Connection) -> Option<&ServedFrontend> {
        self.0.get(&(connection.protocol, connection.destination))
    }
}

/// Whether the result of connections to a service depends on facts of the node other than its name.
pub(crate) fn needs_node_facts(service: &ServedService, client: Client) -> bool {
    let has_hints = service
        .slices
        .iter()
        .flat_map(|slice| &slice.endpoints)
        .any(|endpoint| endpoint.hint.is_some());
    has_hints || client == Client::Pod
}

fn expect(
    service: &ServedService,
    frontend: Frontend,
    port: &Port,
    client: Client,
    is_ipv4: bool,
    node: &NodeFacts,
) -> Expected {
    let spec = &service.spec;
    if frontend == Frontend::IngressIp && is_excluded(spec, client, is_ipv4) {
        return Expected::Dropped;
    }
    let endpoints = endpoints(service, port, is_ipv4);
    let everywhere = for_policy_cluster(&endpoints, spec, node);
    let here = or_terminating(&endpoints, Endpoint::is_local);
    let is_local_policy = match frontend {
        Frontend::ClusterIp => spec.is_internal_local,
        _ => spec.is_external_local && client.is_external(node),
    };
    let chosen = if is_local_policy {
        here.clone()
    } else {
        everywhere.clone()
    };
    if everywhere.is_empty() {
        Expected::Rejected
    } else if chosen.is_empty() {
        Expected::Dropped
    } else {
        let mut servers: BTreeSet<&Endpoint> = chosen.into_iter().collect();
        // Its affinity may be from before the ranges of pods changed, when it counted as external or as internal.
        if spec.has_affinity && client == Client::Pod && spec.is_external_local {
            servers.extend(here.iter().chain(&everywhere));
        }
        let servers = servers
            .into_iter()
            .map(|endpoint| server(endpoint, port, is_ipv4));
        Expected::Backends(
            servers.collect(),
            is_masqueraded(spec, frontend, client, node),
        )
    }
}

/// Whether source ranges exclude a client. Ranges of IPv4 alone exclude no client of IPv6.
fn is_excluded(spec: &ServiceSpec, client: Client, is_ipv4: bool) -> bool {
    spec.has_source_ranges && is_ipv4 && client != Client::Admitted
}

/// Whether the server sees an address of the node; none where this depends on more than is known here.
fn is_masqueraded(
    spec: &ServiceSpec,
    frontend: Frontend,
    client: Client,
    node: &NodeFacts,
) -> Option<bool> {
    match (frontend, client) {
        (_, Client::Node) => None,
        (Frontend::ClusterIp, _) => Some(client.is_external(node)),
        // The address may also be one of the node.
        _ => Some(!spec.is_external_local),
    }
}

/// The endpoints for policy Cluster: those on the node first, if the service prefers these; else those that hints give to the
/// zone of the node, if every ready endpoint has a hint and one is for it.
fn for_policy_cluster<'a>(
    endpoints: &[&'a Endpoint],
    spec: &ServiceSpec,
    node: &NodeFacts,
) -> Vec<&'a Endpoint> {
    let ready: Vec<&Endpoint> = ready(endpoints).collect();
    let local: Vec<&Endpoint> = ready
        .iter()
        .filter(|endpoint| endpoint.is_local())
        .copied()
        .collect();
    if spec.prefers_local && !local.is_empty() {
        return local;
    }
    let all_have_hints = ready.iter().all(|endpoint| endpoint.hint.is_some());
    let is_in_zone = |endpoint: &&&Endpoint| node.zone.is_some() && endpoint.hint == node.zone;
    let in_zone: Vec<&Endpoint> = ready.iter().filter(is_in_zone).copied().collect();
    if all_have_hints && !in_zone.is_empty() {
        return in_zone;
    }
    or_terminating(endpoints, |_| true)
}

fn ready<'a>(endpoints: &[&'a Endpoint]) -> impl Iterator<Item = &'a Endpoint> {
    endpoints
        .iter()
        .filter(|endpoint| endpoint.condition == Condition::Ready)
        .copied()
}

/// The ready endpoints that match, or if there are none the terminating ones.
fn or_terminating<'a>(
    endpoints: &[&'a Endpoint],
    matches: fn(&Endpoint) -> bool,
) -> Vec<&'a Endpoint> {
    let in_condition = |condition| -> Vec<&Endpoint> {
        let all = endpoints
            .iter()
            .filter(|endpoint| endpoint.condition == condition && matches(endpoint));
        all.copied().collect()
    };
    let ready = in_condition(Condition::Ready);
    if ready.is_empty() {
        in_condition(Condition::Terminating)
    } else {
        ready
    }
}

impl ExpectedConnection {
    /// The connection.
    pub(crate) const fn connection(&self) -> &NewConnection {
        &self.connection
    }

    /// Compares with what happened.
    pub(crate) fn check(&self, fate: &Fate) -> Result<(), String> {
        let is_expected = match (&self.expected, fate) {
            (
                Expected::Backends(servers, is_masqueraded),
                Fate::Delivered {
                    server,
                    is_masqueraded: is,
                    ..
                },
            ) => servers.contains(server) && is_masqueraded.is_none_or(|expected| expected == *is),
            (Expected::Dropped, Fate::Dropped) | (Expected::Rejected, Fate::Rejected) => true,
            _ => false,
        };
        if is_expected {
            return Ok(());
        }
        let NewConnection {
            client,
            destination,
            ..
        } = &self.connection;
        Err(format!(
            "a connection from {client} to {destination} has this result: {fate:?}; expected: {:?}",
            self.expected
        ))
    }
}
