//! `contiv backends --balance`: new connections by backend as the kernel counts them, compared with what the backends answered.

use std::{collections::BTreeMap, time::Duration};

use contiv_tests::{
    agent::{Agent, AgentOptions, binary},
    cluster::{
        Frontend::{ClusterIp, NodePort},
        Manifests, Service, State, TARGET_PORT,
    },
    lab::{Family, Lab, LabError, Protocol, Responder, Result, isolated, wait_until},
};
use serde_json::Value;

const CONNECTIONS: usize = 60;

/// Runs `contiv backends --balance` on the node, for whoever counts already or from now on.
fn backends(lab: &Lab, arguments: &[&str]) -> Result<String> {
    let program = binary()?.display().to_string();
    let command = [&[&*program, "backends", "--balance=1ms"], arguments].concat();
    lab.node.exec(&command)
}

/// The new connections of each backend, and its wanted share, of one service, protocol and family.
fn counted(
    lab: &Lab,
    service: &str,
    protocol: Protocol,
    family: Family,
) -> Result<BTreeMap<String, (u64, f64)>> {
    let text = backends(lab, &[service, "-o", "json"])?;
    let listed: Vec<Value> = serde_json::from_str(&text)
        .map_err(|error| LabError::Unexpected(format!("{error}: {text}")))?;
    let name = if protocol == Protocol::Tcp {
        "TCP"
    } else {
        "UDP"
    };
    let of_backend = |value: &Value| {
        let address = value["address"].as_str()?;
        let is_ipv4 = !address.contains(':');
        let balance = &value["balance"];
        let is_it = value["protocol"] == name && is_ipv4 == (family == Family::V4);
        is_it.then(|| {
            let count = balance["new_connections"].as_u64().unwrap_or_default();
            (
                address.to_owned(),
                (count, balance["wanted"].as_f64().unwrap_or_default()),
            )
        })
    };
    Ok(listed.iter().filter_map(of_backend).collect())
}

fn table(lab: &Lab) -> Result<String> {
    lab.node
        .exec(&["nft", "list", "table", "inet", "contiv-balance"])
}

#[test]
fn new_connections_are_counted_by_backend_from_the_first_look_on() -> Result<()> {
    isolated(
        "balance::new_connections_are_counted_by_backend_from_the_first_look_on",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let _of_node = Responder::start(&lab.node, TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            let web = Service::new("web", 80, &[lab.pod1.host, lab.pod3.host]);
            // A backend in the node's own network: its packets are not forwarded.
            let host = Service::new("host", 81, &[lab.node.host]);
            state.put(&web)?;
            state.put(&host)?;
            let options = AgentOptions {
                flags: vec!["--local-endpoint-weight=3".to_owned()],
                ..AgentOptions::with_store(state.url())
            };
            let agent = Agent::start(lab, &options)?;
            for family in Family::BOTH {
                let address = web.address(lab, ClusterIp, family);
                lab.pod2.distribution(Protocol::Tcp, address, 5)?;
            }
            assert!(table(lab).is_err(), "nobody has looked");
            for family in Family::BOTH {
                let counts = counted(lab, "web", Protocol::Tcp, family)?;
                assert!(counts.values().all(|(count, _)| *count == 0), "{counts:?}");
            }

            for family in Family::BOTH {
                for protocol in [Protocol::Tcp, Protocol::Udp] {
                    let mut answered: BTreeMap<String, usize> = BTreeMap::new();
                    // From outside they are masqueraded, which another chain does.
                    for (client, frontend) in [(&lab.pod2, ClusterIp), (&lab.client, NodePort)] {
                        let address = web.address(lab, frontend, family);
                        for (by, count) in client.distribution(protocol, address, CONNECTIONS)? {
                            *answered.entry(by).or_default() += count;
                        }
                    }
                    let counts = counted(lab, "web", protocol, family)?;
                    for (pod, wanted) in [(&lab.pod1, 0.75), (&lab.pod3, 0.25)] {
                        let address = pod.host.address(family).to_string();
                        let of_pod = answered.get(pod.host.name).copied().unwrap_or_default();
                        assert_eq!(
                            counts.get(&address),
                            Some(&(of_pod as u64, wanted)),
                            "{counts:?}, {answered:?}"
                        );
                    }
                    let address = host.address(lab, ClusterIp, family);
                    lab.pod2.distribution(protocol, address, 7)?;
                    let counts = counted(lab, "host", protocol, family)?;
                    let of_node = counts.get(&lab.node.host.address(family).to_string());
                    assert_eq!(of_node, Some(&(7, 1.0)), "{counts:?}");
                }
            }

            let shown = backends(lab, &["web"])?;
            for text in ["WANTED", "ACTUAL", "NEW", "75.0%", "25.0%"] {
                assert!(shown.contains(text), "no {text} in:\n{shown}");
            }
            nft_lists_and_loads_it(lab)?;
            drop(agent);
            wait_until("the table is gone", Duration::from_secs(10), || {
                table(lab).is_err()
            })
            .map(drop)
        },
    )
}

fn nft_lists_and_loads_it(lab: &Lab) -> Result<()> {
    let listing = table(lab)?;
    for line in [
        "type nat hook postrouting priority srcnat - 10; policy accept;",
        "ct status dnat update @new4 { ip daddr . tcp dport . ct original ip daddr . meta l4proto . ct original proto-dst }",
        "@new6 { ip6 daddr . udp dport . ct original ip6 daddr . meta l4proto . ct original proto-dst }",
        "timeout 1h",
    ] {
        assert!(listing.contains(line), "no {line:?} in:\n{listing}");
    }
    // What nft lists nft can load, except that nobody else is its owner.
    let loaded = listing.replace("flags owner", "");
    lab.pod1
        .exec_with_input(&["nft", "-f", "-"], &loaded)
        .map(drop)
}
