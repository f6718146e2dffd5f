//! Changes at any moment of a search, in both families: no right flow is deleted, and no wrong one stays.

use std::net::SocketAddr;

use contiv_model::{Backend, ServiceId, ServicePort};
use proptest::{collection::vec, prelude::*};

use super::super::*;
use crate::nftables::conntrack::flow::Identity;

const PORT: u16 = 80;
const NODE_PORT: u16 = 30_080;
const PROTOCOLS: [Protocol; 2] = [Protocol::Tcp, Protocol::Udp];

/// Which of three backends serve.
type Serving = [bool; 3];

#[derive(Debug, Clone, Copy)]
enum Step {
    Change(Serving),
    /// Everything is programmed again, as after a failure.
    Reconcile(Serving),
    /// A search, with a change while it is under way.
    Search {
        is_survey: bool,
        change: Option<Serving>,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let search = (any::<bool>(), proptest::option::of(any::<Serving>()))
        .prop_map(|(is_survey, change)| Step::Search { is_survey, change });
    prop_oneof![
        4 => any::<Serving>().prop_map(Step::Change),
        1 => any::<Serving>().prop_map(Step::Reconcile),
        4 => search,
    ]
}

fn address(ipv4: bool, last: u8) -> IpAddr {
    if ipv4 {
        [10, 0, 0, last].into()
    } else {
        [0xfd00, 0, 0, 0, 0, 0, 0, u16::from(last)].into()
    }
}

fn backend(ipv4: bool, number: usize) -> SocketAddr {
    (address(ipv4, u8::try_from(number + 1).unwrap()), 8080).into()
}

fn node_ips() -> BTreeSet<IpAddr> {
    [address(true, 200), address(false, 200)].into()
}

/// Both protocols, in both families.
fn service(serving: Serving) -> Arc<ContivService> {
    let backends: Vec<Backend> = [true, false]
        .into_iter()
        .flat_map(|ipv4| {
            (0..3)
                .filter(|it| serving[*it])
                .map(move |it| Backend::new(backend(ipv4, it)))
        })
        .collect();
    let port = |protocol| ServicePort {
        port: PORT,
        protocol,
        name: "".into(),
        node_port: Some(NODE_PORT),
        backends: backends.clone(),
    };
    Arc::new(ContivService {
        cluster_ips: [address(true, 100), address(false, 100)].into(),
        ports: PROTOCOLS.map(port).into(),
        ..ContivService::new(ServiceId::new("default", "web"))
    })
}

type Connection = (Protocol, SocketAddr, SocketAddr, bool);

fn flow((protocol, destination, backend, is_in_use): Connection) -> Flow<'static> {
    Flow {
        protocol,
        destination,
        backend,
        is_in_use,
        identity: Identity {
            tuple: &[],
            id: &[],
        },
    }
}

struct World {
    state: State,
    serving: Serving,
    connections: BTreeSet<Connection>,
}

impl World {
    fn new(serving: Serving) -> Self {
        let mut world = Self {
            state: State::default(),
            serving,
            connections: BTreeSet::new(),
        };
        world.reconcile(serving);
        world
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Change(serving) => self.change(serving, false),
            Step::Reconcile(serving) => self.reconcile(serving),
            Step::Search { is_survey, change } => self.search(is_survey, change),
        }
    }

    /// It is programmed, and clients connect, before the request about it is handled. During a search it is announced.
    fn change(&mut self, serving: Serving, is_searching: bool) {
        let id = ServiceId::new("default", "web");
        let change = ServiceChange {
            old: Some(service(self.serving)),
            new: Some(service(serving)),
        };
        if is_searching {
            self.state
                .handle_request(Request::Coming(vec![service(serving)]));
        }
        self.serving = serving;
        self.connect();
        if is_searching {
            self.check();
        }
        self.state
            .handle_request(Request::Changed([(id, change)].into()));
        self.check();
    }

    fn reconcile(&mut self, serving: Serving) {
        let services = |serving| [(ServiceId::new("default", "web"), service(serving))].into();
        let before = services(self.serving);
        self.serving = serving;
        self.connect();
        let (services, node_ips) = (services(serving), node_ips());
        self.state.handle_request(Request::Reconciled {
            before,
            services,
            node_ips,
            found: Vec::new(),
        });
        self.check();
    }

    /// A client of each frontend connects to each backend that serves, and some of them get an answer.
    fn connect(&mut self) {
        for ipv4 in [true, false] {
            for destination in [(address(ipv4, 100), PORT), (address(ipv4, 200), NODE_PORT)] {
                for number in (0..3).filter(|number| self.serving[*number]) {
                    for protocol in PROTOCOLS {
                        let ends = (destination.into(), backend(ipv4, number));
                        let connection = |is_in_use| (protocol, ends.0, ends.1, is_in_use);
                        self.connections.extend([true, false].map(connection));
                    }
                }
            }
        }
    }

    fn is_right(&self, (_, destination, backend, _): Connection) -> bool {
        (0..3).any(|it| self.serving[it] && backend == self::backend(destination.is_ipv4(), it))
    }

    /// No connection to a backend that serves is, or will be, deleted or drained.
    fn check(&mut self) {
        for connection in self
            .connections
            .clone()
            .into_iter()
            .filter(|it| self.is_right(*it))
        {
            let flow = flow(connection);
            for filter in [
                &self.state.current,
                &self.state.next,
                &self.state.unsurveyed,
            ] {
                assert_eq!(
                    filter.judge(&flow, &self.state.node_ips),
                    FlowVerdict::Right,
                    "{connection:?}"
                );
            }
            assert!(
                !self.state.drained.contains(&flow) && !self.state.found.contains(&flow),
                "{connection:?}"
            );
        }
    }

    fn search(&mut self, is_survey: bool, mut change: Option<Serving>) {
        for ((family, protocol), scope) in self.state.begin_search(is_survey) {
            self.state.found = DrainedBackends::default();
            for connection in self.connections.clone() {
                let (of, destination, _, is_in_use) = connection;
                let is_in_scope = (of, Family::of(&destination.ip())) == (protocol, family)
                    && (scope == Scope::All || !is_in_use);
                if is_in_scope && self.state.is_stale(&flow(connection)) {
                    assert!(!self.is_right(connection), "{connection:?}");
                    self.connections.remove(&connection);
                }
                // After the first flow.
                if let Some(serving) = change.take() {
                    self.change(serving, true);
                }
            }
            if is_survey {
                let found = mem::take(&mut self.state.found);
                self.state.drained.replace(family, protocol, found);
            }
        }
        self.state.end_search(is_survey);
    }

    fn settle(&mut self) {
        self.search(true, None);
        for connection in &self.connections {
            let (protocol, .., is_in_use) = *connection;
            let is_drained = self.state.drained.contains(&flow(*connection));
            let is_right = self.is_right(*connection);
            assert_eq!(is_drained, !is_right, "{connection:?}");
            assert!(
                is_right || protocol == Protocol::Tcp && is_in_use,
                "{connection:?} stays"
            );
        }
    }
}

proptest! {
    #[test]
    fn changes_during_searches_lose_and_leave_no_flow(first: Serving, steps in vec(step(), 0..12)) {
        let mut world = World::new(first);
        for step in steps {
            world.take(step);
        }
        world.settle();
    }
}
