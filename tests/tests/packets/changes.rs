//! The next connection follows each change in the store.

use std::{collections::BTreeMap, time::Duration};

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Etcd, Frontend, Manifests, Service, State, TARGET_PORT},
    lab::{Family, Host, Lab, Outcome, Protocol, Responder, Result, isolated},
};

/// The time limit for an answer that must come, even on a busy machine.
const EVENT_TIMEOUT: Duration = Duration::from_secs(20);
/// The time limit for an answer that must not come.
const NO_ANSWER_TIMEOUT: Duration = Duration::from_millis(100);
/// Enough changes to coincide with a packet now and then.
const CHANGES: usize = 400;

#[test]
fn next_connection_follows_each_change_of_manifest() -> Result<()> {
    isolated(
        "changes::next_connection_follows_each_change_of_manifest",
        |lab| the_next_connection_follows_each_change(lab, &Manifests::new(lab)?),
    )
}

#[test]
fn next_connection_follows_each_change_in_etcd() -> Result<()> {
    isolated(
        "changes::next_connection_follows_each_change_in_etcd",
        |lab| the_next_connection_follows_each_change(lab, &Etcd::start(lab)?),
    )
}

/// One backend, another one, none, one again, two; then the service is deleted and created again.
fn the_next_connection_follows_each_change(lab: &Lab, state: &dyn State) -> Result<()> {
    let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
    let [first, second, third, fourth] = lab.pods().map(|pod| pod.host);
    let agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
    let change_to = |backends: &[&'static Host]| {
        let web = Service::new("web", 80, backends);
        state.put(&web)?;
        agent.wait_until_applied(&web)?;
        Ok(web)
    };
    for backends in [&[first][..], &[third], &[], &[fourth], &[second]] {
        let web = change_to(backends)?;
        each_flow(lab, &web, EVENT_TIMEOUT, |outcome, flow| match backends {
            [] => assert!(
                matches!(outcome, Outcome::Refused { .. }),
                "{flow}: {outcome:?}"
            ),
            [only, ..] => {
                assert!(
                    matches!(&outcome, Outcome::Answered { answer, .. } if answer.by == only.name),
                    "{flow}: {outcome:?}"
                );
            }
        })?;
    }
    let web = change_to(&[second, third])?;
    let address = web.address(lab, Frontend::ExternalIp, Family::V6);
    let answered = lab.client.distribution(Protocol::Tcp, address, 60)?;
    assert_eq!(answered.keys().collect::<Vec<_>>(), ["pod2", "pod3"]);

    state.delete(&web)?;
    agent.wait_until_gone(&web)?;
    each_flow(lab, &web, NO_ANSWER_TIMEOUT, |outcome, flow| {
        // Nothing answers at its addresses any more, except that the node itself refuses unknown ports.
        assert!(
            !matches!(outcome, Outcome::Answered { .. }),
            "{flow}: {outcome:?}"
        );
    })?;
    let web = change_to(&[second])?;
    let answered = lab.client.distribution(
        Protocol::Tcp,
        web.address(lab, Frontend::NodePort, Family::V4),
        5,
    )?;
    assert_eq!(answered, BTreeMap::from([("pod2".to_owned(), 5)]));
    Ok(())
}

/// One connection for each kind of flow that takes a different path through the kernel.
fn each_flow(
    lab: &Lab,
    service: &Service,
    limit: Duration,
    check: impl Fn(Outcome, &str),
) -> Result<()> {
    for from in [&lab.pod1, &lab.node, &lab.client] {
        for frontend in [Frontend::ClusterIp, Frontend::NodePort] {
            for (family, protocol) in Family::BOTH
                .into_iter()
                .flat_map(|f| Protocol::ALL.map(|p| (f, p)))
            {
                let address = service.address(lab, frontend, family);
                let outcome = from.ask_within(protocol, address, limit)?;
                check(
                    outcome,
                    &format!(
                        "{} -> {address} ({frontend:?}, {protocol:?})",
                        from.host.name
                    ),
                );
            }
        }
    }
    Ok(())
}

#[test]
fn hairpin_pod_never_hangs_while_its_backend_flaps() -> Result<()> {
    isolated(
        "changes::hairpin_pod_never_hangs_while_its_backend_flaps",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            let [here, there] =
                [lab.pod1.host, lab.pod3.host].map(|host| Service::new("web", 80, &[host]));
            state.put(&here)?;
            let agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
            let address = here.address(lab, Frontend::ClusterIp, Family::V4);
            // A connection to itself is masqueraded, one to the other pod is not: both must work along the whole path.
            let answered = lab.pod1.ask_while(Protocol::Tcp, address, || {
                for service in [&there, &here].iter().cycle().take(CHANGES) {
                    state.put(service)?;
                    agent.wait_until_applied(service)?;
                }
                Ok(())
            })?;
            assert!(
                answered > CHANGES,
                "only {answered} connections during {CHANGES} changes"
            );
            Ok(())
        },
    )
}
