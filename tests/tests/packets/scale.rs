//! Many services: all are applied at once, and the cost of a change does not depend on their number.
//!
//! `cargo build --release -p contiv-agent && cargo test --release -p contiv-tests --test packets scale -- --nocapture` prints how
//! long it takes with an optimised build.

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Etcd, Frontend, NAMESPACE, ROOT, Service, State, TARGET_PORT},
    lab::{Family, Lab, Outcome, Protocol, Responder, Result, isolated, wait_for, wait_until},
};
use serde_json::{Value, json};

const SERVICES: u16 = 10_000;
const BACKENDS: u16 = 4;
const CHANGES: usize = 50;
/// More than the messages to replace one backend behind three frontends need, and less than those for a thousandth of all
/// services.
const CHANGE_BYTES: u64 = 2000;

/// Service `i` and its four backends, none of which answers.
fn values(i: u16) -> [(String, String); 2] {
    let name = format!("s{i}");
    let cluster_ip = Ipv4Addr::from_bits(Ipv4Addr::new(10, 97, 0, 0).to_bits() + u32::from(i));
    let backend = |n: u16| {
        let number = u32::from(i) * u32::from(BACKENDS) + u32::from(n);
        Ipv4Addr::from_bits(Ipv4Addr::new(10, 128, 0, 0).to_bits() + number)
    };
    let endpoints: Vec<_> = (0..BACKENDS)
        .map(|n| json!({"addresses": [backend(n)], "node_name": "node2"}))
        .collect();
    let service = json!({
        "name": name, "namespace": NAMESPACE, "cluster_ip": cluster_ip,
        "port": [{"name": "http", "protocol": "TCP", "port": 80}],
    });
    let slice = json!({
        "name": name, "namespace": NAMESPACE, "service_name": name, "address_type": "IPv4",
        "endpoints": endpoints, "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    });
    [
        (
            format!("{ROOT}/service/{name}/namespace/{NAMESPACE}"),
            service.to_string(),
        ),
        (
            format!("{ROOT}/endpointslice/{name}/namespace/{NAMESPACE}"),
            slice.to_string(),
        ),
    ]
}

#[test]
fn ten_thousand_services_start_fast_and_change_cheaply() -> Result<()> {
    isolated(
        "scale::ten_thousand_services_start_fast_and_change_cheaply",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let etcd = Etcd::start(lab)?;
            etcd.put_values(&(0..SERVICES).flat_map(values).collect::<Vec<_>>())?;
            let mut web = Service::new("web", 80, &[lab.pod2.host]);
            etcd.put(&web)?;

            let start = Instant::now();
            let agent = Agent::start(lab, &AgentOptions::with_store(etcd.url()))?;
            let started = start.elapsed();
            let elements = lab
                .node
                .exec(&["nft", "--stateless", "list", "ruleset"])?
                .matches(" . tcp . 80")
                .count();
            assert!(
                elements > usize::from(SERVICES),
                "only {elements} elements are in the kernel"
            );
            println!(
                "{SERVICES} services x {BACKENDS} backends: ready {started:?} after the start of the process"
            );

            let mut durations = Vec::new();
            for change in 0..CHANGES {
                web.backends = vec![if change % 2 == 0 {
                    lab.pod3.host
                } else {
                    lab.pod2.host
                }];
                durations.push(change_until_seen(lab, &etcd, &web)?);
            }
            durations.sort();
            let (median, worst) = (durations[CHANGES / 2], durations[CHANGES - 1]);
            println!(
                "one endpoint changed in etcd, answered by the new one: median {median:?}, worst {worst:?}"
            );
            // A change is seen in the kernel a moment before its report is.
            let costs = wait_for("all changes are reported", Duration::from_secs(10), || {
                let path = format!("/controller/event-history?last={CHANGES}");
                let events = agent.http("GET", &path).and_then(|events| events.json());
                let events = events.unwrap_or_default();
                let changes = events
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter(|event| event["kind"] == "change");
                let costs: Vec<_> = changes
                    .map(|event| {
                        let report = &event["renderers"]["nftables"]["report"];
                        (report["transactions"].as_u64(), report["bytes"].as_u64())
                    })
                    .collect();
                let is_reported = |cost: &(Option<u64>, _)| cost.0.is_some();
                costs.iter().all(is_reported).then_some(costs)
            })?;
            let is_little = |cost: &_| matches!(cost, (Some(1 | 2), Some(1..=CHANGE_BYTES)));
            assert!(
                costs.len() > CHANGES / 2 && costs.iter().all(is_little),
                "{costs:?}"
            );
            agent.stop().map(drop)
        },
    )
}

#[test]
fn ten_thousand_services_heal_soon_after_damage() -> Result<()> {
    isolated(
        "scale::ten_thousand_services_heal_soon_after_damage",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let etcd = Etcd::start(lab)?;
            etcd.put_values(&(0..SERVICES).flat_map(values).collect::<Vec<_>>())?;
            let web = Service::new("web", 80, &[lab.pod2.host]);
            etcd.put(&web)?;
            let agent = Agent::start(lab, &AgentOptions::with_open_table(etcd.url()))?;
            let address = web.address(lab, Frontend::ClusterIp, Family::V4);
            let frontend = format!("{{ {} . tcp . 80 }}", address.ip());
            let damages: [&[&str]; 4] = [
                &[
                    "delete",
                    "element",
                    "inet",
                    "contiv",
                    "services4",
                    &frontend,
                ],
                &["flush", "chain", "inet", "contiv", "services-v4"],
                &["flush", "ruleset"],
                &["flush", "map", "inet", "contiv", "backends4"],
            ];
            for damage in damages {
                lab.node.exec(&[&["nft"], damage].concat())?;
                wait_until("the service answers again", Duration::from_secs(10), || {
                    let outcome =
                        lab.pod1
                            .ask_within(Protocol::Tcp, address, Duration::from_millis(20));
                    matches!(outcome, Ok(Outcome::Answered { .. }))
                })?;
                let mut event = Value::Null;
                wait_until("the damage is undone", Duration::from_secs(10), || {
                    let newest = agent.http("GET", "/controller/event-history?last=1");
                    event = newest.and_then(|events| events.json()).unwrap_or_default()[0].take();
                    event["kind"] == "foreign-change"
                        && event["renderers"]["nftables"]["status"] == "applied"
                })?;
                let repair = &event["renderers"]["nftables"]["duration_ms"];
                println!(
                    "nft {}: repaired in {repair} ms; {}",
                    damage.join(" "),
                    event["description"]
                );
            }
            agent.stop()?;
            Ok(())
        },
    )
}

/// The time from the write to the first connection that the new backend answers.
fn change_until_seen(lab: &Lab, etcd: &Etcd<'_>, web: &Service) -> Result<Duration> {
    let address = web.address(lab, Frontend::ClusterIp, Family::V4);
    let start = etcd.put_slice_at_once(0, web, Family::V4)?;
    wait_until("the change is applied", Duration::from_secs(10), || {
        let outcome = lab.pod1.ask(Protocol::Tcp, address);
        outcome.is_ok_and(
            |outcome| matches!(outcome, Outcome::Answered { answer, .. } if answer.by == web.backends[0].name),
        )
    })?;
    Ok(start.elapsed())
}
