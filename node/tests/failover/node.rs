//! A node with services, and a clock of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use contiv_model::{
    Addresses, Backend, BackendState, ContivService, EndpointSliceId, Event, FailoverMode,
    NodeName, Object, ObjectKey, ProcessorConfig, Protocol, ServiceId, TrafficPolicy,
    object::{
        AddressType, Conditions, EndpointAddress, EndpointPort, EndpointSlice, Seniority, Service,
        ServiceOptions, ServicePortSpec, ServiceType, SliceEndpoint,
    },
};
use contiv_node::{
    Core, CoreConfig, FailoverStatus, GuardConfig, HistoryLimits, Input, VerificationConfig,
    decode::{DecodedChanges, DecodedList, StoreEvent},
    message::{FailureCause, Metric, Now, Output, Watch, WorkDone},
};
use contiv_renderer::Report;
use contiv_store::Batch;
use jiff::Timestamp;

/// This node.
pub(crate) const NODE: &str = "n1";
pub(crate) const READY: Conditions = Conditions {
    ready: true,
    serving: true,
    terminating: false,
};
pub(crate) const TERMINATING: Conditions = Conditions {
    ready: false,
    serving: true,
    terminating: true,
};

pub(crate) struct TestNode {
    pub(crate) core: Core,
    start: Instant,
    /// The time since the start.
    pub(crate) clock: Duration,
    /// The random number of each input.
    pub(crate) random: f64,
    /// The watched backends, from all outputs so far.
    pub(crate) watches: BTreeMap<SocketAddr, Watch>,
    /// The probes that have no answer yet.
    pub(crate) running: Vec<SocketAddr>,
    /// The renderers that are busy.
    rendering: BTreeSet<Arc<str>>,
    /// When each probe began.
    pub(crate) probes: Vec<(Duration, SocketAddr)>,
    /// The causes for which backends left.
    pub(crate) left: Vec<FailureCause>,
    /// How many came back.
    pub(crate) returned: usize,
}

impl TestNode {
    /// A node on which services without annotation have this mode, with an empty store.
    pub(crate) fn new(failover: FailoverMode) -> Self {
        let config = CoreConfig {
            store: "dir:/test".to_owned(),
            processor: ProcessorConfig {
                failover,
                route_runs: true,
                ..ProcessorConfig::new(NodeName::new(NODE))
            },
            has_mirror: false,
            local_addresses: [].into(),
            local_interfaces: [].into(),
            attached: [].into(),
            guard: GuardConfig {
                percent: 0,
                wait: Duration::ZERO,
            },
            verification: VerificationConfig::default(),
            history: HistoryLimits {
                events: 1000,
                age: Duration::from_secs(24 * 60 * 60),
                bytes: 1 << 24,
            },
            renderers: vec!["nftables".into(), "route".into()],
            verified_renderers: Vec::new(),
            traffic_renderer: "nftables".into(),
            self_check: None,
        };
        let start = Instant::now();
        let mut node = Self {
            core: Core::new(config, at(start, Duration::ZERO, 0.5)),
            start,
            clock: Duration::ZERO,
            random: 0.5,
            watches: BTreeMap::new(),
            running: Vec::new(),
            rendering: BTreeSet::new(),
            probes: Vec::new(),
            left: Vec::new(),
            returned: 0,
        };
        let list = StoreEvent::Listed(Box::new(DecodedList {
            revision: 1,
            ..DecodedList::default()
        }));
        node.input(Input::Store(list, start));
        node
    }

    /// A node with failover and one service of these ready backends.
    pub(crate) fn with_web(backends: &[&str]) -> Self {
        let mut node = Self::new(FailoverMode::On);
        node.put([service("web", None), ready_slice("web", backends)]);
        node
    }

