//! What a change of the desired state means for connections.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use serde::Serialize;

use crate::{
    ChangeSet, Frontend, NodeFacts, ServiceId, Snapshot,
    trace::{Affinity, Candidate, Client, Flow, Trace, Verdict, trace},
};

/// A client that is neither this node nor one of its pods: of the networks for documentation (RFC 5737, RFC 3849).
const EXTERNAL_CLIENTS: [&str; 2] = ["198.51.100.7", "2001:db8:ffff::7"];

/// New connections of some clients to a frontend that will end otherwise than they do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FlowChange {
    /// The service that has the frontend, before or after.
    pub service: ServiceId,
    /// Where they connect to.
    pub to: SocketAddr,
    /// The frontend, which says whether that is a node port.
    pub frontend: Frontend,
    /// The clients.
    pub clients: BTreeSet<Client>,
    /// How they end now.
    pub old: FlowEnd,
    /// How they will end.
    pub new: FlowEnd,
}

/// How new connections end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct FlowEnd {
    /// The verdict.
    pub verdict: VerdictKind,
    /// The backends that may get one.
    pub backends: BTreeSet<SocketAddr>,
    /// Those of them that see an address of the node in place of the client's.
    pub masqueraded: BTreeSet<SocketAddr>,
    /// How a client's backend is chosen.
    pub affinity: Affinity,
}

/// The kind of a [`Verdict`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictKind {
    /// It goes to a backend.
    Served,
    /// It is refused.
    Rejected,
    /// It is dropped.
    Dropped,
    /// Routes lead to the backends.
    Routed,
    /// It is none of a service.
    NoService,
}

impl FlowEnd {
    /// An end without backends.
    pub const fn without_backends(verdict: VerdictKind) -> Self {
        Self {
            verdict,
            backends: BTreeSet::new(),
            masqueraded: BTreeSet::new(),
            affinity: Affinity::None,
        }
    }

    /// The end of a traced connection.
    pub fn of(trace: &Trace) -> Self {
        match &trace.verdict {
            Verdict::Backends(delivery) => Self {
                verdict: VerdictKind::Served,
                backends: delivery
                    .candidates
                    .iter()
                    .map(Candidate::endpoint)
                    .collect(),
                masqueraded: delivery
                    .candidates
                    .iter()
                    .filter(|candidate| delivery.is_hidden_from(candidate))
                    .map(Candidate::endpoint)
                    .collect(),
                affinity: delivery.affinity,
            },
            Verdict::Rejected(_) => Self::without_backends(VerdictKind::Rejected),
            Verdict::Dropped(_) => Self::without_backends(VerdictKind::Dropped),
            Verdict::Routed => Self::without_backends(VerdictKind::Routed),
            Verdict::Egress | Verdict::Untouched => Self::without_backends(VerdictKind::NoService),
        }
    }
}

/// What changes for new connections from a pod of this node, from the node and from elsewhere, by service and frontend.
pub fn flow_changes(old: &Snapshot, new: &Snapshot) -> Vec<FlowChange> {
    let mut found = Vec::new();
    let is_node_other = old.node != new.node;
    let between = ChangeSet::between(old, new).services;
    let services: BTreeSet<&ServiceId> = if is_node_other {
        old.services.keys().chain(new.services.keys()).collect()
    } else {
        between.keys().collect()
    };
    for id in services {
        let mut all = destinations(old, id);
        all.extend(destinations(new, id));
        for destination in all {
            found.extend(changes_at(id, destination, old, new));
        }
    }
    found
}

/// The addresses and ports at which a service is reached, with their frontends.
fn destinations(snapshot: &Snapshot, id: &ServiceId) -> BTreeSet<(Frontend, SocketAddr)> {
    let frontends = snapshot.services.get(id).map(|service| service.frontends());
    let mut found = BTreeSet::new();
    for frontend in frontends.into_iter().flatten() {
        match frontend {
            Frontend::Address { address, port, .. } => {
                found.insert((frontend, SocketAddr::new(address, port)));
            }
            Frontend::NodePort { port, .. } => {
                for is_ipv4 in [true, false] {
                    let mut own = snapshot.node.node_port_ips();
                    let own = own.find(|own| own.is_ipv4() == is_ipv4);
                    found.extend(own.map(|own| (frontend, SocketAddr::new(*own, port))));
                }
            }
        }
    }
    found
}

