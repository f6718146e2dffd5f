//! A service without backends rejects connections immediately.

use std::time::Duration;

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Etcd, Frontend, Manifests, Service, State},
    lab::{Family, Lab, LabError, Protocol, Result, isolated},
};

/// A time that a user would not notice. A client without an answer waits for minutes.
const REJECT_TIMEOUT: Duration = Duration::from_secs(2);

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