    pub(crate) fn input(&mut self, input: Input) {
        let mut out = Vec::new();
        self.core.handle(
            input,
            at(self.start, self.clock, self.random),
            &mut |output| out.push(output),
        );
        for output in out {
            match output {
                Output::WatchBackends(changes) => {
                    assert!(!changes.is_empty());
                    for (backend, watch) in changes {
                        let before = match watch {
                            Some(watch) => self.watches.insert(backend, watch),
                            None => self.watches.remove(&backend),
                        };
                        assert_ne!(before, watch, "{backend} has not changed");
                    }
                }
                Output::Probe(backend) => {
                    self.running.push(backend);
                    self.probes.push((self.clock, backend));
                }
                Output::Render(renderer, _) => drop(self.rendering.insert(renderer)),
                Output::Count(Metric::BackendLeft(cause)) => self.left.push(cause),
                Output::Count(Metric::BackendReturned) => self.returned += 1,
                _ => {}
            }
        }
    }

    /// Lets time pass.
    pub(crate) fn wait(&mut self, duration: Duration) {
        let until = self.clock + duration;
        while let Some(deadline) = self.core.deadline()
            && deadline <= self.start + until
        {
            self.clock = self.clock.max(deadline - self.start);
            self.input(Input::Timer);
            assert!(
                self.core.deadline().is_none_or(|next| next > deadline),
                "the deadline is handled"
            );
        }
        self.clock = until;
    }

    pub(crate) fn change(&mut self, events: Vec<Event>) {
        let batch = Batch {
            revision: 2,
            changes: Vec::new(),
        };
        let changes = DecodedChanges {
            events,
            statuses: Vec::new(),
            warnings: Vec::new(),
            unserved: None,
            triggered: None,
        };
        let received = self.start + self.clock;
        self.input(Input::Store(StoreEvent::Changed(batch, changes), received));
    }

    pub(crate) fn put(&mut self, objects: impl IntoIterator<Item = Object>) {
        self.change(objects.into_iter().map(Event::Put).collect());
    }

    pub(crate) fn delete_service(&mut self, name: &str) {
        self.change(vec![Event::Delete(ObjectKey::Service(id(name)))]);
    }

    pub(crate) fn refuse(&mut self, backends: &[&str]) {
        self.input(Input::BackendsRefused(set(backends)));
    }

    pub(crate) fn silent(&mut self, backends: &[&str]) {
        self.input(Input::BackendsSilent(set(backends)));
    }

    /// The renderers report that all is as it should be.
    pub(crate) fn finish_rendering(&mut self) {
        while let Some(renderer) = self.rendering.pop_first() {
            self.input(Input::WorkDone(WorkDone {
                renderer,
                result: Ok(Report::default()),
                is_watched: true,
                duration: Duration::ZERO,
            }));
        }
    }

    /// True if the core has something to do so soon.
    pub(crate) fn is_due_within(&self, duration: Duration) -> bool {
        self.core
            .deadline()
            .is_some_and(|deadline| deadline <= self.start + self.clock + duration)
    }

    /// Answers a running probe.
    pub(crate) fn answer(&mut self, backend: &str, is_answered: bool) {
        let backend = endpoint(backend);
        let running = self.running.iter().position(|it| *it == backend);
        self.running.remove(running.unwrap());
        self.input(Input::Probed {
            backend,
            is_answered,
        });
    }

    pub(crate) fn service(&self, name: &str) -> Arc<ContivService> {
        self.core.service(&id(name)).unwrap()
    }

    /// The backends of a service that are out, each once.
    pub(crate) fn out(&self, name: &str) -> Vec<String> {
        let service = self.service(name);
        let backends = service.ports.iter().flat_map(|port| &port.backends);
        let failing = backends.filter(|backend| backend.state == BackendState::Failing);
        let failing: BTreeSet<SocketAddr> = failing.map(Backend::endpoint).collect();
        failing.iter().map(short).collect()
    }

    /// The events of failover so far.
    pub(crate) fn history(&self) -> Vec<String> {
        self.core
            .history(self.start + self.clock)
            .filter(|record| record.kind == "failover")
            .map(|record| record.description.clone())
            .collect()
    }

    pub(crate) fn status(&self) -> FailoverStatus {
        self.core.status().failover.unwrap()
    }
}

