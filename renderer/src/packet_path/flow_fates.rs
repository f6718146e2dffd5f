//! What a change of services does to the connections that conntrack knows.

use std::{collections::BTreeSet, net::IpAddr};

use contiv_model::{ChangeSet, Protocol, Snapshot};

use super::flows::{KnownFlow, TcpState};
use crate::nftables::conntrack::{Flow, FlowVerdict, Identity, StaleFlowFilter};

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
}