/// The changes for the clients of one destination, those with the same change as one.
fn changes_at(
    id: &ServiceId,
    (frontend, to): (Frontend, SocketAddr),
    old: &Snapshot,
    new: &Snapshot,
) -> Vec<FlowChange> {
    let protocol = match frontend {
        Frontend::Address { protocol, .. } | Frontend::NodePort { protocol, .. } => protocol,
    };
    let mut by_change: BTreeMap<(FlowEnd, FlowEnd), BTreeSet<Client>> = BTreeMap::new();
    for from in client_examples(&new.node, to.is_ipv4()) {
        let Ok(flow) = Flow::new(from, to, protocol) else {
            continue;
        };
        let ends = [old, new].map(|snapshot| FlowEnd::of(&trace(snapshot, &flow)));
        let [old_end, new_end] = ends;
        if old_end != new_end {
            let clients = by_change.entry((old_end, new_end)).or_default();
            clients.insert(Client::of(&flow, &new.node));
        }
    }
    let change = |((old, new), clients)| FlowChange {
        service: id.clone(),
        to,
        frontend,
        clients,
        old,
        new,
    };
    by_change.into_iter().map(change).collect()
}

/// An address of a client of each class that the node knows.
pub fn client_examples(node: &NodeFacts, is_ipv4: bool) -> Vec<IpAddr> {
    let of_family = |address: &IpAddr| address.is_ipv4() == is_ipv4;
    let pod = node
        .pod_cidrs
        .iter()
        .map(ipnetwork::IpNetwork::ip)
        .find(of_family);
    let own = node.local_ips.iter().chain(&node.node_ips).copied();
    let own = own
        .filter(|own| {
            !own.is_loopback() && !node.pod_cidrs.iter().any(|range| range.contains(*own))
        })
        .find(of_family);
    let external = EXTERNAL_CLIENTS
        .iter()
        .filter_map(|text| text.parse().ok())
        .find(of_family);
    [pod, own, external].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Backend, ContivService, Protocol, ServicePort, TrafficPolicy};

    fn snapshot(services: Vec<ContivService>) -> Snapshot {
        let node = NodeFacts {
            node_ips: ["192.168.0.1".parse().unwrap()].into(),
            local_ips: ["192.168.0.1".parse().unwrap()].into(),
            pod_cidrs: ["10.244.1.0/24".parse().unwrap()].into(),
            ..NodeFacts::default()
        };
        let services = services
            .into_iter()
            .map(|service| (service.id.clone(), Arc::new(service)));
        Snapshot {
            services: services.collect(),
            node,
            ..Snapshot::default()
        }
    }

    fn web(backends: &[&str]) -> ContivService {
        let backends = backends.iter();
        ContivService {
            cluster_ips: ["10.96.0.1".parse().unwrap()].into(),
            ports: vec![ServicePort {
                port: 80,
                protocol: Protocol::Tcp,
                name: "main".into(),
                node_port: Some(30_080),
                backends: backends
                    .map(|it| Backend::new(it.parse().unwrap()))
                    .collect(),
            }],
            ..ContivService::new(ServiceId::new("shop", "web"))
        }
    }

    const ONE: &str = "10.244.2.1:8080";
    const OTHER: &str = "10.244.2.2:8080";

    #[test]
    fn equal_states_change_nothing() {
        let state = snapshot(vec![web(&[ONE])]);
        assert_eq!(flow_changes(&state, &state.clone()), []);
    }

    #[test]
    fn new_service_and_lost_backend_are_named_by_frontend_and_clients() {
        let (none, one) = (snapshot(vec![]), snapshot(vec![web(&[ONE])]));
        let added = flow_changes(&none, &one);
        let to: BTreeSet<SocketAddr> = added.iter().map(|change| change.to).collect();
        let expected = ["10.96.0.1:80", "192.168.0.1:30080"].map(|to| to.parse().unwrap());
        assert_eq!(to, expected.into());
        assert!(
            added
                .iter()
                .all(|change| change.old.verdict == VerdictKind::NoService
                    && change.new.verdict == VerdictKind::Served),
            "{added:#?}"
        );
        let lost = flow_changes(&snapshot(vec![web(&[ONE, OTHER])]), &one);
        assert!(
            !lost.is_empty() && lost.iter().all(|change| change.old.backends.len() == 2),
            "{lost:#?}"
        );
        let empty = flow_changes(&one, &snapshot(vec![web(&[])]));
        assert!(
            empty
                .iter()
                .all(|change| change.new.verdict == VerdictKind::Rejected),
            "{empty:#?}"
        );
    }

    #[test]
    fn policy_changes_only_what_comes_from_elsewhere() {
        let mut local = web(&[ONE]);
        local.external_policy = TrafficPolicy::Local;
        let changes = flow_changes(&snapshot(vec![web(&[ONE])]), &snapshot(vec![local]));
        let dropped = changes
            .iter()
            .find(|change| change.new.verdict == VerdictKind::Dropped)
            .unwrap();
        assert_eq!(dropped.clients, [Client::External].into());
        assert!(changes.iter().all(|change| change.to.port() == 30_080));
    }
}
