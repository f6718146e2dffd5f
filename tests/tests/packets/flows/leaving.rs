//! Packets to addresses and ports near a service's: they are refused, dropped, or routed as if there were no services.

use std::{net::IpAddr, thread};

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Frontend, Manifests, PORT, Service, ServiceManifest, State, TARGET_PORT},
    lab::{Family, Lab, Outcome, Protocol, Responder, Result, Server, isolated},
};

use super::{matrix::Source, packets::NO_ANSWER};

/// Adds an address of each family to the other node, with routes on this node. Packets that are not intercepted are answered by
/// `elsewhere` at this port.
fn put_elsewhere(lab: &Lab, addresses: [IpAddr; 2], port: u16) -> Result<Vec<Server>> {
    let mut servers = Vec::new();
    for (family, address) in Family::BOTH.into_iter().zip(addresses) {
        let (text, via) = (address.to_string(), lab.node2.host.address(family).to_string());
        // `nodad`: the address can be used immediately.
        let nodad: &[&str] = if address.is_ipv6() { &["nodad"] } else { &[] };
        lab.node2.exec(&[&["ip", "address", "add", &text, "dev", "lo"], nodad].concat())?;
        lab.node.exec(&["ip", "route", "add", &text, "via", &via])?;
        for protocol in Protocol::ALL {
            servers.push(Server::start(&lab.node2, "elsewhere", protocol, (address, port).into())?);
        }
    }
    Ok(servers)
}

/// The addresses of a frontend of a service, one of each family.
fn addresses(lab: &Lab, service: &Service, frontend: Frontend) -> [IpAddr; 2] {
    Family::BOTH.map(|family| service.address(lab, frontend, family).ip())
}

/// Sends requests to an address of each family by both protocols from all sources; `check` judges the outcomes.
fn from_everywhere(
    lab: &Lab,
    addresses: [IpAddr; 2],
    port: u16,
    check: impl Fn(&Outcome) -> bool + Sync,
) -> Result<()> {
    let ask = |(source, address, protocol): (Source, IpAddr, Protocol)| {
        let server = (address, port).into();
        let outcome = source.namespace(lab).ask_within(protocol, server, NO_ANSWER)?;
        assert!(check(&outcome), "from {source:?} to {server}, {protocol:?}: {outcome:?}");
        Ok(())
    };
    let flows = Source::ALL
        .into_iter()
        .flat_map(|source| addresses.map(|address| (source, address)))
        .flat_map(|(source, address)| Protocol::ALL.map(|protocol| (source, address, protocol)));
    // In parallel, because missing answers take time.
    thread::scope(|scope| {
        let ask = &ask;
        let runs: Vec<_> = flows.map(|flow| scope.spawn(move || ask(flow))).collect();
        runs.into_iter()
            .try_for_each(|run| run.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause)))
    })
}

fn answered_elsewhere(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Answered { answer, .. } if answer.by == "elsewhere")
}

#[test]
fn unknown_port_rejects_on_cluster_ip_and_passes_on_load_balancer() -> Result<()> {
    let test = "flows::leaving::unknown_port_rejects_on_cluster_ip_and_passes_on_load_balancer";
    isolated(test, |lab| {
        let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
        let web = Service::new("web", 80, &[lab.pod1.host]);
        let balancer = addresses(lab, &web, Frontend::LoadBalancer);
        let _elsewhere = put_elsewhere(lab, balancer, PORT + 1)?;
        let state = Manifests::new(lab)?;
        state.put(&web)?;
        let _agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
        let is_refused = |outcome: &Outcome| matches!(outcome, Outcome::Refused { .. });
        from_everywhere(lab, addresses(lab, &web, Frontend::ClusterIp), PORT + 1, is_refused)?;
        from_everywhere(lab, balancer, PORT + 1, answered_elsewhere)?;
        let answered_here =
            |outcome: &Outcome| matches!(outcome, Outcome::Answered { answer, .. } if answer.by == "pod1");
        from_everywhere(lab, balancer, PORT, answered_here)
    })
}

#[test]
fn ip_mode_proxy_sends_traffic_to_the_load_balancer() -> Result<()> {
    isolated("flows::leaving::ip_mode_proxy_sends_traffic_to_the_load_balancer", |lab| {
        let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
        let web = Service::new("web", 80, &[lab.pod1.host]);
        let balancer = addresses(lab, &web, Frontend::LoadBalancer);
        let _elsewhere = put_elsewhere(lab, balancer, PORT)?;
        let state = Manifests::new(lab)?;
        state.put_manifest(&ServiceManifest { proxied: true, ..ServiceManifest::new(web) })?;
        let _agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
        from_everywhere(lab, balancer, PORT, answered_elsewhere)
    })
}

#[test]
fn unallocated_cluster_ip_is_dropped_in_known_service_cidrs() -> Result<()> {
    isolated("flows::leaving::unallocated_cluster_ip_is_dropped_in_known_service_cidrs", |lab| {
        let nobody = addresses(lab, &Service::new("nobody", 200, &[]), Frontend::ClusterIp);
        let _elsewhere = put_elsewhere(lab, nobody, PORT)?;
        let state = Manifests::new(lab)?;
        state.put(&Service::new("web", 80, &[]))?;
        let agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
        from_everywhere(lab, nobody, PORT, answered_elsewhere)?;
        agent.stop()?;
        let flags = vec!["--service-cidrs=10.96.0.0/16,fd00:10:96::/112".to_owned()];
        let _agent = Agent::start(lab, &AgentOptions { flags, ..AgentOptions::with_store(state.url()) })?;
        from_everywhere(lab, nobody, PORT, |outcome| *outcome == Outcome::TimedOut)
    })
}
