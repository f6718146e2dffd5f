//! What holds after any inputs.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use contiv_model::{
    Backend, BackendState, FailoverMode, Protocol, ServicePort, Snapshot, TrafficPolicy,
    object::Conditions,
};
use contiv_node::{
    Input,
    message::{FailureCause, Watch},
};
use proptest::{collection::vec, prelude::*, sample::select};

use crate::node::{READY, TERMINATING, TestNode, service_with, slice};

const SERVICES: [&str; 3] = ["api", "one", "web"];
const BACKENDS: [&str; 7] = ["1", "2*", "3", "4*", "5", "6:1", "6:2*"];

#[derive(Debug, Clone)]
enum Step {
    Refused(Vec<&'static str>),
    Silent(Vec<&'static str>),
    /// Answers to running probes.
    Probed(Vec<bool>),
    Wait(u64),
    Service(&'static str, Option<FailoverMode>, [TrafficPolicy; 2]),
    Backends(&'static str, Vec<(&'static str, Conditions)>),
    Delete(&'static str),
    Kernel(bool),
}

fn backends() -> impl Strategy<Value = Vec<&'static str>> {
    vec(select(&BACKENDS[..]), 0..5)
        .prop_map(|all| all.into_iter().map(|it| it.trim_end_matches('*')).collect())
}

fn step() -> impl Strategy<Value = Step> {
    let service = || select(&SERVICES[..]);
    let mode = prop_oneof![
        4 => Just(Some(FailoverMode::On)),
        1 => Just(Some(FailoverMode::Observe)),
        1 => Just(Some(FailoverMode::Off)),
        1 => Just(None),
    ];
    let policy = || select(&[TrafficPolicy::Cluster, TrafficPolicy::Local][..]);
    let conditions = select(vec![READY, READY, READY, READY, TERMINATING]);
    let endpoints = vec((select(&BACKENDS[..]), conditions), 0..8);
    prop_oneof![
        5 => backends().prop_map(Step::Refused),
        5 => backends().prop_map(Step::Silent),
        5 => vec(any::<bool>(), 0..4).prop_map(Step::Probed),
        5 => (0..5000_u64).prop_map(Step::Wait),
        1 => (250_000..310_000_u64).prop_map(Step::Wait),
        3 => (service(), mode, [policy(), policy()]).prop_map(|(name, mode, policies)| Step::Service(name, mode, policies)),
        5 => (service(), endpoints).prop_map(|(name, endpoints)| Step::Backends(name, endpoints)),
        1 => service().prop_map(Step::Delete),
        1 => any::<bool>().prop_map(Step::Kernel),
    ]
}

impl TestNode {
    fn take(&mut self, step: Step) {
        match step {
            Step::Refused(backends) => self.refuse(&backends),
            Step::Silent(backends) => self.silent(&backends),
            Step::Probed(answers) => {
                let count = answers.len().min(self.running.len());
                let ended: Vec<SocketAddr> = self.running.drain(..count).collect();
                for (backend, is_answered) in ended.into_iter().zip(answers) {
                    self.input(Input::Probed {
                        backend,
                        is_answered,
                    });
                }
            }
            Step::Wait(milliseconds) => self.wait(Duration::from_millis(milliseconds)),
            Step::Service(name, mode, [internal, external]) => {
                self.put([service_with(name, |service| {
                    service.options.failover = mode;
                    service.internal_policy = internal;
                    service.external_policy = external;
                })]);
            }
            Step::Backends(name, backends) => {
                let (v6, v4): (Vec<_>, Vec<_>) = backends
                    .into_iter()
                    .partition(|(number, _)| number.starts_with("6:"));
                self.put([slice(name, &v4)]);
                if !v6.is_empty() {
                    self.put([slice(name, &v6)]);
                }
            }
            Step::Delete(name) => self.delete_service(name),
            Step::Kernel(works) => {
                let state = if works {
                    Ok(())
                } else {
                    Err("it is broken".to_owned())
                };
                self.input(Input::FailoverState(state));
            }
        }
    }

    fn assert_sound(&self) {
        let snapshot = self.core.snapshot().unwrap();
        let status = self.core.status().failover;
        let causes: BTreeMap<_, _> = status
            .iter()
            .flat_map(|status| &status.backends)
            .map(|out| ((out.service.clone(), out.backend), out.cause))
            .collect();
        let mut out = 0;
        for service in snapshot.services.values() {
            let mut of_service = BTreeSet::new();
            for (port, ipv4) in service
                .ports
                .iter()
                .flat_map(|port| [(port, true), (port, false)])
            {
                let ready: Vec<&Backend> = port
                    .backends
                    .iter()
                    .filter(|backend| backend.address.is_ipv4() == ipv4 && backend.state.is_ready())
                    .collect();
                let failing: Vec<&&Backend> = ready
                    .iter()
                    .filter(|backend| backend.state == BackendState::Failing)
                    .collect();
                if failing.is_empty() {
                    continue;
                }
                assert_eq!(
                    (port.protocol, service.failover),
                    (Protocol::Tcp, FailoverMode::On)
                );
                assert!(failing.len() < ready.len(), "the last one stays");
                let silent = failing.iter().filter(|backend| {
                    causes[&(service.id.clone(), backend.endpoint())] == FailureCause::Silent
                });
                assert!(silent.count() <= ready.len() / 2, "half at most");
                of_service.extend(failing.iter().map(|backend| backend.endpoint()));
            }
            out += of_service.len();
            if !of_service.is_empty() {
                let is_probed = of_service.iter().all(|it| self.running.contains(it));
                assert!(is_probed || self.is_due_within(Duration::from_secs(5)));
            }
        }
        assert_eq!(status.as_ref().map_or(0, |status| status.out), out);
        if status.is_some_and(|status| status.error.is_some()) {
            assert_eq!(out, 0, "nothing is known");
        }
        assert_eq!(self.watches, expected_watches(&snapshot));
    }
}

/// How backends must be watched, from the definition: for each way that traffic may take.
fn expected_watches(snapshot: &Snapshot) -> BTreeMap<SocketAddr, Watch> {
    let mut chosen_by: BTreeMap<SocketAddr, Vec<bool>> = BTreeMap::new();
    for service in snapshot.services.values() {
        if service.failover == FailoverMode::Off {
            continue;
        }
        let tcp = |port: &&ServicePort| port.protocol == Protocol::Tcp;
        for port in service.ports.iter().filter(tcp) {
            for backend in &port.backends {
                let reasons = chosen_by.entry(backend.endpoint()).or_default();
                let others = |only_local: bool| {
                    port.backends.iter().any(|other| {
                        other.endpoint() != backend.endpoint()
                            && other.address.is_ipv4() == backend.address.is_ipv4()
                            && other.state == BackendState::Ready
                            && (!only_local || other.local)
                    })
                };
                let works = |only_local| {
                    service.failover == FailoverMode::On
                        && backend.state == BackendState::Ready
                        && others(only_local)
                };
                if port.cluster_backends().contains(&backend) {
                    reasons.push(works(false));
                }
                let policies = [service.internal_policy, service.external_policy];
                if policies.contains(&TrafficPolicy::Local)
                    && port.local_backends().contains(&backend)
                {
                    reasons.push(works(true));
                }
            }
        }
    }
    let watch = |reasons: Vec<bool>| Watch {
        is_chosen: !reasons.is_empty(),
        has_second_chance: !reasons.is_empty() && reasons.into_iter().all(|works| works),
    };
    chosen_by
        .into_iter()
        .map(|(backend, reasons)| (backend, watch(reasons)))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_inputs_take_the_last_backend_or_leave_one_out_for_ever(
        steps in vec(step(), 1..40),
        random in 0.0..1.0_f64,
    ) {
        let mut node = TestNode::new(FailoverMode::Observe);
        node.random = random;
        for name in SERVICES {
            node.take(Step::Service(name, Some(FailoverMode::On), [TrafficPolicy::Cluster; 2]));
            node.take(Step::Backends(name, BACKENDS.map(|backend| (backend, READY)).to_vec()));
        }
        for step in steps {
            node.take(step);
            node.assert_sound();
        }
        node.take(Step::Kernel(true));
        node.silent(&[]);
        for _ in 0..3 {
            node.wait(Duration::from_secs(6));
            node.take(Step::Probed(vec![true; node.running.len()]));
            node.assert_sound();
        }
        let status = node.core.status().failover.unwrap_or_default();
        prop_assert_eq!((status.out, status.cut_off.len()), (0, 0));
        for service in node.core.services() {
            let backends = service.ports.iter().flat_map(|port| &port.backends);
            for backend in backends {
                prop_assert_ne!(backend.state, BackendState::Failing, "{} {}", service.id, backend.endpoint());
            }
        }
        prop_assert!(node.running.is_empty(), "nothing is probed any more");
    }
}
