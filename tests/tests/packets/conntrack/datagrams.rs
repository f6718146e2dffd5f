//! UDP: stale flows are deleted immediately, all others stay.

use std::net::SocketAddr;

use contiv_model::{BackendState, ContivService, Protocol};
use contiv_tests::lab::{
    Family, Lab, Namespace, Protocol as LabProtocol, Result, Session, isolated, ranges,
};

use crate::gateway::{Flow, Gateway, NODE_PORT, PORT, address, service};

/// Sessions to a frontend with their flows; enough that each of two backends has some.
fn sessions(
    from: &Namespace,
    gateway: &Gateway<'_>,
    frontend: SocketAddr,
) -> Result<Vec<(Session, Flow)>> {
    let mut sessions = Vec::new();
    for _ in 0..16 {
        let mut session = from.open(LabProtocol::Udp, frontend)?;
        session.ask()?;
        if let Some(flow) = gateway.flow_of(from, &session)? {
            sessions.push((session, flow));
        }
    }
    Ok(sessions)
}

/// A kind of frontend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    ClusterIp,
    NodePort,
    LoadBalancer,
}

fn is_behind(flow: &Flow, pod: &Namespace) -> bool {
    Family::BOTH
        .iter()
        .any(|family| flow.backend == pod.host.socket(*family, PORT))
}

/// Replaces one of two backends behind a frontend and compares all flows with the expected result.
fn replace_one_backend(lab: &Lab, family: Family, at: At) -> Result<()> {
    let mut gateway = Gateway::start(lab)?;
    let balancer = ranges::LOAD_BALANCERS.address(family, 1);
    let with = |backends: &[&Namespace]| {
        let mut service = service("dns", 1, Protocol::Udp, backends);
        match at {
            At::ClusterIp => {}
            At::NodePort => service.ports[0].node_port = Some(NODE_PORT),
            At::LoadBalancer => {
                service.external_ips = [balancer].into();
                service.load_balancer_ips = [balancer].into();
            }
        }
        service
    };
    let (from, frontend) = match at {
        At::ClusterIp => (&lab.pod1, address(1, family)),
        At::NodePort => (&lab.client, lab.node.host.socket(family, NODE_PORT)),
        At::LoadBalancer => (&lab.client, SocketAddr::new(balancer, PORT)),
    };
    gateway.program(&[&with(&[&lab.pod2, &lab.pod3])])?;
    let mut sessions = sessions(from, &gateway, frontend)?;
    let stale = sessions
        .iter()
        .filter(|(_, flow)| is_behind(flow, &lab.pod3))
        .count();
    assert!(
        stale > 0 && stale < sessions.len(),
        "{stale} of {} flows go to pod3",
        sessions.len()
    );
    // Directly to a host, without a service.
    let host = if at == At::ClusterIp {
        lab.pod3.host
    } else {
        lab.node.host
    };
    let direct = from.open(LabProtocol::Udp, host.socket(family, PORT))?;
    let unrelated = gateway.send(from, &direct)?;

    gateway.program(&[&with(&[&lab.pod2])])?;
    gateway.wait_for_deletions(stale)?;
    assert_eq!(
        gateway.flow_of(from, &direct)?,
        Some(unrelated),
        "a flow past the service is none of ours"
    );
    for (session, before) in &mut sessions {
        let stays = is_behind(before, &lab.pod2);
        let flow = gateway.flow_of(from, session)?;
        assert_eq!(flow.as_ref(), stays.then_some(&*before), "{before:?}");
        // The next datagram from the same port.
        assert_eq!(session.ask()?.by, "pod2");
    }
    Ok(())
}

#[test]
fn only_flows_to_removed_backend_are_deleted() -> Result<()> {
    isolated(
        "conntrack::datagrams::only_flows_to_removed_backend_are_deleted",
        |lab| replace_one_backend(lab, Family::V4, At::ClusterIp),
    )
}

#[test]
fn only_ipv6_flows_to_removed_backend_are_deleted() -> Result<()> {
    isolated(
        "conntrack::datagrams::only_ipv6_flows_to_removed_backend_are_deleted",
        |lab| replace_one_backend(lab, Family::V6, At::ClusterIp),
    )
}

#[test]
fn only_balancer_flows_to_removed_backend_are_deleted() -> Result<()> {
    isolated(
        "conntrack::datagrams::only_balancer_flows_to_removed_backend_are_deleted",
        |lab| replace_one_backend(lab, Family::V4, At::LoadBalancer),
    )
}

#[test]
fn only_node_port_flows_to_removed_backend_are_deleted() -> Result<()> {
    isolated(
        "conntrack::datagrams::only_node_port_flows_to_removed_backend_are_deleted",
        |lab| replace_one_backend(lab, Family::V4, At::NodePort),
    )
}

#[test]
fn flows_of_a_service_losing_its_last_backend_are_refused() -> Result<()> {
    isolated(
        "conntrack::datagrams::flows_of_a_service_losing_its_last_backend_are_refused",
        |lab| {
            let mut gateway = Gateway::start(lab)?;
            gateway.program(&[&service("dns", 1, Protocol::Udp, &[&lab.pod3])])?;
            let mut session = lab.pod1.open(LabProtocol::Udp, address(1, Family::V4))?;
            assert_eq!(session.ask()?.by, "pod3");
            gateway.program(&[&service("dns", 1, Protocol::Udp, &[])])?;
            gateway.wait_for_deletions(1)?;
            let refusal = session
                .ask()
                .map_err(|error| error.to_string())
                .err()
                .unwrap_or_default();
            assert!(refusal.contains("refused"), "{refusal}");
            gateway.program(&[&service("dns", 1, Protocol::Udp, &[&lab.pod2])])?;
            assert_eq!(
                session.ask()?.by,
                "pod2",
                "and served again when there is one"
            );
            Ok(())
        },
    )
}

