//! `contiv backends --balance`: new connections by backend as the kernel counts them, compared with what the backends answered.

use std::{collections::BTreeMap, thread, time::Duration};

use contiv_tests::{
    agent::{Agent, AgentOptions, binary},
    cluster::{
        Frontend::{ClusterIp, NodePort},
        Manifests, Service, State, TARGET_PORT,
    },
    lab::{Family, Lab, Namespace, Protocol, Responder, Result, isolated, wait_until},
};

const CONNECTIONS: usize = 60;

/// The new connections of each backend since counting began, and its wanted share, of one service, protocol and family.
fn counted(
    agent: &Agent<'_>,
    service: &str,
    protocol: Protocol,
    family: Family,
) -> Result<BTreeMap<String, (u64, f64)>> {
    let path = format!("/balance?namespace=default&service={service}");
    let balance = agent.http("GET", &path)?.json()?;
    let shares = balance["backends"].as_array();
    let name = if protocol == Protocol::Tcp {
        "TCP"
    } else {
        "UDP"
    };
    let of_backend = |share: &serde_json::Value| {
        let backend: std::net::SocketAddr = share["backend"].as_str()?.parse().ok()?;
        let is_it = share["protocol"] == name && backend.is_ipv4() == (family == Family::V4);
        let count = share["new_connections"].as_u64()?;
        is_it.then_some((backend.ip().to_string(), (count, share["wanted"].as_f64()?)))
    };
    Ok(shares
        .into_iter()
        .flatten()
        .filter_map(of_backend)
        .collect())
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
                let counts = counted(&agent, "web", Protocol::Tcp, family)?;
                assert!(counts.is_empty(), "{counts:?}");
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
                    let counts = counted(&agent, "web", protocol, family)?;
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
                    let counts = counted(&agent, "host", protocol, family)?;
                    let of_node = counts.get(&lab.node.host.address(family).to_string());
                    assert_eq!(of_node, Some(&(7, 1.0)), "{counts:?}");
                }
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

#[test]
fn command_counts_anew_and_tells_of_backends_that_are_gone() -> Result<()> {
    isolated(
        "balance::command_counts_anew_and_tells_of_backends_that_are_gone",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            let of = |host| Service::new("web", 80, &[host]);
            let web = of(lab.pod3.host);
            state.put(&web)?;
            let agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
            let address = web.address(lab, ClusterIp, Family::V4);
            let connect = |count| lab.pod1.distribution(Protocol::Tcp, address, count);
            // These were counted for somebody else.
            agent.http("GET", "/balance")?;
            connect(9)?;
            let anew = agent.http("GET", "/balance?restart=true")?.json()?;
            assert_eq!(anew["backends"], serde_json::json!([]), "{anew}");
            connect(9)?;
            let program = binary()?.display().to_string();
            let command = [&*program, "backends", "web", "--balance=5s"];
            let shown = thread::scope(|scope| {
                let shown = scope.spawn(|| lab.node.exec(&command));
                let begins_anew = || {
                    counted(&agent, "web", Protocol::Tcp, Family::V4).is_ok_and(|it| it.is_empty())
                };
                wait_until("counting begins anew", Duration::from_secs(5), begins_anew)?;
                connect(3)?;
                state.put(&of(lab.pod4.host))?;
                let replaced = || {
                    let answered = connect(1);
                    answered.is_ok_and(|by| by.contains_key(lab.pod4.host.name))
                };
                wait_until("another backend serves", Duration::from_secs(5), replaced)?;
                shown
                    .join()
                    .unwrap_or_else(|cause| std::panic::resume_unwind(cause))
            })?;
            let lines: Vec<Vec<&str>> = shown
                .lines()
                .filter(|line| line.contains("80/TCP") && !line.contains('['))
                .map(|line| line.split_whitespace().collect())
                .collect();
            let state_and_count = |pod: &Namespace| {
                let backend = pod.host.socket(Family::V4, TARGET_PORT).to_string();
                let line = lines.iter().find(|line| line.contains(&&*backend))?;
                let count: u64 = line.last()?.parse().ok()?;
                let state = ["ready", "gone"].into_iter().find(|it| line.contains(it))?;
                Some((state, count))
            };
            let (of_gone, of_new) = (state_and_count(&lab.pod3), state_and_count(&lab.pod4));
            assert!(
                matches!(of_gone, Some(("gone", 3..))) && matches!(of_new, Some(("ready", 1..))),
                "{shown}"
            );
            // Nobody else begins to count: then the whole time is counted.
            let notes = lab.node.exec(&[
                "sh",
                "-c",
                &format!("{program} backends web --balance=2s 2>&1"),
            ])?;
            assert!(!notes.contains("note:"), "{notes}");
            for text in ["WANTED", "ACTUAL", "100.0%"] {
                assert!(shown.contains(text), "no {text} in:\n{shown}");
            }
            Ok(())
        },
    )
}
