//! `loadBalancerSourceRanges`: the clients that may connect to a load balancer's address.

use std::{thread, time::Duration};

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Frontend, Manifests, Service, ServiceManifest, State, TARGET_PORT},
    lab::{Family, Lab, Namespace, Outcome, Protocol, Responder, Result, isolated, wait_until},
};

/// The time without an answer after which a packet counts as dropped. Answers take a few milliseconds.
const NO_ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// The source ranges of a service, and whether the pod (pod1), the node and the external client may connect to its load
/// balancer's address.
struct Case {
    service: &'static str,
    ranges: &'static [&'static str],
    allowed: [[bool; 3]; 2],
}

const BOTH: fn([bool; 3]) -> [[bool; 3]; 2] = |allowed| [allowed, allowed];

fn cases() -> Vec<Case> {
    let case = |service, ranges, allowed| Case {
        service,
        ranges,
        allowed,
    };
    vec![
        case("all", &[], BOTH([true, true, true])),
        case(
            "client",
            &["172.31.0.100/32", "fd00:172:31::100/128"],
            BOTH([false, false, true]),
        ),
        case(
            "pods",
            &["10.244.1.0/24", "fd00:10:244:1::/64"],
            BOTH([true, false, false]),
        ),
        case(
            "network",
            &["172.31.0.0/24", "fd00:172:31::/64"],
            BOTH([false, true, true]),
        ),
        // Adjacent and overlapping ranges are merged; spaces around them are allowed.
        case(
            "halves",
            &[
                " 172.31.0.0/25 ",
                "172.31.0.0/24",
                "172.31.0.128/25",
                "fd00:172:31::/65",
                "fd00:172:31::/64",
            ],
            BOTH([false, true, true]),
        ),
        case(
            "others",
            &["203.0.113.0/24", "2001:db8:9::/48"],
            BOTH([false, false, false]),
        ),
        case(
            "zero",
            &["203.0.113.0/24", "0.0.0.0/0", "::/0"],
            BOTH([true, true, true]),
        ),
        // A range of one family does not restrict the other.
        case(
            "only-v4",
            &["172.31.0.100/32"],
            [[false, false, true], [true, true, true]],
        ),
    ]
}

#[test]
fn source_ranges_restrict_load_balancer_addresses() -> Result<()> {
    let test = "source_ranges::source_ranges_restrict_load_balancer_addresses";
    isolated(test, |lab| {
        let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
        let state = Manifests::new(lab)?;
        for (case, number) in cases().iter().zip(1..) {
            let service = Service::new(case.service, number, &[lab.pod1.host, lab.pod3.host]);
            let source_ranges = case
                .ranges
                .iter()
                .map(|range| (*range).to_owned())
                .collect();
            state.put_manifest(&ServiceManifest {
                source_ranges,
                ..ServiceManifest::new(service)
            })?;
        }
        let _agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
        let mut flows = Vec::new();
        for (case, number) in cases().iter().zip(1..) {
            let service = Service::new(case.service, number, &[]);
            for (family, allowed) in Family::BOTH.into_iter().zip(case.allowed) {
                for (from, allowed) in [&lab.pod1, &lab.node, &lab.client].into_iter().zip(allowed)
                {
                    flows.extend(Flow::to_all(&service, from, family, |frontend| {
                        allowed || frontend != Frontend::LoadBalancer
                    }));
                }
            }
        }
        check(lab, &flows)
    })
}

/// A flow, and whether it is allowed.
struct Flow<'a> {
    from: &'a Namespace,
    service: Service,
    frontend: Frontend,
    family: Family,
    protocol: Protocol,
    allowed: bool,
}

impl<'a> Flow<'a> {
    /// Flows to all frontends by both protocols.
    fn to_all(
        service: &Service,
        from: &'a Namespace,
        family: Family,
        allowed: impl Fn(Frontend) -> bool,
    ) -> Vec<Self> {
        let flows = Frontend::ALL
            .into_iter()
            .flat_map(|f| Protocol::ALL.map(|protocol| (f, protocol)));
        flows
            .map(|(frontend, protocol)| {
                let service = service.clone();
                Self {
                    from,
                    service,
                    frontend,
                    family,
                    protocol,
                    allowed: allowed(frontend),
                }
            })
            .collect()
    }

    fn check(&self, lab: &Lab) -> Result<()> {
        let Self {
            from,
            service,
            frontend,
            family,
            protocol,
            ..
        } = self;
        let address = service.address(lab, *frontend, *family);
        let words = format!(
            "{} -> {address}, {frontend:?} of {}, {protocol:?}",
            from.host.name, service.name
        );
        if self.allowed {
            let outcome = from.ask(*protocol, address)?;
            assert!(
                matches!(outcome, Outcome::Answered { .. }),
                "{words} is allowed: {outcome:?}"
            );
        } else {
            let outcome = from.ask_within(*protocol, address, NO_ANSWER_TIMEOUT)?;
            assert_eq!(outcome, Outcome::TimedOut, "{words} is not allowed");
        }
        Ok(())
    }
}

