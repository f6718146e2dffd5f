//! The Node object of this node is deleted: its node ports still answer, as with kube-proxy.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use contiv_tests::{
    agent::{Agent, AgentOptions, binary},
    cluster::{Etcd, Frontend, Manifests, Service, State, TARGET_PORT},
    lab::{Family, Lab, LabError, Protocol, Responder, Result, isolated, wait_until},
};

/// The time limit for expected events. Generous.
const EVENT_TIMEOUT: Duration = Duration::from_secs(20);
const HEALTHZ: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10256);

#[test]
fn deleted_node_in_etcd_keeps_its_node_ports() -> Result<()> {
    isolated(
        "own_node::deleted_node_in_etcd_keeps_its_node_ports",
        |lab| deleted_node_keeps_its_node_ports(lab, &Etcd::start(lab)?),
    )
}

#[test]
fn deleted_node_in_manifests_keeps_its_node_ports() -> Result<()> {
    isolated(
        "own_node::deleted_node_in_manifests_keeps_its_node_ports",
        |lab| deleted_node_keeps_its_node_ports(lab, &Manifests::new(lab)?),
    )
}

fn deleted_node_keeps_its_node_ports(lab: &Lab, state: &dyn State) -> Result<()> {
    let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
    let web = Service::new("web", 80, &[lab.pod1.host]);
    state.put(&web)?;
    let flags = vec![format!("--healthz-listen={HEALTHZ}")];
    let options = AgentOptions {
        flags,
        ..AgentOptions::with_store(state.url())
    };
    let mut agent = Agent::start(lab, &options)?;
    check(lab, &web, "before")?;

    state.delete_node(lab.node.host)?;
    wait_until_node_is_missed(lab)?;
    check(lab, &web, "after the deletion")?;
    let moved = Service {
        backends: vec![lab.pod3.host],
        ..web
    };
    state.put(&moved)?;
    agent.wait_until_applied(&moved)?;
    check(lab, &moved, "after a change")?;

    for start in ["after a restart", "after another restart"] {
        agent.wait_until_saved()?;
        agent.stop()?;
        // As a reboot would, so that only what the next agent writes can answer.
        lab.node.exec(&[&binary()?.to_string_lossy(), "cleanup"])?;
        agent = Agent::start(lab, &options)?;
        wait_until_node_is_missed(lab)?;
        check(lab, &moved, start)?;
    }
    agent.stop().map(drop)
}

/// External clients and pods of another node get an answer from the service's backend, by every protocol.
fn check(lab: &Lab, service: &Service, when: &str) -> Result<()> {
    for from in [&lab.client, &lab.pod4] {
        for (family, protocol) in Family::BOTH
            .into_iter()
            .flat_map(|f| Protocol::ALL.map(|p| (f, p)))
        {
            let address = service.address(lab, Frontend::NodePort, family);
            let flow = format!("{when}: {} -> {address}, {protocol:?}", from.host.name);
            let failed = |error: LabError| LabError::Unexpected(format!("{flow}: {error}"));
            let answer = from.ask(protocol, address)?.answer().map_err(failed)?;
            assert_eq!(answer.by, service.backends[0].name, "{flow}");
        }
    }
    Ok(())
}

/// The agent says to load balancers that its Node object is gone.
fn wait_until_node_is_missed(lab: &Lab) -> Result<()> {
    let is_missed = || {
        let response = lab.node.http("GET", HEALTHZ, "/healthz");
        response
            .and_then(|response| response.json())
            .is_ok_and(|health| health["nodeEligible"] == false)
    };
    wait_until("the agent misses its Node object", EVENT_TIMEOUT, is_missed).map(drop)
}
