//! Packets that no service's frontend matches, to an unknown port or an unallocated address: they are refused, dropped, or routed as
//! if there were no services.

use std::{net::IpAddr, thread};

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Frontend, Manifests, PORT, Service, ServiceManifest, State, TARGET_PORT},
    lab::{Family, Lab, Outcome, Protocol, Responder, Result, Server, isolated},
};

use super::{matrix::Source, packets::NO_ANSWER_TIMEOUT};

/// Adds an address of each family to the other node, with routes from this node, and starts servers there that answer `other-node`
/// at this port. They get the packets that this node does not intercept.
fn serve_on_other_node(lab: &Lab, addresses: [IpAddr; 2], port: u16) -> Result<Vec<Server>> {
    let mut servers = Vec::new();
    for (family, address) in Family::BOTH.into_iter().zip(addresses) {
        let (text, via) = (
            address.to_string(),
            lab.node2.host.address(family).to_string(),
        );
        // `nodad`: the address can be used immediately.
        let nodad: &[&str] = if address.is_ipv6() { &["nodad"] } else { &[] };
        lab.node2
            .exec(&[&["ip", "address", "add", &text, "dev", "lo"], nodad].concat())?;
        lab.node.exec(&["ip", "route", "add", &text, "via", &via])?;
        for protocol in Protocol::ALL {
            servers.push(Server::start(
                &lab.node2,
                "other-node",
                protocol,
                (address, port).into(),
            )?);
        }
    }
    Ok(servers)
}

/// The addresses of a frontend of a service, one of each family.
fn addresses(lab: &Lab, service: &Service, frontend: Frontend) -> [IpAddr; 2] {
    Family::BOTH.map(|family| service.address(lab, frontend, family).ip())
}

/// Sends requests from all sources to an address of each family, by all protocols, and asserts that `check` accepts each outcome.
fn check_from_all_sources(
    lab: &Lab,
    addresses: [IpAddr; 2],
    port: u16,
    check: impl Fn(&Outcome) -> bool + Sync,
) -> Result<()> {
    let ask = |(source, address, protocol): (Source, IpAddr, Protocol)| {
        let server = (address, port).into();
        let outcome = source
            .namespace(lab)
            .ask_within(protocol, server, NO_ANSWER_TIMEOUT)?;
        assert!(
            check(&outcome),
            "from {source:?} to {server}, {protocol:?}: {outcome:?}"
        );
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
        runs.into_iter().try_for_each(|run| {
            run.join()
                .unwrap_or_else(|cause| std::panic::resume_unwind(cause))
        })
    })
}

fn answered_by_other_node(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Answered { answer, .. } if answer.by == "other-node")
}

#[test]
fn unknown_port_is_rejected_on_cluster_ip_only() -> Result<()> {
    let test = "flows::not_intercepted::unknown_port_is_rejected_on_cluster_ip_only";
    isolated(test, |lab| {
        let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
        let web = Service::new("web", 80, &[lab.pod1.host]);
        let balancer = addresses(lab, &web, Frontend::LoadBalancer);
        let _servers = serve_on_other_node(lab, balancer, PORT + 1)?;
        let state = Manifests::new(lab)?;
        state.put(&web)?;
        let _agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
        let is_refused = |outcome: &Outcome| matches!(outcome, Outcome::Refused { .. });
        check_from_all_sources(
            lab,
            addresses(lab, &web, Frontend::ClusterIp),
            PORT + 1,
            is_refused,
        )?;
        check_from_all_sources(lab, balancer, PORT + 1, answered_by_other_node)?;
        let answered_by_pod1 = |outcome: &Outcome| matches!(outcome, Outcome::Answered { answer, .. } if answer.by == "pod1");
        check_from_all_sources(lab, balancer, PORT, answered_by_pod1)
    })
}

#[test]
fn ip_mode_proxy_sends_traffic_to_the_load_balancer() -> Result<()> {
    isolated(
        "flows::not_intercepted::ip_mode_proxy_sends_traffic_to_the_load_balancer",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let web = Service::new("web", 80, &[lab.pod1.host]);
            let balancer = addresses(lab, &web, Frontend::LoadBalancer);
            let _servers = serve_on_other_node(lab, balancer, PORT)?;
            let state = Manifests::new(lab)?;
            state.put_manifest(&ServiceManifest {
                proxied: true,
                ..ServiceManifest::new(web)
            })?;
            let _agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
            check_from_all_sources(lab, balancer, PORT, answered_by_other_node)
        },
    )
}

#[test]
fn unallocated_cluster_ip_is_dropped_in_known_service_cidrs() -> Result<()> {
    isolated(
        "flows::not_intercepted::unallocated_cluster_ip_is_dropped_in_known_service_cidrs",
        |lab| {
            let unallocated = addresses(
                lab,
                &Service::new("unallocated", 200, &[]),
                Frontend::ClusterIp,
            );
            let _servers = serve_on_other_node(lab, unallocated, PORT)?;
            let state = Manifests::new(lab)?;
            state.put(&Service::new("web", 80, &[]))?;
            let agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
            check_from_all_sources(lab, unallocated, PORT, answered_by_other_node)?;
            agent.stop()?;
            let flags = vec!["--service-cidrs=10.96.0.0/16,fd00:10:96::/112".to_owned()];
            let _agent = Agent::start(
                lab,
                &AgentOptions {
                    flags,
                    ..AgentOptions::with_store(state.url())
                },
            )?;
            check_from_all_sources(lab, unallocated, PORT, |outcome| {
                *outcome == Outcome::TimedOut
            })
        },
    )
}