#[test]
fn deleted_service_takes_its_flows_with_it() -> Result<()> {
    isolated(
        "conntrack::datagrams::deleted_service_takes_its_flows_with_it",
        |lab| {
            let mut gateway = Gateway::start(lab)?;
            let (gone, kept) = (
                service("gone", 1, Protocol::Udp, &[&lab.pod3]),
                service("kept", 2, Protocol::Udp, &[&lab.pod3]),
            );
            gateway.program(&[&gone, &kept])?;
            let open = |number| {
                let mut session = lab
                    .pod1
                    .open(LabProtocol::Udp, address(number, Family::V4))?;
                session.ask()?;
                Ok(session)
            };
            let (lost, alive): (Session, Session) = (open(1)?, open(2)?);
            let before = gateway.flow_of(&lab.pod1, &alive)?;
            assert!(before.is_some());
            gateway.program(&[&kept])?;
            gateway.wait_for_deletions(1)?;
            assert_eq!(gateway.flow_of(&lab.pod1, &lost)?, None);
            assert_eq!(
                gateway.flow_of(&lab.pod1, &alive)?,
                before,
                "the same backend under another service"
            );
            Ok(())
        },
    )
}

#[test]
fn datagrams_that_were_refused_reach_the_first_backend() -> Result<()> {
    isolated(
        "conntrack::datagrams::datagrams_that_were_refused_reach_the_first_backend",
        |lab| {
            let mut gateway = Gateway::start(lab)?;
            for family in Family::BOTH {
                gateway.program(&[&service("dns", 1, Protocol::Udp, &[])])?;
                let mut session = lab.pod1.open(LabProtocol::Udp, address(1, family))?;
                assert!(session.ask().is_err(), "there is no backend");
                gateway.program(&[&service("dns", 1, Protocol::Udp, &[&lab.pod3])])?;
                assert_eq!(session.ask()?.by, "pod3", "from the same port");
            }
            Ok(())
        },
    )
}

#[test]
fn untranslated_flow_is_translated_once_service_exists() -> Result<()> {
    isolated(
        "conntrack::datagrams::untranslated_flow_is_translated_once_service_exists",
        |lab| {
            let mut gateway = Gateway::start(lab)?;
            let mut session = lab.pod1.open(LabProtocol::Udp, address(1, Family::V4))?;
            let flow = gateway.send(&lab.pod1, &session)?;
            assert_eq!(flow.backend, flow.destination, "it is not translated");
            gateway.program(&[&service("dns", 1, Protocol::Udp, &[&lab.pod3])])?;
            gateway.wait_for_deletions(1)?;
            assert_eq!(session.ask()?.by, "pod3");
            Ok(())
        },
    )
}

#[test]
fn affinity_moves_with_the_next_datagram() -> Result<()> {
    isolated(
        "conntrack::datagrams::affinity_moves_with_the_next_datagram",
        |lab| {
            let mut gateway = Gateway::start(lab)?;
            let with = |backends: &[&Namespace]| ContivService {
                session_affinity_timeout: 600,
                ..service("dns", 1, Protocol::Udp, backends)
            };
            gateway.program(&[&with(&[&lab.pod2, &lab.pod3])])?;
            let mut session = lab.pod1.open(LabProtocol::Udp, address(1, Family::V4))?;
            let (left, name) = if session.ask()?.by == "pod2" {
                (&lab.pod3, "pod3")
            } else {
                (&lab.pod2, "pod2")
            };
            gateway.program(&[&with(&[left])])?;
            gateway.wait_for_deletions(1)?;
            assert_eq!(session.ask()?.by, name);
            Ok(())
        },
    )
}

#[test]
fn backend_that_terminates_and_still_serves_keeps_its_flows() -> Result<()> {
    isolated(
        "conntrack::datagrams::backend_that_terminates_and_still_serves_keeps_its_flows",
        |lab| {
            let mut gateway = Gateway::start(lab)?;
            let mut both = service("dns", 1, Protocol::Udp, &[&lab.pod2, &lab.pod3]);
            gateway.program(&[&both])?;
            let sessions = sessions(&lab.pod1, &gateway, address(1, Family::V4))?;
            let draining = sessions
                .iter()
                .filter(|(_, flow)| is_behind(flow, &lab.pod3))
                .count();
            for backend in &mut both.ports[0].backends {
                if Family::BOTH
                    .iter()
                    .any(|family| backend.endpoint() == lab.pod3.host.socket(*family, PORT))
                {
                    backend.state = BackendState::Terminating;
                }
            }
            gateway.program(&[&both])?;
            // When this flow is deleted, the change before it has been processed.
            let mark = lab.pod1.open(LabProtocol::Udp, address(2, Family::V4))?;
            gateway.send(&lab.pod1, &mark)?;
            gateway.program(&[&both, &service("mark", 2, Protocol::Udp, &[])])?;
            gateway.wait_for_deletions(1)?;
            for (session, before) in &sessions {
                assert_eq!(gateway.flow_of(&lab.pod1, session)?.as_ref(), Some(before));
            }
            gateway.program(&[&service("dns", 1, Protocol::Udp, &[&lab.pod2])])?;
            gateway.wait_for_deletions(1 + draining)?;
            Ok(())
        },
    )
}