/// Checks the allowed flows one by one, and the others in parallel, because missing answers take time.
fn check(lab: &Lab, flows: &[Flow<'_>]) -> Result<()> {
    let (allowed, silent): (Vec<_>, Vec<_>) = flows.iter().partition(|flow| flow.allowed);
    allowed.into_iter().try_for_each(|flow| flow.check(lab))?;
    thread::scope(|scope| {
        let runs: Vec<_> = silent
            .into_iter()
            .map(|flow| scope.spawn(move || flow.check(lab)))
            .collect();
        runs.into_iter().try_for_each(|run| {
            run.join()
                .unwrap_or_else(|cause| std::panic::resume_unwind(cause))
        })
    })
}

#[test]
fn source_ranges_restrict_node_ports_when_configured() -> Result<()> {
    isolated(
        "source_ranges::source_ranges_restrict_node_ports_when_configured",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            let service = Service::new("web", 80, &[lab.pod1.host, lab.pod3.host]);
            let source_ranges = ["10.244.1.10/32", "fd00:10:244:1::10/128"]
                .map(str::to_owned)
                .to_vec();
            state.put_manifest(&ServiceManifest {
                source_ranges,
                ..ServiceManifest::new(service.clone())
            })?;
            let flags = vec!["--source-ranges-on-node-ports".to_owned()];
            let _agent = Agent::start(
                lab,
                &AgentOptions {
                    flags,
                    ..AgentOptions::with_store(state.url())
                },
            )?;
            let mut flows = Vec::new();
            for family in Family::BOTH {
                for from in [&lab.pod1, &lab.pod2, &lab.client] {
                    flows.extend(Flow::to_all(&service, from, family, |frontend| {
                        from.host == lab.pod1.host
                            || !matches!(frontend, Frontend::NodePort | Frontend::LoadBalancer)
                    }));
                }
            }
            check(lab, &flows)
        },
    )
}

#[test]
fn node_in_ranges_that_has_address_itself_may_connect_by_it() -> Result<()> {
    isolated(
        "source_ranges::node_in_ranges_that_has_address_itself_may_connect_by_it",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            let cases: [(&str, &[&str], bool); 2] = [
                ("with-node", &["172.31.0.0/24", "fd00:172:31::/64"], true),
                (
                    "without-node",
                    &["172.31.0.100/32", "fd00:172:31::100/128"],
                    false,
                ),
            ];
            let mut flows = Vec::new();
            for ((name, ranges, allowed), number) in cases.into_iter().zip(1..) {
                let service = Service::new(name, number, &[lab.pod1.host, lab.pod3.host]);
                let source_ranges = ranges.iter().map(|range| (*range).to_owned()).collect();
                state.put_manifest(&ServiceManifest {
                    source_ranges,
                    ..ServiceManifest::new(service.clone())
                })?;
                for family in Family::BOTH {
                    let address = service
                        .address(lab, Frontend::LoadBalancer, family)
                        .ip()
                        .to_string();
                    let nodad: &[&str] = if family == Family::V6 {
                        &["nodad"]
                    } else {
                        &[]
                    };
                    lab.node.exec(
                        &[&["ip", "address", "add", &address, "dev", "lo"], nodad].concat(),
                    )?;
                    let by_address = Flow::to_all(&service, &lab.node, family, |_| allowed);
                    flows.extend(
                        by_address
                            .into_iter()
                            .filter(|flow| flow.frontend == Frontend::LoadBalancer),
                    );
                }
            }
            let _agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
            check(lab, &flows)
        },
    )
}

#[test]
fn changed_ranges_apply_to_new_connections_only() -> Result<()> {
    isolated(
        "source_ranges::changed_ranges_apply_to_new_connections_only",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            let service = Service::new("web", 80, &[lab.pod1.host]);
            let with_ranges = |ranges: &[&str]| ServiceManifest {
                source_ranges: ranges.iter().map(|range| (*range).to_owned()).collect(),
                ..ServiceManifest::new(service.clone())
            };
            state.put_manifest(&with_ranges(&["172.31.0.100/32", "fd00:172:31::100/128"]))?;
            let _agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
            for family in Family::BOTH {
                let address = service.address(lab, Frontend::LoadBalancer, family);
                let mut session = lab.client.open(Protocol::Tcp, address)?;
                let before = session.ask()?;
                state.put_manifest(&with_ranges(&["203.0.113.0/24", "2001:db8:9::/48"]))?;
                wait_until("the client is refused", Duration::from_secs(10), || {
                    let outcome =
                        lab.client
                            .ask_within(Protocol::Udp, address, Duration::from_millis(300));
                    outcome.is_ok_and(|outcome| outcome == Outcome::TimedOut)
                })?;
                assert_eq!(
                    lab.client
                        .ask_within(Protocol::Tcp, address, NO_ANSWER_TIMEOUT)?,
                    Outcome::TimedOut
                );
                assert_eq!(session.ask()?, before, "what is open stays open");
                state.put_manifest(&with_ranges(&["172.31.0.0/24", "fd00:172:31::/64"]))?;
                wait_until(
                    "the client is allowed again",
                    Duration::from_secs(10),
                    || {
                        let outcome = lab.client.ask_within(
                            Protocol::Udp,
                            address,
                            Duration::from_millis(300),
                        );
                        outcome.is_ok_and(|outcome| matches!(outcome, Outcome::Answered { .. }))
                    },
                )?;
            }
            Ok(())
        },
    )
}
