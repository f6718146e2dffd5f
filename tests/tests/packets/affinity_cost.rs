//! The cost of session affinity: the rules that a packet traverses.

use std::time::Duration;

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Manifests, Service, ServiceManifest, State},
    lab::{Host, Lab, Result, isolated, wait_until},
};

/// All rules, without the elements of sets and maps.
fn rules(lab: &Lab) -> Result<Vec<String>> {
    let listed = lab.node.exec(&[
        "nft",
        "--terse",
        "--stateless",
        "list",
        "table",
        "inet",
        "contiv",
    ])?;
    Ok(listed.lines().map(str::to_owned).collect())
}

#[test]
fn affinity_is_one_lookup_however_many_backends_and_services() -> Result<()> {
    isolated(
        "affinity_cost::affinity_is_one_lookup_however_many_backends_and_services",
        |lab| {
            let state = Manifests::new(lab)?;
            let sticky = |name, number, backends: &[&'static Host]| ServiceManifest {
                affinity: Some(600),
                ..ServiceManifest::new(Service::new(name, number, backends))
            };
            state.put_manifest(&sticky("web", 80, &[lab.pod1.host]))?;
            let agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
            let before = rules(lab)?.len();
            assert!(before > 0);
            let all = [lab.pod1.host, lab.pod2.host, lab.pod3.host, lab.pod4.host];
            for manifest in [
                sticky("web", 80, &all),
                sticky("api", 81, &all),
                sticky("dns", 82, &all),
            ] {
                state.put_manifest(&manifest)?;
                agent.wait_until_applied(&manifest.service)?;
            }
            // The chain that picked among one is not needed any more. It is kept for the next service with one backend until a
            // resync.
            agent.http("POST", "/controller/resync")?;
            wait_until(
                "there are as many rules as for one service with one backend",
                Duration::from_secs(10),
                || rules(lab).is_ok_and(|rules| rules.len() == before),
            )?;
            Ok(())
        },
    )
}
