mod search;

use std::{io, sync::mpsc::sync_channel};

use contiv_model::{Backend, ServiceId, ServicePort};

use super::*;
use crate::{
    kernel::{NetlinkProtocol, NetlinkSocket, Subscription},
    nftables::conntrack::flow::Identity,
};

/// A kernel that lets wait, and then refuses.
#[derive(Debug)]
struct SlowKernel;

impl Kernel for SlowKernel {
    fn connect(&self, _: NetlinkProtocol) -> io::Result<Box<dyn NetlinkSocket>> {
        thread::sleep(Duration::from_millis(100));
        Err(io::ErrorKind::Unsupported.into())
    }

    fn listen(&self, _: NetlinkProtocol, _: &[u32], _: u32) -> io::Result<Subscription> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn setting(&self, _: &str) -> io::Result<String> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn set_setting(&self, _: &str, _: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn settings(&self, _: &str) -> io::Result<Vec<String>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn spawn(&self, _: &str, _: Box<dyn BackgroundTask>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[test]
fn search_that_waits_costs_only_its_processor_time() {
    let (_queue, requests) = sync_channel(8);
    let (kernel, seqlock) = (Arc::new(SlowKernel), Arc::default());
    let mut worker = Worker::new(kernel, requests, seqlock, Arc::default(), None);
    let service = ContivService {
        cluster_ips: [IpAddr::from([10, 96, 0, 1])].into(),
        ports: vec![ServicePort {
            port: 80,
            protocol: Protocol::Udp,
            name: "".into(),
            node_port: None,
            backends: Vec::new(),
        }],
        ..ContivService::new(ServiceId::new("default", "web"))
    };
    let change = ServiceChange {
        old: None,
        new: Some(Arc::new(service)),
    };
    let changes = [(ServiceId::new("default", "web"), change)];
    worker
        .state
        .handle_request(Request::Changed(changes.into()));
    let start = Instant::now();
    let cost = worker.search_beside_programming(true);
    let took = start.elapsed();
    assert!(took > MAX_ATTEMPTS * Duration::from_millis(100), "{took:?}");
    assert!(cost < took / 4, "a search of {took:?} cost {cost:?}");
}

#[test]
fn first_change_is_searched_at_once_and_later_ones_together() {
    let now = Instant::now();
    let ms = Duration::from_millis;
    let search = |ago, took| Some((now.checked_sub(ms(ago)).unwrap(), ms(took)));
    assert_eq!(gather_until(now, None), now + GATHER_DELAY);
    assert_eq!(
        gather_until(now, search(60_000, 10)),
        now + GATHER_DELAY,
        "after a quiet time"
    );
    assert_eq!(
        gather_until(now, search(100, 5)),
        now + ms(1150),
        "during changes"
    );
    assert_eq!(
        gather_until(now, search(100, 1)),
        now + ms(400),
        "a search that costs little"
    );
    assert_eq!(
        gather_until(now, search(100, 1000)),
        now + ms(2400),
        "one that costs much"
    );
}

#[test]
fn survey_waits_in_proportion_to_what_the_last_one_cost() {
    let (end, ms) = (Instant::now(), Duration::from_millis);
    assert_eq!(survey_after(None), None, "the first is due at once");
    for (took, after) in [
        (1, MIN_INTERVAL),
        (20, ms(2000)),
        (5000, MAX_SURVEY_INTERVAL),
    ] {
        assert_eq!(
            survey_after(Some((end, ms(took)))),
            Some(end + after),
            "after one of {took} ms"
        );
    }
}

#[test]
fn services_programmed_before_are_searched_after_a_reconciliation() {
    let (queue, requests) = sync_channel(8);
    let backend = Backend::new(([10, 0, 0, 1], 8080).into());
    let port = ServicePort {
        port: 80,
        protocol: Protocol::Udp,
        name: "".into(),
        node_port: None,
        backends: vec![backend],
    };
    let service = |name: &str, address: [u8; 4]| {
        let id = ServiceId::new("default", name);
        let service = ContivService {
            cluster_ips: [IpAddr::from(address)].into(),
            ports: vec![port.clone()],
            ..ContivService::new(id.clone())
        };
        (id, Arc::new(service))
    };
    let (gone, kept) = (
        service("gone", [10, 96, 0, 1]),
        service("kept", [10, 96, 0, 2]),
    );
    let reconciled = |before: &[(ServiceId, Arc<ContivService>)]| Request::Reconciled {
        before: before.iter().cloned().collect(),
        services: [kept.clone()].into(),
        node_ips: BTreeSet::new(),
        found: Vec::new(),
    };
    let is_stale = |state: &State, destination: [u8; 4], backend: [u8; 4]| {
        let flow = Flow {
            protocol: Protocol::Udp,
            destination: (destination, 80).into(),
            backend: (backend, 8080).into(),
            is_in_use: true,
            identity: Identity {
                tuple: &[],
                id: &[],
            },
        };
        state.next.judge(&flow, &state.node_ips) == FlowVerdict::Stale
    };
    for (before, expected) in [(&[gone.clone(), kept.clone()][..], true), (&[], false)] {
        let mut state = State::default();
        queue.send(reconciled(before)).unwrap();
        state.handle_pending_requests(&requests);
        assert_eq!(
            is_stale(&state, [10, 96, 0, 1], [10, 0, 0, 1]),
            expected,
            "of a removed service"
        );
        assert!(
            is_stale(&state, [10, 96, 0, 2], [10, 0, 0, 9]),
            "to another backend"
        );
        assert!(!is_stale(&state, [10, 96, 0, 2], [10, 0, 0, 1]));
    }
}

#[test]
fn survey_finds_drained_backends_until_they_serve_again() {
    let service = |last: &[u8]| {
        let backends = last
            .iter()
            .map(|last| Backend::new(([10, 0, 0, *last], 8080).into()))
            .collect();
        let (name, node_port) = ("".into(), None);
        let port = ServicePort {
            port: 80,
            protocol: Protocol::Tcp,
            name,
            node_port,
            backends,
        };
        Arc::new(ContivService {
            cluster_ips: [IpAddr::from([10, 96, 0, 1])].into(),
            ports: vec![port],
            ..ContivService::new(ServiceId::new("default", "web"))
        })
    };
    let changed = |old: &[u8], new: &[u8]| {
        let change = ServiceChange {
            old: Some(service(old)),
            new: Some(service(new)),
        };
        Request::Changed([(ServiceId::new("default", "web"), change)].into())
    };
    let flow = |last: u8, is_in_use| Flow {
        protocol: Protocol::Tcp,
        destination: ([10, 96, 0, 1], 80).into(),
        backend: ([10, 0, 0, last], 8080).into(),
        is_in_use,
        identity: Identity {
            tuple: &[],
            id: &[],
        },
    };
    let (now, of) = (Instant::now(), (Family::V4, Protocol::Tcp));
    let mut state = State::default();
    state.handle_request(changed(&[1, 2], &[2]));
    assert_eq!(state.begin_search(false), [(of, Scope::Unanswered)].into());
    state.end_search(false);
    assert!(state.needs_survey(now, None) && state.wake_up(now, None) == Some(now));

    assert_eq!(state.begin_search(true), [(of, Scope::All)].into());
    assert!(state.is_stale(&flow(1, false)) && !state.is_stale(&flow(1, true)));
    assert!(!state.is_stale(&flow(2, true)));
    let found = mem::take(&mut state.found);
    state.drained.replace(Family::V4, Protocol::Tcp, found);
    assert!(state.drained.contains(&flow(1, true)) && !state.drained.contains(&flow(2, true)));
    let survey = Some((now, Duration::from_millis(10)));
    assert!(!state.needs_survey(now, survey) && state.needs_survey(now + DRAINED_INTERVAL, survey));
    let long = Some((now, Duration::from_secs(1)));
    assert!(
        !state.needs_survey(now + DRAINED_INTERVAL, long),
        "surveys that take long are rare"
    );
    assert!(state.needs_survey(now + Duration::from_secs(100), long));
    assert_eq!(state.wake_up(now, survey), Some(now + ATTEMPTS_INTERVAL));

    // A survey for other reasons finds that its connections go on.
    assert_eq!(state.begin_search(true), [(of, Scope::All)].into());
    assert!(!state.is_stale(&flow(1, true)) && state.found.contains(&flow(1, true)));

    state.handle_request(changed(&[2], &[1, 2]));
    assert!(state.drained.is_empty() && state.found.is_empty());
    assert_eq!(
        state.wake_up(now, survey),
        None,
        "nothing to do until the next request"
    );
}

#[test]
fn node_ports_are_searched_on_current_addresses_of_node() {
    let (queue, requests) = sync_channel(8);
    let port = ServicePort {
        port: 80,
        protocol: Protocol::Udp,
        name: "".into(),
        node_port: Some(30080),
        backends: vec![Backend::new(([10, 0, 0, 1], 8080).into())],
    };
    let id = ServiceId::new("default", "web");
    let service = ContivService {
        ports: vec![port],
        ..ContivService::new(id.clone())
    };
    let services = BTreeMap::from([(id, Arc::new(service))]);
    let reconciled = |node_ips: &[[u8; 4]]| Request::Reconciled {
        before: BTreeMap::new(),
        services: services.clone(),
        node_ips: node_ips.iter().copied().map(IpAddr::from).collect(),
        found: Vec::new(),
    };
    let mut state = State::default();
    let [first, second] = [[192, 0, 2, 1], [192, 0, 2, 2]];
    // One address, another one, both, none.
    for node_ips in [&[first][..], &[second], &[first, second], &[]] {
        queue.send(reconciled(node_ips)).unwrap();
        state.handle_pending_requests(&requests);
        for address in [first, second] {
            let flow = Flow {
                protocol: Protocol::Udp,
                destination: (address, 30080).into(),
                // It was never translated.
                backend: (address, 30080).into(),
                is_in_use: false,
                identity: Identity {
                    tuple: &[],
                    id: &[],
                },
            };
            let is_stale = state.next.judge(&flow, &state.node_ips) == FlowVerdict::Stale;
            assert_eq!(
                is_stale,
                node_ips.contains(&address),
                "{address:?} of {node_ips:?}"
            );
        }
    }
}
