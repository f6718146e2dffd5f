//! The overrides of kube-proxy's table: pods detected by interfaces, by unknown CIDRs, or not at all; every client masqueraded;
//! and pods masqueraded outside the cluster.

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Frontend, Manifests, NodeManifest, Service, State, TARGET_PORT},
    lab::{Lab, Responder, Result, isolated, ranges},
};

use super::{
    evaluated,
    matrix::{Endpoints, Flow, Mode, Policies, Row, Source, flows_from, manifest},
    run,
};

const MODES: [(Mode, &[&str]); 5] = [
    (Mode::Interfaces, &["--local-detect=interfaces:pod1,pod2*"]),
    (Mode::NoPodCidrs, &[]),
    (Mode::NoDetection, &["--local-detect=none"]),
    (Mode::MasqueradeAll, &["--masquerade-all"]),
    (Mode::Egress, &["--masquerade-egress"]),
];

const SERVICES: [(Policies, [&str; 2]); 4] = [
    (Policies::Cluster, ["c-both", "c-local"]),
    (Policies::ExternalLocal, ["e-both", "e-local"]),
    (Policies::InternalLocal, ["i-both", "i-local"]),
    (Policies::BothLocal, ["b-both", "b-local"]),
];

/// With a local and a remote backend, and with a local one alone.
fn services(lab: &Lab) -> Vec<Row> {
    let (local, remote) = (lab.pod1.host, lab.pod3.host);
    let states = [
        Endpoints::ready("a local and a remote backend", &[local, remote]),
        Endpoints::ready("a local backend", &[local]),
    ];
    let named = SERVICES
        .into_iter()
        .flat_map(|(policies, names)| names.map(|name| (policies, name)));
    named
        .zip(states.iter().cycle())
        .zip(1..)
        .map(|(((policies, name), endpoints), number)| {
            (
                policies,
                endpoints.clone(),
                Service::new(name, number, &endpoints.ready),
            )
        })
        .collect()
}

/// The remote backend answers the external client directly and not from the requested address. The same happens with
/// kube-proxy: without detection, cluster IPs are not for external clients.
fn goes_astray(flow: &Flow, lab: &Lab) -> bool {
    let has_remote = flow
        .endpoints
        .ready
        .iter()
        .any(|host| host.node != lab.node.host.name);
    let is_local = matches!(flow.policies, Policies::InternalLocal | Policies::BothLocal);
    flow.mode == Mode::NoDetection
        && flow.source == Source::External
        && flow.frontend == Frontend::ClusterIp
        && has_remote
        && !is_local
}

#[test]
fn every_override_of_table_holds_in_all_three_ways() -> Result<()> {
    isolated(
        "flows::modes::every_override_of_table_holds_in_all_three_ways",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            for service in services(lab) {
                state.put_manifest(&manifest(&service))?;
            }
            for (mode, flags) in MODES {
                let pods = (mode != Mode::NoPodCidrs).then_some(&ranges::PODS);
                // A UDP client that reuses the port of an earlier mode would continue its flow.
                lab.node.exec(&["conntrack", "--flush"])?;
                state.put_node(&NodeManifest {
                    host: lab.node.host,
                    pods,
                    zone: None,
                })?;
                if mode == Mode::Egress {
                    state.delete_node(lab.node2.host)?;
                }
                let flags = flags.iter().map(ToString::to_string).collect();
                let agent = Agent::start(
                    lab,
                    &AgentOptions {
                        flags,
                        ..AgentOptions::with_store(state.url())
                    },
                )?;
                let flows_from = |source| flows_from(mode, source, services(lab));
                let arriving = |source| {
                    flows_from(source)
                        .into_iter()
                        .filter(|flow| !goes_astray(flow, lab))
                        .collect::<Vec<_>>()
                };
                let (size, wrong) = run(lab, arriving)?;
                println!(
                    "{mode:?}, packets: {size} flows, {} of them not as expected",
                    wrong.len()
                );
                let all = 4 * 4 * 4 * 2 * 3 * 2;
                // Two of the policies, one frontend, both families, three protocols.
                let astray = if mode == Mode::NoDetection {
                    2 * 2 * 3
                } else {
                    0
                };
                assert_eq!(
                    size,
                    all - astray,
                    "sources, frontends, policies, families, protocols, states"
                );
                assert!(wrong.is_empty(), "{mode:?}: {}", wrong.join("\n"));

                let flows: Vec<_> = Source::ALL.into_iter().flat_map(flows_from).collect();
                assert_eq!(flows.len(), all);
                evaluated::compare(&format!("{mode:?}"), lab, &agent, &flows)?;
                agent.stop()?;
            }
            Ok(())
        },
    )
}
