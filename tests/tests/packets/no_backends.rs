//! A service without backends rejects connections immediately.

use std::time::Duration;

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Etcd, Frontend, Manifests, Service, State, TARGET_PORT},
    lab::{Family, Lab, LabError, Protocol, Responder, Result, isolated, wait_until},
};

/// A time that a user would not notice. A client without an answer waits for minutes.
const REJECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Longer than the search for stale flows waits.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn service_without_backends_rejects_at_once_from_manifests() -> Result<()> {
    isolated(
        "no_backends::service_without_backends_rejects_at_once_from_manifests",
        |lab| a_service_without_backends_refuses_at_once(lab, &Manifests::new(lab)?),
    )
}

#[test]
fn service_without_backends_refuses_at_once_with_state_in_etcd() -> Result<()> {
    isolated(
        "no_backends::service_without_backends_refuses_at_once_with_state_in_etcd",
        |lab| a_service_without_backends_refuses_at_once(lab, &Etcd::start(lab)?),
    )
}

fn a_service_without_backends_refuses_at_once(lab: &Lab, state: &dyn State) -> Result<()> {
    let empty = Service::new("empty", 80, &[]);
    state.put(&empty)?;
    let _agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
    for from in [&lab.pod1, &lab.node, &lab.client] {
        for (frontend, family) in Frontend::ALL
            .into_iter()
            .flat_map(|f| Family::BOTH.map(|family| (f, family)))
        {
            for protocol in Protocol::ALL {
                let address = empty.address(lab, frontend, family);
                let flow = format!(
                    "{} -> {address} ({frontend:?}, {protocol:?})",
                    from.host.name
                );
                let refusal = from.ask(protocol, address)?.refusal();
                let after =
                    refusal.map_err(|error| LabError::Unexpected(format!("{flow}: {error}")))?;
                assert!(after < REJECT_TIMEOUT, "{flow}: only after {after:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn refused_connections_are_counted() -> Result<()> {
    isolated("no_backends::refused_connections_are_counted", |lab| {
        let state = Manifests::new(lab)?;
        let empty = Service::new("empty", 80, &[]);
        state.put(&empty)?;
        let agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
        for frontend in [Frontend::ClusterIp, Frontend::NodePort] {
            for family in Family::BOTH {
                for _ in 0..5 {
                    lab.pod1
                        .ask(Protocol::Tcp, empty.address(lab, frontend, family))?
                        .refusal()?;
                }
            }
        }
        let counters = agent.http("GET", "/counters")?.json()?;
        let of_service = &counters["services"][0];
        assert_eq!(
            (&of_service["service"], &of_service["connections"]),
            (&"default/empty".into(), &0.into())
        );
        assert_eq!(
            (&of_service["refused"], &counters["refused"]),
            (&20.into(), &20.into()),
            "{counters}"
        );
        assert_eq!(of_service["attempts"], 20);
        let reasons = serde_json::json!({"no-endpoints": 20});
        assert_eq!(
            (&of_service["refused_by"], &counters["refused_by"]),
            (&reasons, &reasons),
            "{counters}"
        );
        agent.stop().map(drop)
    })
}

/// Datagrams of the node to one of its own addresses are rejected by translating them to port 0.
#[test]
fn rejected_datagrams_of_the_node_are_served_later() -> Result<()> {
    isolated(
        "no_backends::rejected_datagrams_of_the_node_are_served_later",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            let empty = Service::new("web", 80, &[]);
            state.put(&empty)?;
            let agent = Agent::start(lab, &AgentOptions::with_open_table(state.url()))?;
            for family in Family::BOTH {
                let address = empty.address(lab, Frontend::NodePort, family);
                let mut session = lab.node.open(Protocol::Udp, address)?;
                for _ in 0..2 {
                    let error = session.ask().expect_err("there is no backend");
                    assert!(error.to_string().contains("refused"), "{error}");
                }
                let web = Service::new("web", 80, &[lab.pod3.host]);
                state.put(&web)?;
                agent.wait_until_applied(&web)?;
                wait_until("the same flow is answered", SEARCH_TIMEOUT, || {
                    session.ask().is_ok()
                })?;
                state.put(&empty)?;
                agent.wait_until_applied(&empty)?;
            }
            Ok(())
        },
    )
}
