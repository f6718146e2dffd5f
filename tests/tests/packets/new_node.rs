//! A node that starts: its pods run and connect before the agent does.

use std::{thread, time::Duration};

use contiv_tests::{
    agent::{Agent, AgentOptions, binary},
    cluster::{Frontend, Manifests, Service, State, TARGET_PORT},
    lab::{
        Family, Lab, LabError, Protocol, Responder, Result, Session, isolated, ranges, wait_until,
    },
};

/// The time limit of a client that keeps trying: it repeats its first packet after 1, 3, 7 and 15 seconds.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Prepares the node as a network plugin would: the kernel tracks connections before the agent starts, and packets to unknown
/// addresses are dropped silently.
fn prepare(lab: &Lab) -> Result<()> {
    let rules = "add table inet plugin
add chain inet plugin input { type filter hook prerouting priority filter; }
add rule inet plugin input ct state established accept
add chain inet plugin output { type filter hook output priority filter; }
add rule inet plugin output ct state established accept\n";
    lab.node.exec_with_input(&["nft", "-f", "-"], rules)?;
    let [v4, v6] = Family::BOTH.map(|family| ranges::SERVICES.cidr(family));
    // Without neighbours, packets have a destination that the other end does not know.
    let script = format!(
        "link add sink type veth peer name drain
link set drain up
link set sink up arp off
route add {v4} dev sink
route add {v6} dev sink\n"
    );
    lab.node
        .exec_with_input(&["ip", "-batch", "-"], &script)
        .map(drop)
}

/// Whether the node tracks this many flows of a protocol to cluster IPs, none of them translated.
fn has_left(lab: &Lab, protocol: &str, count: usize) -> bool {
    let tracked = Family::BOTH.iter().map(|family| {
        let family = if *family == Family::V4 {
            "ipv4"
        } else {
            "ipv6"
        };
        let listed = lab
            .node
            .exec(&["conntrack", "-L", "-f", family, "-p", protocol]);
        listed.map_or(0, |flows| flows.matches("[UNREPLIED]").count())
    });
    tracked.sum::<usize>() >= count
}

#[test]
fn connections_tried_before_the_rules_succeed_with_them() -> Result<()> {
    let test = "new_node::connections_tried_before_the_rules_succeed_with_them";
    isolated(test, |lab| {
        let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
        prepare(lab)?;
        let state = Manifests::new(lab)?;
        let web = Service::new("web", 80, &[lab.pod3.host]);
        state.put(&web)?;
        let from = || [&lab.pod1, &lab.node, &lab.client].into_iter();
        let flows: Vec<_> = from()
            .flat_map(|from| Family::BOTH.map(|family| (from, family)))
            .collect();
        let address = |family| web.address(lab, Frontend::ClusterIp, family);
        thread::scope(|scope| {
            let attempts: Vec<_> = flows
                .iter()
                .map(|(from, family)| {
                    scope.spawn(|| from.ask_within(Protocol::Tcp, address(*family), CLIENT_TIMEOUT))
                })
                .collect();
            let mut sessions = Vec::new();
            for (from, family) in &flows {
                let session = from.open(Protocol::Udp, address(*family))?;
                let Session::Udp(socket) = &session else {
                    continue;
                };
                socket
                    .send(b"lost")
                    .map_err(|error| LabError::system("send a datagram", error))?;
                sessions.push(session);
            }
            for protocol in ["tcp", "udp"] {
                let what = format!("all flows of {protocol} have left the node");
                wait_until(&what, TIME_LIMIT, || has_left(lab, protocol, flows.len()))?;
            }
            let _agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
            for attempt in attempts {
                let outcome = attempt
                    .join()
                    .unwrap_or_else(|cause| std::panic::resume_unwind(cause))?;
                assert_eq!(outcome.answer()?.by, "pod3");
            }
            for session in &mut sessions {
                let what = "a datagram from the same port as one before the rules is answered";
                wait_until(what, TIME_LIMIT, || {
                    session.ask().is_ok_and(|answer| answer.by == "pod3")
                })?;
            }
            Ok(())
        })
    })
}

/// Loads the rules for what the manifests hold as a user would without an agent, so that no flow is deleted.
fn load_rules(lab: &Lab, manifests: &Manifests) -> Result<()> {
    let contiv = binary()?;
    let render = [
        "render",
        "-o",
        "nft",
        "--node-name",
        lab.node.host.name,
        "-f",
        &manifests.folder(),
    ];
    let rules = lab
        .node
        .exec(&[&[&*contiv.to_string_lossy()], &render[..]].concat())?;
    lab.node
        .exec_with_input(&["nft", "-f", "-"], &rules)
        .map(drop)
}

#[test]
fn connection_tried_before_the_rules_is_not_refused_by_them() -> Result<()> {
    let test = "new_node::connection_tried_before_the_rules_is_not_refused_by_them";
    isolated(test, |lab| {
        let _responder = Responder::start(&lab.pod3, TARGET_PORT)?;
        prepare(lab)?;
        let manifests = Manifests::new(lab)?;
        let web = Service::new("web", 80, &[lab.pod3.host]);
        manifests.put(&web)?;
        let address = web.address(lab, Frontend::ClusterIp, Family::V4);
        thread::scope(|scope| {
            let attempt =
                scope.spawn(|| lab.pod1.ask_within(Protocol::Tcp, address, CLIENT_TIMEOUT));
            wait_until("the flow has left the node", TIME_LIMIT, || {
                has_left(lab, "tcp", 1)
            })?;
            load_rules(lab, &manifests)?;
            // The first packet is repeated after 1 s.
            thread::sleep(Duration::from_millis(1500));
            lab.node.exec(&["conntrack", "-F"])?;
            let outcome = attempt
                .join()
                .unwrap_or_else(|cause| std::panic::resume_unwind(cause))?;
            assert_eq!(outcome.answer()?.by, "pod3");
            Ok(())
        })
    })
}
