//! Connections survive restarts and crashes of the agent, and an unreachable etcd.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Etcd, Frontend, Manifests, Service, State, TARGET_PORT},
    lab::{Family, Lab, Protocol, Responder, Result, isolated, wait_until},
};

/// The number of kills and starts, and of stops and starts.
const RESTARTS: usize = 10;
/// The time limit for expected events. Generous.
const EVENT_TIMEOUT: Duration = Duration::from_secs(60);

/// The dataplane as text, without counters and without the table's owner, which changes.
fn ruleset(lab: &Lab) -> Result<String> {
    let text = lab.node.exec(&["nft", "--stateless", "list", "ruleset"])?;
    let is_about_the_owner = |line: &&str| *line == "\tflags owner" || *line == "\tflags ";
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !is_about_the_owner(line))
        .collect();
    Ok(lines.join("\n").replace(" # progname contiv", ""))
}

/// The number of connections that the kernel has counted.
fn counted(lab: &Lab) -> Result<u64> {
    let listed = lab.node.exec(&["nft", "list", "table", "inet", "contiv"])?;
    let counts = listed.split("counter packets ").skip(1);
    Ok(counts
        .filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok())
        .sum())
}

#[test]
fn agent_restart_keeps_connections_and_accepts_new_ones() -> Result<()> {
    isolated(
        "restart::agent_restart_keeps_connections_and_accepts_new_ones",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let web = Service::new("web", 80, &[lab.pod1.host, lab.pod3.host]);
            let state = Manifests::new(lab)?;
            state.put(&web)?;
            let options = AgentOptions::with_store(state.url());
            let agent = Agent::start(lab, &options)?;
            // A UDP flow with one packet from each side expires after 30 s without a packet and then selects a backend again; on a
            // slow machine the restarts take longer.
            lab.node
                .exec(&["sysctl", "-w", "net.netfilter.nf_conntrack_udp_timeout=600"])?;
            let mut sessions = Vec::new();
            // A half-open association expires within seconds.
            let lasting = [Protocol::Tcp, Protocol::Udp];
            for (protocol, family) in lasting
                .into_iter()
                .flat_map(|p| Family::BOTH.map(|f| (p, f)))
            {
                let mut session = lab
                    .client
                    .open(protocol, web.address(lab, Frontend::ExternalIp, family))?;
                let answer = session.ask()?;
                sessions.push((session, answer));
            }
            let before = ruleset(lab)?;
            let restarts = || {
                assert!(agent.stop()?.success(), "SIGTERM is a clean end");
                assert_eq!(ruleset(lab)?, before, "the dataplane stays");
                for _ in 0..RESTARTS {
                    let agent = Agent::start(lab, &options)?;
                    assert_eq!(
                        ruleset(lab)?,
                        before,
                        "the same state is the same dataplane"
                    );
                    agent.kill()?;
                    Agent::start(lab, &options)?.stop()?;
                    assert_eq!(ruleset(lab)?, before);
                    for (session, answer) in &mut sessions {
                        assert_eq!(
                            session.ask()?,
                            *answer,
                            "an open session keeps its backend and its source"
                        );
                    }
                }
                Ok(())
            };
            // From all sources in parallel, as fast as possible.
            let address = |frontend, family| web.address(lab, frontend, family);
            let start = Instant::now();
            let mut answered = [0; 3];
            let [from_outside, from_pod, from_node] = &mut answered;
            *from_outside = lab.client.ask_while(
                Protocol::Tcp,
                address(Frontend::NodePort, Family::V4),
                || {
                    *from_pod = lab.pod2.ask_while(
                        Protocol::Tcp,
                        address(Frontend::ClusterIp, Family::V4),
                        || {
                            let udp = address(Frontend::ClusterIp, Family::V6);
                            *from_node = lab.node.ask_while(Protocol::Udp, udp, restarts)?;
                            Ok(())
                        },
                    )?;
                    Ok(())
                },
            )?;
            println!(
                "{answered:?} answers in {:?} from outside, a pod, and the node; none failed",
                start.elapsed()
            );
            assert!(
                answered.iter().all(|answered| *answered > 100),
                "too few were tried: {answered:?}"
            );
            Ok(())
        },
    )
}

