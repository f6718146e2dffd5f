//! Changes of the agent's table by other processes are reverted immediately, and nothing else triggers a repair.

use std::{
    fmt::Write,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Frontend, Manifests, Service, State, TARGET_PORT},
    lab::{Family, Lab, Outcome, Protocol, Responder, Result, isolated, wait_until},
};
use serde_json::Value;

/// The time limit for expected events. Generous, so that a busy machine fails no test.
const EVENT_TIMEOUT: Duration = Duration::from_secs(60);

/// The whole ruleset without counters and sorted, since rewritten parts may be listed in another place.
fn ruleset(lab: &Lab) -> Result<Vec<String>> {
    let listed = lab.node.exec(&["nft", "--stateless", "list", "ruleset"])?;
    let words = listed
        .split([' ', '\n', '\t', ','])
        .filter(|word| !word.is_empty());
    let mut words: Vec<String> = words.map(str::to_owned).collect();
    words.sort();
    Ok(words)
}

/// The state of the only renderer.
fn renderer(agent: &Agent<'_>) -> Result<Value> {
    Ok(agent.http("GET", "/renderers")?.json()?[0].take())
}

/// The value of a metric of the renderer.
fn metric(agent: &Agent<'_>, name: &str) -> Result<u64> {
    let text = agent.http("GET", "/metrics")?.body;
    let start = format!("contiv_{name}{{renderer=\"nftables\"}} ");
    let number = text
        .lines()
        .find_map(|line| line.strip_prefix(&start)?.parse().ok());
    Ok(number.unwrap_or_else(|| panic!("no {start} in\n{text}")))
}

/// The foreign changes in the history, oldest first.
fn foreign_changes(agent: &Agent<'_>) -> Result<Vec<String>> {
    let events = agent.http("GET", "/controller/event-history")?.json()?;
    let events = events.as_array().cloned().unwrap_or_default().into_iter();
    let of_others = events.filter(|event| event["kind"] == "foreign-change");
    Ok(of_others
        .filter_map(|event| event["description"].as_str().map(str::to_owned))
        .collect())
}

/// Waits until a connection to the service is answered again.
fn wait_for_answer(lab: &Lab, service: &Service) -> Result<Duration> {
    let start = Instant::now();
    let address = service.address(lab, Frontend::ClusterIp, Family::V4);
    wait_until("the service answers again", EVENT_TIMEOUT, || {
        let outcome = lab
            .pod1
            .ask_within(Protocol::Tcp, address, Duration::from_millis(50));
        matches!(outcome, Ok(Outcome::Answered { .. }))
    })?;
    Ok(start.elapsed())
}

/// A service with two backends, an agent with an open table that has applied it, and the ruleset that is right.
fn start_with_service(lab: &Lab) -> Result<(Service, Agent<'_>, Vec<String>)> {
    let web = Service::new("web", 80, &[lab.pod1.host, lab.pod3.host]);
    let state = Manifests::new(lab)?;
    state.put(&web)?;
    let agent = Agent::start(lab, &AgentOptions::with_open_table(state.url()))?;
    Ok((web, agent, ruleset(lab)?))
}

