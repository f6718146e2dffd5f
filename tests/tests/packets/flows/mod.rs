//! The flow matrix: the outcome of every kind of flow, with real packets through a running agent, by its evaluator, and by the
//! kernel's tables.

mod evaluated;
mod evaluator;
mod kernel;
mod matrix;
mod modes;
mod not_intercepted;
mod oracle;
mod outcomes;
mod packets;

pub(crate) use outcomes::unexpected;

use std::thread;

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Manifests, State, TARGET_PORT},
    lab::{Lab, Responder, Result, isolated},
};

use matrix::{Flow, Mode, Source, flows_from, manifest, services};
use packets::mismatches;

#[test]
fn every_flow_of_matrix_ends_as_with_kube_proxy() -> Result<()> {
    isolated(
        "flows::every_flow_of_matrix_ends_as_with_kube_proxy",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            for service in services(lab) {
                state.put_manifest(&manifest(&service))?;
            }
            let agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
            let flows_from = |source| flows_from(Mode::PodCidrs, source, services(lab));
            let (size, wrong) = run(lab, flows_from)?;
            println!(
                "flow matrix, packets: {size} flows, {} of them not as expected",
                wrong.len()
            );
            // The number of combinations; fewer would mean that rows were lost.
            assert_eq!(
                size,
                4 * 4 * 4 * 2 * 3 * 5,
                "sources, frontends, policies, families, protocols, states"
            );
            assert!(wrong.is_empty(), "{}", wrong.join("\n"));

            let flows: Vec<_> = Source::ALL.into_iter().flat_map(flows_from).collect();
            evaluated::compare("flow matrix", lab, &agent, &flows)
        },
    )
}

/// Sends the packets of all flows, from all sources in parallel. Returns the number of flows and the mismatches.
fn run(lab: &Lab, flows_from: impl Fn(Source) -> Vec<Flow> + Sync) -> Result<(usize, Vec<String>)> {
    thread::scope(|scope| {
        let flows_from = &flows_from;
        let from = |source| {
            let flows = flows_from(source);
            mismatches(lab, &flows).map(|wrong| (flows.len(), wrong))
        };
        let runs = Source::ALL.map(|source| scope.spawn(move || from(source)));
        let (mut size, mut wrong) = (0, Vec::new());
        for run in runs {
            let (count, found) = run
                .join()
                .unwrap_or_else(|cause| std::panic::resume_unwind(cause))?;
            size += count;
            wrong.extend(found);
        }
        Ok((size, wrong))
    })
}