#[test]
fn restart_writes_nothing_to_a_right_table() -> Result<()> {
    isolated("restart::restart_writes_nothing_to_a_right_table", |lab| {
        let _responder = Responder::start(&lab.pod1, TARGET_PORT)?;
        let web = Service::new("web", 80, &[lab.pod1.host]);
        let state = Manifests::new(lab)?;
        state.put(&web)?;
        let options = AgentOptions::with_store(state.url());
        let agent = Agent::start(lab, &options)?;
        lab.pod2.distribution(
            Protocol::Tcp,
            web.address(lab, Frontend::ClusterIp, Family::V4),
            10,
        )?;
        assert_eq!(counted(lab)?, 10);
        agent.stop()?;
        let _agent = Agent::start(lab, &options)?;
        assert_eq!(
            counted(lab)?,
            10,
            "an element that is written anew counts from 0"
        );
        Ok(())
    })
}

/// The counters of the IPv4 frontends, by the kernel's text of the frontend.
fn counters(lab: &Lab) -> Result<BTreeMap<String, u64>> {
    let mut counters = BTreeMap::new();
    let listed = lab
        .node
        .exec(&["nft", "list", "map", "inet", "contiv", "services4"])?;
    // `elements = { 10.96.0.80 . tcp . 80 counter packets 10 bytes 600 : 0:2,`
    let elements = listed.lines().filter_map(|line| {
        let (key, rest) = line
            .trim()
            .trim_start_matches("elements = { ")
            .split_once(" counter packets ")?;
        Some((key.to_owned(), rest.split(' ').next()?.parse().ok()?))
    });
    counters.extend(elements);
    Ok(counters)
}

#[test]
fn frontend_counters_survive_changes_and_restarts() -> Result<()> {
    isolated(
        "restart::frontend_counters_survive_changes_and_restarts",
        |lab| {
            let _responder = Responder::start(&lab.pod1, TARGET_PORT)?;
            let [web, api] = [("web", 80), ("api", 81)]
                .map(|(name, number)| Service::new(name, number, &[lab.pod1.host]));
            let state = Manifests::new(lab)?;
            state.put(&web)?;
            state.put(&api)?;
            let options = AgentOptions::with_store(state.url());
            let agent = Agent::start(lab, &options)?;
            let connect = |service: &Service, frontend, protocol, count| {
                let address = service.address(lab, frontend, Family::V4);
                lab.pod2.distribution(protocol, address, count).map(drop)
            };
            connect(&web, Frontend::ClusterIp, Protocol::Tcp, 2)?;
            connect(&web, Frontend::ClusterIp, Protocol::Sctp, 3)?;
            connect(&web, Frontend::NodePort, Protocol::Tcp, 4)?;
            connect(&api, Frontend::ExternalIp, Protocol::Udp, 5)?;
            let expected = |more: u64| {
                let counted = [
                    ("0.0.0.0 . tcp . 30080", 4),
                    ("10.96.0.80 . sctp . 80", 3),
                    ("10.96.0.80 . tcp . 80", 2 + more),
                    ("192.0.2.81 . udp . 80", 5),
                ];
                counted.map(|(key, count)| (key.to_owned(), count)).into()
            };
            let counted = || -> Result<BTreeMap<String, u64>> {
                Ok(counters(lab)?
                    .into_iter()
                    .filter(|(_, count)| *count > 0)
                    .collect())
            };
            assert_eq!(counted()?, expected(0));
            let new = Service::new("new", 82, &[lab.pod1.host]);
            state.put(&new)?;
            agent.wait_until_applied(&new)?;
            agent.stop()?;
            connect(&web, Frontend::ClusterIp, Protocol::Tcp, 1)?;
            let agent = Agent::start(lab, &options)?;
            assert_eq!(counted()?, expected(1), "it counts while the agent is away");
            agent.kill()?;
            let _agent = Agent::start(lab, &options)?;
            assert_eq!(counted()?, expected(1));
            Ok(())
        },
    )
}

