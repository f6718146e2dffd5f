//! The distribution of connections among backends.

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Frontend, Manifests, Service, State, TARGET_PORT},
    lab::{Family, Protocol, Responder, Result, isolated},
};

const CONNECTIONS: usize = 400;

/// Checks the share of pod1, on this node, of all connections; pod3, on the other node, received the rest. The bounds are six
/// standard deviations, exceeded by chance once in 10^8 runs.
fn share_of_the_local_backend(
    flags: &[&str],
    expected: std::ops::RangeInclusive<usize>,
    test: &str,
) -> Result<()> {
    isolated(test, |lab| {
        let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
        let state = Manifests::new(lab)?;
        let web = Service::new("web", 80, &[lab.pod1.host, lab.pod3.host]);
        state.put(&web)?;
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let _agent = Agent::start(lab, &AgentOptions { flags, ..AgentOptions::with_store(state.url()) })?;
        for family in Family::BOTH {
            let address = web.address(lab, Frontend::ClusterIp, family);
            let answered = lab.pod2.distribution(Protocol::Tcp, address, CONNECTIONS)?;
            assert!(expected.contains(&answered["pod1"]), "{answered:?}");
        }
        Ok(())
    })
}

#[test]
fn equal_backends_get_equal_shares() -> Result<()> {
    share_of_the_local_backend(&[], 140..=260, "weights::equal_backends_get_equal_shares")
}

#[test]
fn local_backend_of_weight_three_gets_three_of_four_connections() -> Result<()> {
    let test = "weights::local_backend_of_weight_three_gets_three_of_four_connections";
    share_of_the_local_backend(&["--local-endpoint-weight=3"], 248..=352, test)
}
