//! What a change of services does to the connections that conntrack knows.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use contiv_model::{ChangeSet, Frontend, Protocol, Snapshot};

use super::flows::{KnownFlow, TcpState};
use crate::nftables::{
    Family, FrontendKey,
    conntrack::{Flow, FlowVerdict, Identity, StaleFlowFilter},
};

/// What becomes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FlowFate {
    /// It goes on, with the backend and the source address that it has.
    GoesOn,
    /// It goes on until it ends, or its client begins anew, although its backend is none of the service any more.
    Drained,
    /// The agent deletes it: the next packet begins anew, or is refused.
    Deleted,
}

/// Judges connections as the renderer nftables does after a change.
#[derive(Debug)]
pub struct FlowFates {
    filter: StaleFlowFilter,
    /// The addresses on which node ports answer, before or after.
    node_ips: BTreeSet<IpAddr>,
}

impl FlowFates {
    /// For a change from one state to another. At a start of the agent (`is_start`) it looks at all services.
    pub fn new(old: &Snapshot, new: &Snapshot, is_start: bool) -> Self {
        let mut filter = StaleFlowFilter::default();
        filter.add(ChangeSet::between(old, new).services.values());
        if is_start {
            filter.add_all(new.services.values().map(|service| &**service));
        }
        let node_ips = old.node.node_port_ips().chain(new.node.node_port_ips());
        Self {
            filter,
            node_ips: node_ips.copied().collect(),
        }
    }

    /// Adds the backends to which the kernel sends new connections to an address: as at its start, the agent knows them only from there.
    pub fn add_programmed(
        &mut self,
        frontend: &Frontend,
        to: SocketAddr,
        backends: &BTreeSet<SocketAddr>,
    ) {
        let key = match *frontend {
            Frontend::Address {
                address,
                protocol,
                port,
            } => FrontendKey {
                address,
                protocol,
                port,
            },
            Frontend::NodePort { protocol, port } => {
                self.node_ips.insert(to.ip());
                FrontendKey::node_port(Family::of(&to.ip()), protocol, port)
            }
        };
        let backends = backends.iter().copied().collect();
        self.filter.add_found(key, &backends);
    }

    /// What becomes of a connection.
    pub fn of(&self, flow: &KnownFlow) -> FlowFate {
        // Other zones belong to other programs.
        if flow.zone != 0 {
            return FlowFate::GoesOn;
        }
        let is_attempt = flow.protocol == Protocol::Tcp
            && matches!(flow.tcp_state, Some(TcpState::SynSent | TcpState::SynSent2));
        let judged = Flow {
            protocol: flow.protocol,
            destination: flow.destination,
            backend: flow.server,
            is_in_use: flow.is_answered && !is_attempt,
            identity: Identity {
                tuple: &[],
                id: &[],
            },
        };
        match self.filter.judge(&judged, &self.node_ips) {
            FlowVerdict::Right => FlowFate::GoesOn,
            FlowVerdict::Drained => FlowFate::Drained,
            FlowVerdict::Stale => FlowFate::Deleted,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use contiv_model::{Backend, ContivService, ServiceId, ServicePort};

    use super::*;

    const ONE: &str = "10.244.2.1:8080";
    const OTHER: &str = "10.244.2.2:8080";

    fn state(protocol: Protocol, backends: &[&str]) -> Snapshot {
        let service = ContivService {
            cluster_ips: ["10.96.0.1".parse().unwrap()].into(),
            ports: vec![ServicePort {
                port: 80,
                protocol,
                name: "main".into(),
                node_port: None,
                backends: backends
                    .iter()
                    .map(|it| Backend::new(it.parse().unwrap()))
                    .collect(),
            }],
            ..ContivService::new(ServiceId::new("shop", "web"))
        };
        Snapshot {
            services: [(service.id.clone(), Arc::new(service))].into(),
            ..Snapshot::default()
        }
    }

    fn flow(protocol: Protocol, server: &str, tcp_state: Option<TcpState>) -> KnownFlow {
        KnownFlow {
            protocol,
            client: "10.244.1.5:40000".parse().unwrap(),
            destination: "10.96.0.1:80".parse().unwrap(),
            server: server.parse().unwrap(),
            seen_source: "10.244.1.5:40000".parse().unwrap(),
            is_answered: true,
            is_assured: true,
            is_destination_translated: true,
            is_source_translated: false,
            tcp_state,
            seconds_left: None,
            mark: 0,
            zone: 0,
        }
    }

    #[test]
    fn connections_to_a_lost_backend_are_drained_and_datagrams_deleted() {
        let (tcp, udp) = (Protocol::Tcp, Protocol::Udp);
        let established = Some(TcpState::Established);
        for (protocol, server, tcp_state, expected) in [
            (tcp, ONE, established, FlowFate::GoesOn),
            (tcp, OTHER, established, FlowFate::Drained),
            (tcp, OTHER, Some(TcpState::SynSent), FlowFate::Deleted),
            (udp, ONE, None, FlowFate::GoesOn),
            (udp, OTHER, None, FlowFate::Deleted),
        ] {
            let both = state(protocol, &[ONE, OTHER]);
            let fates = FlowFates::new(&both, &state(protocol, &[ONE]), false);
            let mut flow = flow(protocol, server, tcp_state);
            assert_eq!(fates.of(&flow), expected, "{flow:?}");
            flow.zone = 3;
            assert_eq!(fates.of(&flow), FlowFate::GoesOn, "of another program");
        }
    }

    #[test]
    fn connections_to_a_frontend_that_only_the_kernel_has_are_not_kept() {
        let none = Snapshot::default();
        let backends: BTreeSet<SocketAddr> = [ONE.parse().unwrap()].into();
        let established = Some(TcpState::Established);
        for (protocol, tcp_state, expected) in [
            (Protocol::Udp, None, FlowFate::Deleted),
            (Protocol::Tcp, established, FlowFate::Drained),
        ] {
            let flow = flow(protocol, ONE, tcp_state);
            let mut fates = FlowFates::new(&none, &none, true);
            assert_eq!(fates.of(&flow), FlowFate::GoesOn, "nothing is known of it");
            let address = Frontend::Address {
                address: flow.destination.ip(),
                protocol,
                port: flow.destination.port(),
            };
            fates.add_programmed(&address, flow.destination, &backends);
            assert_eq!(fates.of(&flow), expected, "{flow:?}");
            let mut fates = FlowFates::new(&none, &none, true);
            let node_port = Frontend::NodePort { protocol, port: 80 };
            fates.add_programmed(&node_port, flow.destination, &backends);
            assert_eq!(fates.of(&flow), expected, "{flow:?}");
        }
    }
}
