//! The backends selected for policy Cluster: topology hints, and the preference for local ones.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{
        Frontend::{ClusterIp, NodePort},
        Hint, Manifests, NodeManifest, Service, ServiceManifest, State, TARGET_PORT,
    },
    lab::{Family, Lab, Outcome, Protocol, Responder, Result, isolated, ranges, wait_until},
};

/// The number of connections after which each of four backends has answered, except once in 10^11 runs.
const CONNECTIONS: usize = 100;

/// A service, and its expected backends on this node, which is called `node` and is in the zone `here`.
struct Case {
    name: &'static str,
    /// Backend, nodes, zones.
    hints: &'static [(
        &'static str,
        &'static [&'static str],
        &'static [&'static str],
    )],
    local: bool,
    serving: &'static [&'static str],
}

const CASES: [Case; 7] = [
    Case {
        name: "zones",
        hints: &[
            ("pod1", &[], &["there"]),
            ("pod2", &[], &["here"]),
            ("pod3", &[], &["there", "here"]),
        ],
        local: false,
        serving: &["pod2", "pod3"],
    },
    Case {
        name: "nodes",
        hints: &[
            ("pod1", &["node2"], &["here"]),
            ("pod3", &["node"], &["there"]),
            ("pod4", &["node"], &[]),
        ],
        local: false,
        serving: &["pod3", "pod4"],
    },
    Case {
        name: "one-without-nodes",
        hints: &[
            ("pod1", &["node"], &["there"]),
            ("pod2", &[], &["here"]),
            ("pod3", &["node2"], &["here"]),
        ],
        local: false,
        serving: &["pod2", "pod3"],
    },
    Case {
        name: "one-without-zones",
        hints: &[
            ("pod1", &[], &["here"]),
            ("pod2", &[], &["there"]),
            ("pod3", &[], &[]),
        ],
        local: false,
        serving: &["pod1", "pod2", "pod3"],
    },
    Case {
        name: "for-others",
        hints: &[
            ("pod1", &["node2"], &["there"]),
            ("pod3", &["node3"], &["elsewhere"]),
        ],
        local: false,
        serving: &["pod1", "pod3"],
    },
    Case {
        name: "no-hints",
        hints: &[
            ("pod1", &[], &[]),
            ("pod2", &[], &[]),
            ("pod3", &[], &[]),
            ("pod4", &[], &[]),
        ],
        local: false,
        serving: &["pod1", "pod2", "pod3", "pod4"],
    },
    Case {
        name: "local",
        hints: &[
            ("pod1", &["node2"], &["there"]),
            ("pod3", &["node"], &["here"]),
        ],
        local: true,
        serving: &["pod1"],
    },
];

impl Case {
    fn manifest(&self, lab: &Lab, number: u8) -> ServiceManifest {
        let has = |name| self.hints.iter().any(|(backend, ..)| *backend == name);
        let backends: Vec<_> = lab
            .pods()
            .into_iter()
            .map(|pod| pod.host)
            .filter(|host| has(host.name))
            .collect();
        let hints = self.hints.iter().map(|(backend, nodes, zones)| Hint {
            backend,
            nodes,
            zones,
        });
        ServiceManifest {
            hints: hints.collect(),
            internal_local: self.local,
            external_local: self.local,
            ..ServiceManifest::new(Service::new(self.name, number, &backends))
        }
    }
}

/// The backends that answer a pod by the cluster IP, and an external client by the node port; in each family, by each protocol.
fn serving(lab: &Lab, service: &Service) -> Result<Vec<(String, BTreeSet<String>)>> {
    let mut all = Vec::new();
    for (from, frontend) in [(&lab.pod2, ClusterIp), (&lab.client, NodePort)] {
        for (family, protocol) in Family::BOTH
            .into_iter()
            .flat_map(|f| Protocol::ALL.map(|p| (f, p)))
        {
            let address = service.address(lab, frontend, family);
            let by = from
                .distribution(protocol, address, CONNECTIONS)?
                .into_keys()
                .collect();
            let flow = format!(
                "{} -> {address} ({}, {protocol:?})",
                from.host.name, service.name
            );
            all.push((flow, by));
        }
    }
    Ok(all)
}

/// Checks that exactly these backends answer, by each frontend.
fn check(lab: &Lab, service: &Service, expected: &[&str], when: &str) -> Result<()> {
    let expected: BTreeSet<String> = expected.iter().map(ToString::to_string).collect();
    // A UDP client that reuses an earlier port would continue its flow to an earlier backend.
    lab.node.exec(&["conntrack", "--flush"])?;
    for (flow, by) in serving(lab, service)? {
        assert_eq!(by, expected, "{flow} {when}");
    }
    Ok(())
}

fn put_zone(lab: &Lab, state: &Manifests, zone: Option<&'static str>) -> Result<()> {
    state.put_node(&NodeManifest {
        host: lab.node.host,
        pods: Some(&ranges::PODS),
        zone,
    })
}

