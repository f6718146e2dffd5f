//! Behaviour that tests of Kubernetes' end-to-end suite are about, and no other test here has: see docs/proof/conformance.md.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    thread,
    time::Duration,
};

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Frontend, Manifests, Service, ServiceManifest, State, TARGET_PORT},
    lab::{Family, LabError, Outcome, Protocol, Responder, Result, isolated, wait_until},
};

/// The time without an answer after which a packet counts as dropped. Answers take a few milliseconds.
const NO_ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// The time limit for a change to be applied. Generous.
const EVENT_TIMEOUT: Duration = Duration::from_secs(20);
/// Requests that reach both of two equal backends, except once in a million runs.
const REQUESTS: usize = 20;

#[test]
fn internal_local_policy_takes_host_network_of_this_node() -> Result<()> {
    isolated(
        "end_to_end::internal_local_policy_takes_host_network_of_this_node",
        |lab| {
            let _responders = Responder::start_all([&lab.node, &lab.node2], TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            let web = Service::new("web", 80, &[lab.node.host, lab.node2.host]);
            let elsewhere = Service::new("elsewhere", 81, &[lab.node2.host]);
            for service in [&web, &elsewhere] {
                let manifest = ServiceManifest::new(service.clone());
                state.put_manifest(&ServiceManifest {
                    internal_local: true,
                    ..manifest
                })?;
            }
            let _agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
            for (family, from) in Family::BOTH
                .into_iter()
                .flat_map(|f| [(f, &lab.pod1), (f, &lab.node)])
            {
                for protocol in [Protocol::Tcp, Protocol::Udp] {
                    let address = web.address(lab, Frontend::ClusterIp, family);
                    for answer in from.answers(protocol, address, REQUESTS)? {
                        assert_eq!(
                            answer.by, lab.node.host.name,
                            "{} to {address}",
                            from.host.name
                        );
                    }
                    let address = elsewhere.address(lab, Frontend::ClusterIp, family);
                    let outcome = from.ask_within(protocol, address, NO_ANSWER_TIMEOUT)?;
                    assert!(
                        !matches!(outcome, Outcome::Answered { .. }),
                        "{} to {address}",
                        from.host.name
                    );
                }
            }
            Ok(())
        },
    )
}

#[test]
fn services_of_the_same_pods_do_not_affect_each_other() -> Result<()> {
    isolated(
        "end_to_end::services_of_the_same_pods_do_not_affect_each_other",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            let [one, two] = [("one", 80), ("two", 81)]
                .map(|(name, number)| Service::new(name, number, &[lab.pod1.host, lab.pod3.host]));
            state.put(&one)?;
            state.put(&two)?;
            let agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
            let address = |service: &Service| service.address(lab, Frontend::ClusterIp, Family::V4);
            for (protocol, service) in [Protocol::Tcp, Protocol::Udp]
                .into_iter()
                .flat_map(|p| [(p, &one), (p, &two)])
            {
                let shares = lab
                    .pod2
                    .distribution(protocol, address(service), REQUESTS)?;
                assert_eq!(shares.len(), 2, "{shares:?}");
            }
            let mut datagrams = lab.pod2.open(Protocol::Udp, address(&one))?;
            let backend = datagrams.ask()?.by;
            state.delete(&two)?;
            agent.wait_until_gone(&two)?;
            assert_eq!(
                datagrams.ask()?.by,
                backend,
                "the flow of the other service stays"
            );
            assert_eq!(
                lab.pod2
                    .distribution(Protocol::Tcp, address(&one), REQUESTS)?
                    .len(),
                2
            );
            let outcome = lab
                .pod2
                .ask_within(Protocol::Tcp, address(&two), NO_ANSWER_TIMEOUT)?;
            assert!(!matches!(outcome, Outcome::Answered { .. }), "{outcome:?}");
            Ok(())
        },
    )
}

#[test]
fn load_balancer_without_node_port_gets_one_later() -> Result<()> {
    isolated(
        "end_to_end::load_balancer_without_node_port_gets_one_later",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            let web = Service::new("web", 80, &[lab.pod1.host]);
            state.put(&web)?;
            let manifest = fs::read_to_string(Path::new(&state.folder()).join("web.yaml")).unwrap();
            let node_port = format!(", nodePort: {}", web.node_port());
            assert!(manifest.contains(&node_port), "{manifest}");
            state.write("web.yaml", &manifest.replace(&node_port, ""))?;
            let _agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
            let is_answered = |frontend, family| {
                let outcome = lab.client.ask_within(
                    Protocol::Tcp,
                    web.address(lab, frontend, family),
                    NO_ANSWER_TIMEOUT,
                );
                outcome.is_ok_and(|outcome| matches!(outcome, Outcome::Answered { .. }))
            };
            for family in Family::BOTH {
                assert!(is_answered(Frontend::LoadBalancer, family), "{family:?}");
                assert!(!is_answered(Frontend::NodePort, family), "{family:?}");
            }
            state.write("web.yaml", &manifest)?;
            for family in Family::BOTH {
                wait_until("the node port answers", EVENT_TIMEOUT, || {
                    is_answered(Frontend::NodePort, family)
                })?;
                assert!(is_answered(Frontend::LoadBalancer, family), "{family:?}");
            }
            Ok(())
        },
    )
}

