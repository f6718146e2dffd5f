//! The flow matrix: what becomes of every kind of flow, with real packets through a running agent.

mod matrix;
mod oracle;
mod packets;

use std::thread;

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Frontend, Manifests, PORT, Service, State, TARGET_PORT},
    lab::{Family, Lab, Outcome, Protocol, Responder, Result, isolated},
};

use matrix::{Source, flows_from, manifest, services};
use packets::mismatches;

#[test]
fn every_flow_of_the_matrix_ends_as_kube_proxys_tables_say() -> Result<()> {
    isolated("every_flow_of_the_matrix_ends_as_kube_proxys_tables_say", |lab| {
        let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
        let state = Manifests::new(lab)?;
        for service in services(lab) {
            state.put_manifest(&manifest(&service))?;
        }
        let _agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
        let (size, wrong) = run(lab)?;
        println!("flow matrix: {size} flows, {} of them not as expected", wrong.len());
        // As many as there are combinations; fewer would mean that rows were lost on the way.
        assert_eq!(size, 4 * 4 * 4 * 2 * 2 * 5, "sources, frontends, policies, families, protocols, states");
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    })
}

/// Runs the flows of all sources side by side. Returns how many there were, and those that went wrong.
fn run(lab: &Lab) -> Result<(usize, Vec<String>)> {
    thread::scope(|scope| {
        let from = |source| {
            let flows = flows_from(source, lab);
            mismatches(lab, &flows).map(|wrong| (flows.len(), wrong))
        };
        let runs = Source::ALL.map(|source| scope.spawn(move || from(source)));
        let (mut size, mut wrong) = (0, Vec::new());
        for run in runs {
            let (count, found) = run.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause))?;
            size += count;
            wrong.extend(found);
        }
        Ok((size, wrong))
    })
}

#[test]
fn a_port_that_no_service_has_is_refused_on_a_cluster_ip_and_left_alone_on_others() -> Result<()> {
    let test = "a_port_that_no_service_has_is_refused_on_a_cluster_ip_and_left_alone_on_others";
    isolated(test, |lab| {
        let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
        let state = Manifests::new(lab)?;
        state.put(&Service::new("web", 80, &[lab.pod1.host]))?;
        let _agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
        thread::scope(|scope| {
            let flows = Source::ALL
                .into_iter()
                .flat_map(|source| Family::BOTH.map(|family| (source, family)))
                .flat_map(|(source, family)| Protocol::BOTH.map(|protocol| (source, family, protocol)));
            let runs: Vec<_> = flows.map(|flow| scope.spawn(move || other_ports(lab, flow))).collect();
            runs.into_iter()
                .try_for_each(|run| run.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause)))
        })
    })
}

fn other_ports(lab: &Lab, (source, family, protocol): (Source, Family, Protocol)) -> Result<()> {
    let web = Service::new("web", 80, &[lab.pod1.host]);
    let ask = |frontend| {
        let mut address = web.address(lab, frontend, family);
        address.set_port(PORT + 1);
        source.namespace(lab).ask_within(protocol, address, packets::NO_ANSWER)
    };
    let outcome = ask(Frontend::ClusterIp)?;
    assert!(matches!(outcome, Outcome::Refused { .. }), "{source:?} {family:?} {protocol:?}: {outcome:?}");
    // It leaves for the load balancer, which is not there in the lab.
    let outcome = ask(Frontend::LoadBalancer)?;
    assert!(
        matches!(outcome, Outcome::TimedOut | Outcome::Unreachable),
        "{source:?} {family:?} {protocol:?}: {outcome:?}"
    );
    Ok(())
}