#[test]
fn topology_hints_prefer_node_to_zone_and_need_all_backends() -> Result<()> {
    isolated(
        "selection::topology_hints_prefer_node_to_zone_and_need_all_backends",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            put_zone(lab, &state, Some("here"))?;
            for (case, number) in CASES.iter().zip(1..) {
                state.put_manifest(&case.manifest(lab, number))?;
            }
            let _agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
            for (case, number) in CASES.iter().zip(1..) {
                check(
                    lab,
                    &Service::new(case.name, number, &[]),
                    case.serving,
                    "in zone `here`",
                )?;
            }
            Ok(())
        },
    )
}

#[test]
fn zone_is_that_of_the_node_object_or_configured() -> Result<()> {
    isolated(
        "selection::zone_is_that_of_the_node_object_or_configured",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            let zones = CASES[0].manifest(lab, 1);
            state.put_manifest(&zones)?;
            let service = &zones.service;
            let agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
            check(lab, service, &["pod1", "pod2", "pod3"], "in no zone")?;
            put_zone(lab, &state, Some("there"))?;
            let address = service.address(lab, ClusterIp, Family::V6);
            wait_until(
                "the new zone of the node counts",
                Duration::from_secs(10),
                || {
                    let by = lab.pod2.distribution(Protocol::Tcp, address, CONNECTIONS);
                    by.is_ok_and(|by| !by.contains_key("pod2"))
                },
            )?;
            check(lab, service, &["pod1", "pod3"], "in zone `there`")?;
            agent.stop()?;
            let flags = vec!["--zone=here".to_owned()];
            let _agent = Agent::start(
                lab,
                &AgentOptions {
                    flags,
                    ..AgentOptions::with_store(state.url())
                },
            )?;
            check(lab, service, &["pod2", "pod3"], "with --zone=here")
        },
    )
}

#[test]
fn prefer_local_uses_local_backends_until_there_is_none() -> Result<()> {
    isolated(
        "selection::prefer_local_uses_local_backends_until_there_is_none",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            let all = [lab.pod1.host, lab.pod2.host, lab.pod3.host, lab.pod4.host];
            let manifest = |backends: &[_]| ServiceManifest {
                annotations: vec![("contiv.io/prefer-local", "true")],
                ..ServiceManifest::new(Service::new("web", 80, backends))
            };
            state.put_manifest(&manifest(&all))?;
            let agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
            check(
                lab,
                &Service::new("web", 80, &[]),
                &["pod1", "pod2"],
                "from the start",
            )?;
            let [pod1, _, pod3, pod4] = all;
            let steps: [(&[_], &[_], &str); 4] = [
                (&[pod1, pod3, pod4], &["pod1"], "with one that is local"),
                (&[pod3, pod4], &["pod3", "pod4"], "with none that is local"),
                (&all, &["pod1", "pod2"], "when both are back"),
                (&[pod3], &["pod3"], "when both and another are gone"),
            ];
            for (backends, expected, when) in steps {
                let manifest = manifest(backends);
                state.put_manifest(&manifest)?;
                agent.wait_until_applied(&manifest.service)?;
                check(lab, &manifest.service, expected, when)?;
            }
            Ok(())
        },
    )
}

/// A load balancer with policy Local whose endpoints have no node names.
fn without_node_names(addresses: &[IpAddr]) -> String {
    let endpoints: Vec<String> = addresses
        .iter()
        .map(|address| format!("{{addresses: ['{address}']}}"))
        .collect();
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: web, namespace: default}}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.77
  externalTrafficPolicy: Local
  healthCheckNodePort: 31111
  ports: [{{name: web, port: 80, nodePort: 30077}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: web-1, namespace: default, labels: {{kubernetes.io/service-name: web}}}}
addressType: IPv4
ports: [{{name: web, port: {TARGET_PORT}}}]
endpoints: [{}]
",
        endpoints.join(", ")
    )
}

#[test]
fn cluster_range_as_pod_cidrs_keeps_policy_local() -> Result<()> {
    isolated(
        "selection::cluster_range_as_pod_cidrs_keeps_policy_local",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            let [here, elsewhere] = [&lab.pod1, &lab.pod3].map(|pod| pod.host.address(Family::V4));
            state.write("web.yaml", &without_node_names(&[elsewhere]))?;
            let flags = vec!["--pod-cidrs=10.244.0.0/16,fd00:10:244::/48".to_owned()];
            let _agent = Agent::start(
                lab,
                &AgentOptions {
                    flags,
                    ..AgentOptions::with_store(state.url())
                },
            )?;
            let node = |port| lab.node.host.socket(Family::V4, port);
            let health = || {
                lab.client
                    .http("GET", node(31111), "/")
                    .map(|answer| answer.status)
            };
            let soon = Duration::from_secs(10);
            wait_until("the health check answers", soon, || health().is_ok())?;
            let nobody =
                lab.client
                    .ask_within(Protocol::Tcp, node(30077), Duration::from_secs(1))?;
            assert!(!matches!(nobody, Outcome::Answered { .. }), "{nobody:?}");
            assert_eq!(health()?, 503);

            state.write("web.yaml", &without_node_names(&[elsewhere, here]))?;
            wait_until("the node has an endpoint", soon, || {
                health().is_ok_and(|status| status == 200)
            })?;
            let by = lab
                .client
                .distribution(Protocol::Tcp, node(30077), CONNECTIONS)?;
            assert_eq!(by.into_keys().collect::<Vec<_>>(), ["pod1"]);
            Ok(())
        },
    )
}
