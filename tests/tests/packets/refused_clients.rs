//! `contiv refused` names the clients that were refused.

use contiv_tests::{
    agent::{Agent, AgentOptions, binary},
    cluster::{
        Frontend::{ClusterIp, NodePort},
        Manifests, Service, State,
    },
    lab::{Family, Outcome, Protocol, Result, isolated},
};
use serde_json::Value;

#[test]
fn refused_clients_are_named_by_service_and_frontend() -> Result<()> {
    isolated(
        "refused_clients::refused_clients_are_named_by_service_and_frontend",
        |lab| {
            let manifests = Manifests::new(lab)?;
            let web = Service::new("web", 80, &[]);
            manifests.put(&web)?;
            let agent = Agent::start(lab, &AgentOptions::with_store(manifests.url()))?;
            let program = binary()?.display().to_string();
            let print = |format| lab.node.exec(&[&program, "refused", "-A", "-o", format]);
            assert_eq!(print("json")?.trim(), "[]");
            for family in Family::BOTH {
                for (from, frontend) in [(&lab.pod1, ClusterIp), (&lab.client, NodePort)] {
                    let to = web.address(lab, frontend, family);
                    for protocol in [Protocol::Tcp, Protocol::Udp] {
                        let outcome = from.ask(protocol, to)?;
                        assert!(matches!(outcome, Outcome::Refused { .. }), "{outcome:?}");
                    }
                }
            }
            let refused: Value = serde_json::from_str(&print("json")?).unwrap_or_default();
            let clients_of = |frontend: String| {
                let mut rows = refused.as_array().into_iter().flatten();
                let found = rows.find(|row| row["frontend"] == *frontend);
                let row = found.unwrap_or_else(|| panic!("{frontend}: {refused:#}"));
                assert_eq!(
                    row["refused_by"]["no-endpoints"].as_u64(),
                    row["clients"].as_array().map(|clients| {
                        clients
                            .iter()
                            .filter_map(|client| client["attempts"].as_u64())
                            .sum()
                    }),
                    "{refused:#}"
                );
                let clients = row["clients"].as_array().into_iter().flatten();
                let address =
                    |client: &Value| client["address"].as_str().unwrap_or_default().to_owned();
                clients.map(address).collect::<Vec<_>>()
            };
            for protocol in ["tcp", "udp"] {
                for family in Family::BOTH {
                    let frontend = format!("{}/{protocol}", web.address(lab, ClusterIp, family));
                    assert_eq!(
                        clients_of(frontend),
                        [lab.pod1.host.address(family).to_string()]
                    );
                }
                let node_port = format!(
                    "node port {}/{protocol}",
                    web.address(lab, NodePort, Family::V4).port()
                );
                let outside =
                    Family::BOTH.map(|family| lab.client.host.address(family).to_string());
                assert_eq!(clients_of(node_port), outside);
            }
            let table = print("table")?;
            let client = lab.pod1.host.address(Family::V4);
            assert!(
                table.contains("no-endpoints") && table.contains(&format!("{client} (1)")),
                "{table}"
            );
            agent.stop().map(drop)
        },
    )
}