#[test]
fn alias_that_becomes_a_service_is_served_until_it_is_one_again() -> Result<()> {
    isolated(
        "end_to_end::alias_that_becomes_a_service_is_served_until_it_is_one_again",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            let web = Service::new("web", 80, &[lab.pod1.host, lab.pod3.host]);
            state.put(&web)?;
            let served = fs::read_to_string(Path::new(&state.folder()).join("web.yaml")).unwrap();
            let (_, slices) = served
                .split_once("\n---")
                .expect("slices follow the service");
            let alias = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: default}\n\
                     spec: {type: ExternalName, externalName: www.example.com}";
            let alias = format!("{alias}\n---{slices}");
            state.write("web.yaml", &alias)?;
            let _agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
            let answers = |frontend| {
                let is_answered = |(family, protocol)| {
                    let to = web.address(lab, frontend, family);
                    let outcome = lab.client.ask_within(protocol, to, NO_ANSWER_TIMEOUT);
                    outcome.is_ok_and(|outcome| matches!(outcome, Outcome::Answered { .. }))
                };
                let flows = Family::BOTH
                    .into_iter()
                    .flat_map(|f| [(f, Protocol::Tcp), (f, Protocol::Udp)]);
                flows.filter(|flow| is_answered(*flow)).count()
            };
            let frontends = [Frontend::ClusterIp, Frontend::NodePort];
            for (manifest, expected) in [(&alias, 0), (&served, 4), (&alias, 0)] {
                state.write("web.yaml", manifest)?;
                for frontend in frontends {
                    wait_until(
                        &format!("{expected} of 4 answer: {frontend:?}"),
                        EVENT_TIMEOUT,
                        || answers(frontend) == expected,
                    )?;
                }
            }
            Ok(())
        },
    )
}

/// Receives requests of this many bytes, and sends each back as a whole.
fn serve_large(listener: &TcpListener, length: usize) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { return };
        let mut request = vec![0; length];
        if stream.read_exact(&mut request).is_ok() {
            // The client says what was wrong.
            let _ = stream.write_all(&request);
        }
    }
}

fn send_large(to: SocketAddr, length: usize) -> std::io::Result<bool> {
    let request: Vec<u8> = (0..=250_u8).cycle().take(length).collect();
    let mut stream = TcpStream::connect_timeout(&to, EVENT_TIMEOUT)?;
    stream.set_read_timeout(Some(EVENT_TIMEOUT))?;
    stream.write_all(&request)?;
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer)?;
    Ok(answer == request)
}

#[test]
fn large_requests_by_tcp_arrive_whole() -> Result<()> {
    const LENGTH: usize = 1 << 20;
    isolated("end_to_end::large_requests_by_tcp_arrive_whole", |lab| {
        for (pod, family) in Family::BOTH
            .into_iter()
            .flat_map(|f| [(&lab.pod1, f), (&lab.pod3, f)])
        {
            let failed = |error| LabError::system(format!("listen in {}", pod.host.name), error);
            let listener = pod
                .run(|| TcpListener::bind(pod.host.socket(family, TARGET_PORT)).map_err(failed))?;
            // Ends with the process of the test.
            thread::spawn(move || serve_large(&listener, LENGTH));
        }
        let state = Manifests::new(lab)?;
        let web = Service::new("web", 80, &[lab.pod1.host, lab.pod3.host]);
        state.put(&web)?;
        let _agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
        for (from, frontend) in [
            (&lab.pod2, Frontend::ClusterIp),
            (&lab.node, Frontend::ClusterIp),
            (&lab.client, Frontend::NodePort),
        ] {
            for family in Family::BOTH {
                let to = web.address(lab, frontend, family);
                let failed = |error| LabError::system(format!("{} -> {to}", from.host.name), error);
                // Each from a new port, so that both backends get requests.
                for _ in 0..8 {
                    assert!(
                        from.run(|| send_large(to, LENGTH).map_err(failed))?,
                        "{} -> {to}",
                        from.host.name
                    );
                }
            }
        }
        Ok(())
    })
}