#[test]
fn changes_made_while_stopped_apply_before_ready() -> Result<()> {
    isolated(
        "restart::changes_made_while_stopped_apply_before_ready",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let (web, gone) = (
                Service::new("web", 80, &[lab.pod1.host]),
                Service::new("gone", 81, &[lab.pod1.host]),
            );
            let state = Manifests::new(lab)?;
            state.put(&web)?;
            state.put(&gone)?;
            let options = AgentOptions::with_store(state.url());
            Agent::start(lab, &options)?.stop()?;
            let web = Service {
                backends: vec![lab.pod4.host],
                ..web
            };
            let new = Service::new("new", 82, &[lab.pod2.host]);
            state.put(&web)?;
            state.put(&new)?;
            state.delete(&gone)?;
            let ask = |service: &Service| {
                let address = service.address(lab, Frontend::NodePort, Family::V4);
                lab.client
                    .ask_within(Protocol::Tcp, address, Duration::from_millis(200))
            };
            assert_eq!(
                ask(&web)?.answer()?.by,
                "pod1",
                "before it is back, the old dataplane works on"
            );
            let _agent = Agent::start(lab, &options)?;
            assert_eq!(ask(&web)?.answer()?.by, "pod4");
            assert_eq!(ask(&new)?.answer()?.by, "pod2");
            assert!(ask(&gone)?.answer().is_err());
            Ok(())
        },
    )
}

#[test]
fn lost_etcd_changes_nothing_and_is_watched_again() -> Result<()> {
    isolated(
        "restart::lost_etcd_changes_nothing_and_is_watched_again",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let mut etcd = Etcd::start(lab)?;
            let web = Service::new("web", 80, &[lab.pod1.host, lab.pod3.host]);
            etcd.put(&web)?;
            let agent = Agent::start(lab, &AgentOptions::with_store(etcd.url()))?;
            let before = ruleset(lab)?;
            lab.client.ask_while(
                Protocol::Tcp,
                web.address(lab, Frontend::NodePort, Family::V6),
                || {
                    etcd.kill()?;
                    std::thread::sleep(Duration::from_millis(500));
                    assert_eq!(ruleset(lab)?, before);
                    etcd.start_again()?;
                    let web = Service {
                        backends: vec![lab.pod4.host],
                        ..web.clone()
                    };
                    etcd.put(&web)?;
                    agent.wait_until_applied(&web)
                },
            )?;
            let answer = lab
                .client
                .ask(
                    Protocol::Tcp,
                    web.address(lab, Frontend::NodePort, Family::V6),
                )?
                .answer()?;
            assert_eq!(answer.by, "pod4");
            Ok(())
        },
    )
}

/// A load balancer's Service with external policy Local, its health check at port 31111 of the node, and one local endpoint.
fn load_balancer(lab: &Lab) -> String {
    let (node, pod) = (lab.node.host.name, lab.pod1.host.address(Family::V4));
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: lb, namespace: default}}\n\
         spec: {{type: LoadBalancer, clusterIP: 10.96.0.99, externalTrafficPolicy: Local, healthCheckNodePort: 31111, \
         ports: [{{name: http, port: 80, nodePort: 30099}}]}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{name: lb-1, namespace: default, labels: {{kubernetes.io/service-name: lb}}}}\n\
         addressType: IPv4\nports: [{{name: http, port: {TARGET_PORT}}}]\n\
         endpoints: [{{addresses: ['{pod}'], nodeName: {node}}}]\n"
    )
}

#[test]
fn health_check_node_port_answers_after_each_restart() -> Result<()> {
    isolated(
        "restart::health_check_node_port_answers_after_each_restart",
        |lab| {
            let state = Manifests::new(lab)?;
            state.write("lb.yaml", &load_balancer(lab))?;
            let options = AgentOptions::with_store(state.url());
            let health_check = SocketAddr::new(lab.node.host.address(Family::V4), 31111);
            for start in 1..=3 {
                let agent = Agent::start(lab, &options)?;
                let answers = || {
                    lab.client
                        .http("GET", health_check, "/")
                        .is_ok_and(|answer| answer.status == 200)
                };
                wait_until(
                    &format!("the health check answers after start {start}"),
                    EVENT_TIMEOUT,
                    answers,
                )?;
                assert!(
                    agent.http("GET", "/health-checks")?.body.contains("31111"),
                    "start {start}"
                );
                agent.stop()?;
            }
            Ok(())
        },
    )
}
