//! With a real BIRD: two nodes export the renderer's routes, and a router learns them over BGP.
//!
//! ```text
//!   pod1 ── node ───┐
//!                   ├─── client: the router
//!   pod3 ── node2 ──┘
//! ```

use std::{fs, process::Command};

use contiv_tests::{
    agent::Agent,
    cluster::{Frontend, Manifests, Service, ServiceManifest, TARGET_PORT},
    lab::{
        Family, Host, Lab, LabError, Namespace, Process, Protocol, Responder, Result, isolated,
        scratch, wait_until,
    },
};

use super::{EVENT_TIMEOUT, options};

const CONNECTIONS: usize = 100;

/// As in docs/users/routes.md, for a node with one router.
fn node_config(node: &Host, router: &Host) -> String {
    format!(
        "router id {id};
protocol device {{ }}
protocol kernel services4 {{
    kernel table 67;
    learn;
    ipv4 {{ import where krt_source = 67; export none; }};
}}
protocol kernel services6 {{
    kernel table 67;
    learn;
    ipv6 {{ import where krt_source = 67; export none; }};
}}
protocol bgp router4 {{
    local {node4} as 64512;
    neighbor {router4} as 64513;
    connect delay time 1;
    ipv4 {{ import none; export where source = RTS_INHERIT; }};
}}
protocol bgp router6 {{
    local {node6} as 64512;
    neighbor {router6} as 64513;
    connect delay time 1;
    ipv6 {{ import none; export where source = RTS_INHERIT; }};
}}
",
        id = node.v4,
        node4 = node.v4,
        node6 = node.v6,
        router4 = router.v4,
        router6 = router.v6,
    )
}

fn router_config(router: &Host, nodes: [&Host; 2]) -> String {
    let sessions = nodes.into_iter().flat_map(|node| {
        [(Family::V4, "ipv4"), (Family::V6, "ipv6")].map(|(family, channel)| {
            format!(
                "protocol bgp {name}_{channel} {{
    local {ours} as 64513;
    neighbor {theirs} as 64512;
    connect delay time 1;
    {channel} {{ import all; export none; }};
}}
",
                name = node.name,
                ours = router.address(family),
                theirs = node.address(family),
            )
        })
    });
    let kernel = format!(
        "router id {};
protocol device {{ }}
protocol kernel {{ merge paths on; ipv4 {{ import none; export all; }}; }}
protocol kernel {{ merge paths on; ipv6 {{ import none; export all; }}; }}
",
        router.v4
    );
    [kernel].into_iter().chain(sessions).collect()
}

fn start_bird(namespace: &Namespace, config: &str) -> Result<Process> {
    let name = format!("bird-{}", namespace.host.name);
    let file = scratch(&format!("{name}.conf"))?;
    fs::write(&file, config)
        .map_err(|error| LabError::system(format!("write {}", file.display()), error))?;
    let mut command = Command::new("bird");
    command
        .arg("-f")
        .arg("-c")
        .arg(file)
        .arg("-s")
        .arg(scratch(&format!("{name}.ctl"))?);
    Process::start(namespace, &name, &mut command)
}

/// Waits until the router sends packets for the service's load balancer to exactly these nodes, in both families.
#[expect(
    clippy::print_stdout,
    reason = "how long the network takes is part of the result"
)]
fn wait_for_way(lab: &Lab, service: &Service, nodes: &[&Host]) -> Result<()> {
    let leads_there = |family| {
        let address = service
            .address(lab, Frontend::LoadBalancer, family)
            .ip()
            .to_string();
        let option = if family == Family::V4 { "-4" } else { "-6" };
        let route = lab
            .client
            .exec(&["ip", option, "route", "show", "proto", "bird", &address])?;
        let has = |host: &Host| route.contains(&format!("via {} ", host.address(family)));
        Ok::<_, LabError>(
            [&lab.node, &lab.node2]
                .iter()
                .all(|node| has(node.host) == nodes.contains(&node.host)),
        )
    };
    let names: Vec<&str> = nodes.iter().map(|node| node.name).collect();
    let what = format!("the router's way to the service is {names:?}");
    let after = wait_until(&what, EVENT_TIMEOUT, || {
        Family::BOTH
            .into_iter()
            .all(|family| leads_there(family).is_ok_and(|is_there| is_there))
    })?;
    println!("{what} after {} ms", after.as_millis());
    Ok(())
}

/// The load balancer's address is for nodes with a local backend only.
fn web(backends: &[&'static Host]) -> ServiceManifest {
    ServiceManifest {
        external_local: true,
        ..ServiceManifest::new(Service::new("web", 80, backends))
    }
}

#[test]
fn router_learns_a_service_and_balances_over_its_nodes() -> Result<()> {
    isolated(
        "routes::bird::router_learns_a_service_and_balances_over_its_nodes",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            // Hash by ports too, so that the connections of one client are balanced.
            for family in ["ipv4", "ipv6"] {
                lab.client.exec(&[
                    "sysctl",
                    "-w",
                    &format!("net.{family}.fib_multipath_hash_policy=1"),
                ])?;
            }
            let state = Manifests::new(lab)?;
            state.put_manifest(&web(&[lab.pod1.host]))?;
            let _agents = [
                Agent::start_on(&lab.node, "agent", &options(&state, &[]))?,
                Agent::start_on(&lab.node2, "agent2", &options(&state, &[]))?,
            ];
            let (node, node2, router) = (lab.node.host, lab.node2.host, lab.client.host);
            let _birds = [
                start_bird(&lab.node, &node_config(node, router))?,
                start_bird(&lab.node2, &node_config(node2, router))?,
                start_bird(&lab.client, &router_config(router, [node, node2]))?,
            ];
            let service = web(&[]).service;
            wait_for_way(lab, &service, &[node])?;
            state.put_manifest(&web(&[lab.pod1.host, lab.pod3.host]))?;
            wait_for_way(lab, &service, &[node, node2])?;
            for family in Family::BOTH {
                let address = service.address(lab, Frontend::LoadBalancer, family);
                let answered = lab
                    .client
                    .distribution(Protocol::Tcp, address, CONNECTIONS)?;
                let names: Vec<&str> = answered.keys().map(String::as_str).collect();
                assert_eq!(names, ["pod1", "pod3"], "{answered:?}");
                let answer = lab.client.ask(Protocol::Tcp, address)?.answer()?;
                assert_eq!(
                    answer.seen_source.ip(),
                    router.address(family),
                    "no address is hidden"
                );
            }
            state.put_manifest(&web(&[lab.pod3.host]))?;
            wait_for_way(lab, &service, &[node2])?;
            for family in Family::BOTH {
                let address = service.address(lab, Frontend::LoadBalancer, family);
                assert_eq!(lab.client.ask(Protocol::Tcp, address)?.answer()?.by, "pod3");
            }
            state.put_manifest(&web(&[]))?;
            wait_for_way(lab, &service, &[])
        },
    )
}