fn at(start: Instant, clock: Duration, random: f64) -> Now {
    Now {
        instant: start + clock,
        time: Timestamp::UNIX_EPOCH + clock,
        random,
    }
}

pub(crate) fn id(name: &str) -> ServiceId {
    ServiceId::new("default", name)
}

/// The backend of a number, as in `3` or, of IPv6, in `6:3`.
pub(crate) fn endpoint(number: &str) -> SocketAddr {
    match number.strip_prefix("6:") {
        Some(number) => format!("[fd01::{number}]:8080"),
        None => format!("10.1.0.{number}:8080"),
    }
    .parse()
    .unwrap()
}

/// The number of a backend.
fn short(backend: &SocketAddr) -> String {
    let text = backend.ip().to_string();
    let number = text.rsplit(['.', ':']).next().unwrap().to_owned();
    if backend.is_ipv4() {
        number
    } else {
        format!("6:{number}")
    }
}

fn set(backends: &[&str]) -> BTreeSet<SocketAddr> {
    backends.iter().map(|backend| endpoint(backend)).collect()
}

/// A service with TCP port 80, and UDP port 53 at the same backends.
pub(crate) fn service(name: &str, failover: Option<FailoverMode>) -> Object {
    service_with(name, |service| service.options.failover = failover)
}

/// The same with changes.
pub(crate) fn service_with(name: &str, change: impl FnOnce(&mut Service)) -> Object {
    let port = |port, protocol, name: &str| ServicePortSpec {
        port,
        protocol,
        name: name.into(),
        node_port: None,
    };
    let number = name.bytes().map(u16::from).sum::<u16>();
    let mut service = Service {
        id: id(name),
        service_type: ServiceType::ClusterIp,
        headless: false,
        cluster_ips: Addresses::from([
            format!("10.96.{}.{}", number / 250, number % 250 + 1)
                .parse()
                .unwrap(),
            format!("fd00::{number}").parse().unwrap(),
        ]),
        external_ips: Addresses::new(),
        load_balancer_ips: Addresses::new(),
        source_ranges: BTreeSet::new(),
        health_check_node_port: None,
        ports: vec![
            port(80, Protocol::Tcp, "http"),
            port(53, Protocol::Udp, "dns"),
        ],
        external_policy: TrafficPolicy::Cluster,
        internal_policy: TrafficPolicy::Cluster,
        session_affinity_timeout: 0,
        options: ServiceOptions::default(),
        labels: BTreeMap::new(),
        proxy_name: None,
        seniority: Seniority::new(Some(1), 1),
    };
    change(&mut service);
    Object::Service(Box::new(service))
}

/// The slice of a service with these ready backends of one family.
pub(crate) fn ready_slice(service: &str, backends: &[&str]) -> Object {
    let backends: Vec<_> = backends.iter().map(|backend| (*backend, READY)).collect();
    slice(service, &backends)
}

/// The slice of a service with these backends of one family; those with a star are on this node.
pub(crate) fn slice(service: &str, backends: &[(&str, Conditions)]) -> Object {
    let is_ipv6 = backends.iter().any(|(number, _)| number.starts_with("6:"));
    let endpoints = backends.iter().map(|(number, conditions)| {
        let is_local = number.ends_with('*');
        SliceEndpoint {
            address: EndpointAddress {
                ip: endpoint(number.trim_end_matches('*')).ip(),
                node_name: is_local.then(|| NodeName::new(NODE)),
                pod: None,
            },
            conditions: *conditions,
            hints: None,
        }
    });
    let port = |name: &str, protocol| EndpointPort {
        name: name.into(),
        protocol,
        port: 8080,
    };
    let family = if is_ipv6 { "6" } else { "4" };
    Object::EndpointSlice(EndpointSlice {
        id: EndpointSliceId::new("default", format!("{service}-{family}")),
        service: Some(id(service)),
        address_type: if is_ipv6 {
            AddressType::Ipv6
        } else {
            AddressType::Ipv4
        },
        is_supplement: false,
        endpoints: endpoints.collect(),
        ports: [port("http", Protocol::Tcp), port("dns", Protocol::Udp)].into(),
    })
}