#[test]
fn foreign_changes_are_undone_and_recorded_with_their_process() -> Result<()> {
    isolated(
        "healing::foreign_changes_are_undone_and_recorded_with_their_process",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let (web, agent, right) = start_with_service(lab)?;
            let mut session = lab.client.open(
                Protocol::Tcp,
                web.address(lab, Frontend::NodePort, Family::V4),
            )?;
            let partner = session.ask()?;
            let address = web.address(lab, Frontend::ClusterIp, Family::V4).ip();
            let frontend = format!("{{ {address} . tcp . 80 }}");
            let slot = format!("{{ {address} . tcp . 80 . 1 }}");
            let wrong = "{ 192.0.2.1 . tcp . 80 : 0:7 }";
            let damages: [(&str, &[&str], &str); 13] = [
                ("flush ruleset", &[], "deleted the table"),
                ("delete table inet contiv", &[], "deleted the table"),
                (
                    "delete element inet contiv services4",
                    &[&frontend],
                    "deleted 1 element of services4",
                ),
                (
                    "delete element inet contiv backends4",
                    &[&slot],
                    "deleted 1 element of backends4",
                ),
                ("flush map inet contiv services4", &[], "of services4 ("),
                (
                    "add element inet contiv cluster-ips4 { 192.0.2.1 }",
                    &[],
                    "to cluster-ips4 (192.0.2.1)",
                ),
                (
                    "add element inet contiv services4",
                    &[wrong],
                    "added 1 element to services4",
                ),
                (
                    "flush chain inet contiv services-v4",
                    &[],
                    "of chain services-v4",
                ),
                (
                    "add chain inet contiv foreign",
                    &[],
                    "added or changed chain foreign",
                ),
                ("flush set inet contiv pods4", &[], "of pods4"),
                (
                    "add table inet contiv",
                    &["{ flags dormant; }"],
                    "changed the table",
                ),
                (
                    "chain inet contiv refuse-output",
                    &["{ policy drop; }"],
                    "changed chain refuse-output",
                ),
                // The chain exists because the service has a node port.
                (
                    "delete chain inet contiv external-postrouting",
                    &[],
                    "deleted chain external-postrouting",
                ),
            ];
            for (number, (command, argument, what)) in damages.into_iter().enumerate() {
                let command: Vec<&str> = std::iter::once("nft")
                    .chain(command.split(' '))
                    .chain(argument.iter().copied())
                    .collect();
                lab.node.exec(&command)?;
                let done = Instant::now();
                let answered = wait_for_answer(lab, &web)?;
                wait_until(&format!("{command:?} is undone"), EVENT_TIMEOUT, || {
                    ruleset(lab).is_ok_and(|found| found == right)
                })?;
                let undone = done.elapsed();
                println!(
                    "{command:?}: answered again {answered:?} after it, seen undone after {undone:?}"
                );
                let seen = foreign_changes(&agent)?;
                let last = seen.last().cloned().unwrap_or_default();
                assert!(
                    last.contains("nft (pid ") && last.contains(what),
                    "{command:?}: {seen:#?}"
                );
                assert_eq!(seen.len(), number + 1, "{seen:#?}");
            }
            assert_eq!(metric(&agent, "foreign_changes_total")?, 13);
            assert_eq!(metric(&agent, "repairs_total")?, 13);
            assert_eq!(session.ask()?, partner, "an idle connection survives");
            Ok(())
        },
    )
}

#[test]
fn own_transactions_and_other_tables_cause_no_repair() -> Result<()> {
    isolated(
        "healing::own_transactions_and_other_tables_cause_no_repair",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            let agent = Agent::start(lab, &AgentOptions::with_open_table(state.url()))?;
            let [here, there] =
                [lab.pod1.host, lab.pod3.host].map(|host| Service::new("web", 80, &[host]));
            for service in [&here, &there].into_iter().cycle().take(200) {
                state.put(service)?;
                agent.wait_until_applied(service)?;
            }
            // A change so large that the agent does not listen meanwhile.
            state.write("many.yaml", &many_services(2000))?;
            // The agent is asked, since listing thousands of elements takes the processor from it.
            wait_until("all are applied", EVENT_TIMEOUT, || {
                agent
                    .http("GET", "/services/many/s1999")
                    .is_ok_and(|found| found.status == 200)
                    && agent.is_in_sync()
            })?;
            let listed = lab
                .node
                .exec(&["nft", "list", "map", "inet", "contiv", "services4"])?;
            assert!(listed.matches(". tcp . 80").count() > 2000, "{listed}");
            // Tables of the same family and of another one, and a table of the same name.
            for table in ["inet neighbour", "ip contiv"] {
                for _ in 0..20 {
                    let set = "set s { type ipv4_addr; elements = { 192.0.2.1 }; }";
                    let text =
                        format!("table {table} {{ {set}\n chain c {{ ip saddr @s accept; }}\n}}");
                    lab.node.exec_with_input(&["nft", "-f", "-"], &text)?;
                    lab.node.exec(
                        &[
                            &["nft", "delete", "table"][..],
                            &table.split(' ').collect::<Vec<_>>(),
                        ]
                        .concat(),
                    )?;
                }
            }
            // One more change: when it was handled, all before it were.
            lab.node.exec(&[
                "nft",
                "add",
                "element",
                "inet",
                "contiv",
                "cluster-ips4",
                "{ 192.0.2.1 }",
            ])?;
            wait_until("the one foreign change is reported", EVENT_TIMEOUT, || {
                metric(&agent, "repairs_total").is_ok_and(|repairs| repairs > 0)
            })?;
            let seen = foreign_changes(&agent)?;
            assert_eq!(
                (seen.len(), metric(&agent, "foreign_changes_total")?),
                (1, 1),
                "{seen:#?}"
            );
            assert!(seen[0].contains("192.0.2.1"), "{seen:#?}");
            Ok(())
        },
    )
}

fn many_services(count: u32) -> String {
    (0..count).fold(String::new(), |mut text, number| {
        let (high, low) = (number / 250, number % 250 + 1);
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "apiVersion: v1\nkind: Service\nmetadata: {{name: s{number}, namespace: many}}\n\
             spec: {{clusterIP: 10.97.{high}.{low}, ports: [{{port: 80, targetPort: 8080}}]}}\n---\n\
             apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n\
             metadata: {{name: s{number}, namespace: many, labels: {{kubernetes.io/service-name: s{number}}}}}\n\
             ports: [{{port: 8080}}]\nendpoints: [{{addresses: [10.128.{high}.{low}]}}]\n---\n"
        );
        text
    })
}

#[test]
fn storm_is_damped_and_ends_healed() -> Result<()> {
    isolated("healing::storm_is_damped_and_ends_healed", |lab| {
        let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
        let (web, agent, right) = start_with_service(lab)?;
        let over = AtomicBool::new(false);
        let flush = || {
            while !over.load(Ordering::Relaxed) {
                lab.node.exec(&["nft", "flush", "ruleset"])?;
            }
            Ok(())
        };
        thread::scope(|scope| {
            let storm = scope.spawn(flush);
            let damped = wait_until("repairs are damped", EVENT_TIMEOUT, || {
                renderer(&agent).is_ok_and(|renderer| {
                    renderer["damped"] == true && renderer["repair_in_ms"].as_f64() > Some(200.0)
                })
            });
            let state = metric(&agent, "repairs_damped");
            over.store(true, Ordering::Relaxed);
            storm
                .join()
                .unwrap_or_else(|cause| std::panic::resume_unwind(cause))?;
            assert_eq!(state?, 1);
            damped
        })?;
        let answered = wait_for_answer(lab, &web)?;
        wait_until("the storm is undone", EVENT_TIMEOUT, || {
            ruleset(lab).is_ok_and(|found| found == right)
        })?;
        let (changes, repairs) = (
            metric(&agent, "foreign_changes_total")?,
            metric(&agent, "repairs_total")?,
        );
        println!(
            "{changes} flushes, {repairs} repairs; answered again {answered:?} after the last"
        );
        assert!(
            repairs <= changes && repairs < 30,
            "{repairs} repairs of {changes} changes"
        );
        Ok(())
    })
}

#[test]
fn changes_during_lost_notifications_are_undone() -> Result<()> {
    isolated(
        "healing::changes_during_lost_notifications_are_undone",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let (web, agent, right) = start_with_service(lab)?;
            // The agent does not read meanwhile, and there are more messages than the kernel keeps.
            agent.pause()?;
            let set = "table inet neighbour {\nset s { type ipv4_addr; }\n}";
            lab.node.exec_with_input(&["nft", "-f", "-"], set)?;
            for round in 0..60 {
                let elements: Vec<String> = (0..1000)
                    .map(|number| format!("10.{round}.{}.{}", number / 250, number % 250))
                    .collect();
                let text = format!("add element inet neighbour s {{ {} }}", elements.join(", "));
                lab.node.exec_with_input(&["nft", "-f", "-"], &text)?;
            }
            lab.node
                .exec(&["nft", "delete", "table", "inet", "contiv"])?;
            agent.resume()?;
            wait_for_answer(lab, &web)?;
            lab.node
                .exec(&["nft", "delete", "table", "inet", "neighbour"])?;
            wait_until("all is undone", EVENT_TIMEOUT, || {
                ruleset(lab).is_ok_and(|found| found == right)
            })?;
            let seen = foreign_changes(&agent)?;
            assert!(
                seen.iter()
                    .any(|what| what.contains("notifications were lost")),
                "{seen:#?}"
            );
            Ok(())
        },
    )
}

#[test]
fn udp_flow_begun_without_rules_finds_the_service_afterwards() -> Result<()> {
    isolated(
        "healing::udp_flow_begun_without_rules_finds_the_service_afterwards",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let web = Service::new("web", 80, &[lab.pod3.host]);
            let state = Manifests::new(lab)?;
            state.put(&web)?;
            let agent = Agent::start(lab, &AgentOptions::with_open_table(state.url()))?;
            agent.pause()?;
            lab.node.exec(&["nft", "flush", "ruleset"])?;
            let address = web.address(lab, Frontend::NodePort, Family::V4);
            let mut session = lab.client.open(Protocol::Udp, address)?;
            assert!(session.ask().is_err(), "the node itself knows no such port");
            agent.resume()?;
            wait_until("the same flow is answered", EVENT_TIMEOUT, || {
                session.ask().is_ok()
            })
            .map(drop)
        },
    )
}
