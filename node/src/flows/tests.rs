use contiv_model::{Backend, NodeFacts, ServicePort};
use contiv_renderer::packet_path::KnownFlow;

use super::*;

const AT: Timestamp = Timestamp::UNIX_EPOCH;

fn end(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// The services `web` with a node port and a backend, and `empty` without any, on a node with the address 10.0.0.1.
fn index() -> FrontendIndex {
    let service = |name: &str, last: u8, node_port, backends: Vec<Backend>| {
        let port = ServicePort {
            port: 80,
            protocol: Protocol::Tcp,
            name: "".into(),
            node_port,
            backends,
        };
        let service = ContivService {
            cluster_ips: [[10, 96, 0, last].into()].into(),
            ports: vec![port],
            ..ContivService::new(ServiceId::new("shop", name))
        };
        (service.id.clone(), Arc::new(service))
    };
    let backend = Backend::new(end("10.244.1.7:8080"));
    FrontendIndex::new(Snapshot {
        services: [
            service("web", 1, Some(30080), vec![backend]),
            service("empty", 2, None, Vec::new()),
        ]
        .into(),
        node: NodeFacts {
            node_ips: [[10, 0, 0, 1].into()].into(),
            ..NodeFacts::default()
        },
        ..Snapshot::default()
    })
}

fn event(kind: FlowEventKind, id: u32, destination: &str, state: TcpState) -> FlowEvent {
    FlowEvent {
        kind,
        id,
        flow: KnownFlow {
            protocol: Protocol::Tcp,
            client: end("10.0.0.9:4000"),
            destination: end(destination),
            server: end("10.244.1.7:8080"),
            seen_source: end("10.0.0.9:4000"),
            is_answered: !matches!(state, TcpState::SynSent | TcpState::Close),
            is_assured: false,
            is_destination_translated: true,
            is_source_translated: false,
            tcp_state: Some(state),
            seconds_left: None,
            mark: 0,
            zone: 0,
        },
        traffic: None,
    }
}

#[test]
fn connection_is_assigned_to_the_service_of_its_frontend() {
    let (index, mut tracker) = (index(), FlowTracker::default());
    let mut told = |destination: &str| {
        let listed = event(FlowEventKind::Listed, 1, destination, TcpState::Established);
        let flow = tracker.on_event(&listed, &index, AT)?;
        Some((flow.service.to_string(), flow.frontend.to_string()))
    };
    let web = |frontend: &str| Some(("shop/web".to_owned(), frontend.to_owned()));
    assert_eq!(told("10.96.0.1:80"), web("10.96.0.1:80/tcp"));
    assert_eq!(told("10.0.0.1:30080"), web("node port 30080/tcp"));
    for other in ["10.96.0.1:81", "10.0.0.2:30080", "10.244.1.7:8080"] {
        assert_eq!(told(other), None, "{other}");
    }
    let mut other_zone = event(
        FlowEventKind::Listed,
        1,
        "10.96.0.1:80",
        TcpState::Established,
    );
    other_zone.flow.zone = 3;
    assert_eq!(tracker.on_event(&other_zone, &index, AT), None);
}

#[test]
fn connection_is_told_once_when_it_begins_and_once_when_it_ends() {
    let (index, mut tracker) = (index(), FlowTracker::default());
    let later = AT + Duration::from_secs(3);
    let mut told = |kind, state, traffic| {
        let event = FlowEvent {
            traffic,
            ..event(kind, 7, "10.96.0.1:80", state)
        };
        let flow = tracker.on_event(&event, &index, later)?;
        Some((flow.event, flow.verdict, flow.started))
    };
    let (served, started) = (FlowVerdict::Served, Some(later));
    let new = told(FlowEventKind::New, TcpState::SynSent, None);
    assert_eq!(new, Some((FlowNews::New, served, started)));
    assert_eq!(
        told(FlowEventKind::Changed, TcpState::Established, None),
        None
    );
    let closed = told(FlowEventKind::Changed, TcpState::TimeWait, None);
    assert_eq!(closed, Some((FlowNews::Closed, served, started)));
    assert_eq!(told(FlowEventKind::Changed, TcpState::Close, None), None);
    assert_eq!(told(FlowEventKind::Ended, TcpState::TimeWait, None), None);
    // What it has carried is known only at its end.
    told(FlowEventKind::New, TcpState::SynSent, None);
    told(FlowEventKind::Changed, TcpState::TimeWait, None);
    let traffic = Traffic {
        packets_sent: 1,
        bytes_sent: 60,
        packets_received: 2,
        bytes_received: 120,
    };
    let ended = told(FlowEventKind::Ended, TcpState::TimeWait, Some(traffic));
    assert_eq!(ended, Some((FlowNews::Ended, served, started)));
    // Its beginning was not seen.
    let ended = told(FlowEventKind::Ended, TcpState::TimeWait, None);
    assert_eq!(ended, Some((FlowNews::Ended, served, None)));
}

#[test]
fn connection_without_an_answer_is_unanswered_or_reset() {
    let (index, mut tracker) = (index(), FlowTracker::default());
    for (state, verdict, reason) in [
        (TcpState::SynSent, FlowVerdict::Unanswered, None),
        (
            TcpState::Close,
            FlowVerdict::Refused,
            Some(FlowReason::BackendReset),
        ),
        (TcpState::LastAck, FlowVerdict::Served, None),
    ] {
        let event = event(FlowEventKind::Ended, 7, "10.96.0.1:80", state);
        let flow = tracker.on_event(&event, &index, AT).unwrap();
        assert_eq!((flow.verdict, flow.reason), (verdict, reason), "{state:?}");
    }
}

#[test]
fn refused_attempts_are_told_once_with_their_reason() {
    let (index, mut tracker) = (index(), RefusedTracker::default());
    let attempt = |port: u16, destination: &str| RefusedAttempt {
        client: SocketAddr::new([10, 0, 0, 9].into(), port),
        destination: end(destination),
        protocol: Protocol::Tcp,
    };
    let mut told = |attempts: &[RefusedAttempt]| {
        let flows = tracker.on_list(attempts.to_vec(), &index, AT);
        let of = |flow: &ServiceFlow| {
            (
                flow.service.name.to_string(),
                flow.client.port(),
                flow.reason,
            )
        };
        flows.iter().map(of).collect::<Vec<_>>()
    };
    let first = attempt(1, "10.96.0.2:80");
    let empty = [("empty".to_owned(), 1, Some(FlowReason::NoEndpoints))];
    assert_eq!(told(&[first, attempt(1, "10.96.0.9:80")]), empty);
    // It has a backend by now.
    let web = ("web".to_owned(), 2, None);
    assert_eq!(told(&[first, attempt(2, "10.96.0.1:80")]), [web]);
    assert_eq!(told(&[]), []);
    assert_eq!(told(&[first]), empty, "another attempt from the same port");
}

#[test]
fn filter_compares_service_client_and_verdict() {
    let (index, mut tracker) = (index(), FlowTracker::default());
    let event = event(FlowEventKind::Listed, 7, "10.96.0.1:80", TcpState::SynSent);
    let flow = tracker.on_event(&event, &index, AT).unwrap();
    let all = FlowFilter::default();
    let of = |namespace: &str, service: &str, client: &str, verdict| FlowFilter {
        namespace: Some(namespace.into()),
        service: Some(service.into()),
        clients: vec!["fd00::/8".parse().unwrap(), client.parse().unwrap()],
        verdict: Some(verdict),
    };
    assert!(all.matches(&flow));
    let unanswered = FlowVerdict::Unanswered;
    assert!(of("shop", "web", "10.0.0.0/24", unanswered).matches(&flow));
    for other in [
        of("bank", "web", "10.0.0.9", unanswered),
        of("shop", "api", "10.0.0.9", unanswered),
        of("shop", "web", "10.0.0.8", unanswered),
        of("shop", "web", "10.0.0.9", FlowVerdict::Served),
    ] {
        assert!(!other.matches(&flow), "{other:?}");
    }
}

#[test]
fn list_beyond_its_limit_is_a_sample_of_whole_connections() {
    let (index, mut tracker) = (index(), FlowTracker::default());
    let mut list = FlowList::with_limit(10);
    for id in 0..100 {
        let event = event(
            FlowEventKind::Listed,
            id,
            "10.96.0.1:80",
            TcpState::Established,
        );
        list.add(tracker.on_event(&event, &index, AT).unwrap());
    }
    let (flows, rate) = list.finish();
    assert_eq!(rate.one_in(), 16);
    let ids: Vec<u32> = flows.iter().filter_map(|flow| flow.id).collect();
    assert_eq!(ids, [0, 16, 32, 48, 64, 80, 96]);
}

#[test]
fn many_refused_attempts_leave_room_for_connections() {
    let (index, mut tracker) = (index(), FlowTracker::default());
    let mut list = FlowList::with_limit(100);
    for id in 0..1_000 {
        let event = event(
            FlowEventKind::Listed,
            id,
            "10.96.0.1:80",
            TcpState::Established,
        );
        list.add(tracker.on_event(&event, &index, AT).unwrap());
    }
    let attempt = |port| RefusedAttempt {
        client: SocketAddr::new([10, 0, 0, 9].into(), port),
        destination: end("10.96.0.2:80"),
        protocol: Protocol::Tcp,
    };
    let attempts = (0..1_000).map(attempt).collect();
    for flow in RefusedTracker::default().on_list(attempts, &index, AT) {
        list.add(flow);
    }
    let (flows, rate) = list.finish();
    assert_eq!(rate.one_in(), 32);
    let refused = flows.iter().filter(|flow| flow.id.is_none()).count();
    assert_eq!(flows.len() - refused, 32);
    assert!((10..60).contains(&refused), "{refused}");
}

#[test]
fn budget_follows_the_number_of_new_connections() {
    let second = Duration::from_secs(1);
    let mut budget = EventBudget::default();
    let mut after = |new, has_lost| {
        budget = budget.after(new, second, has_lost);
        (budget.rate.one_in(), budget.has_changes)
    };
    assert_eq!(after(MAX_NEW_WITH_CHANGES, false), (1, true));
    assert_eq!(after(MAX_NEW_WITH_CHANGES + 1, false), (1, false));
    assert_eq!(
        after(MAX_NEW_WITH_CHANGES / 2, false),
        (1, false),
        "near the limit"
    );
    assert_eq!(after(MAX_NEW_PER_SECOND, false), (1, false));
    assert_eq!(after(MAX_NEW_PER_SECOND * 3, false), (4, false));
    assert_eq!(after(MAX_NEW_PER_SECOND / 2, false), (4, false));
    assert_eq!(after(MAX_NEW_PER_SECOND / 8, false), (2, false));
    assert_eq!(after(10, true), (4, false), "events were lost");
    assert_eq!(after(10, false), (2, true));
    assert_eq!(after(10, false), (1, true));
    assert_eq!(after(10, true), (1, false), "changes are left out first");
}

#[test]
fn sampled_connections_are_forgotten() {
    let (index, mut tracker) = (index(), FlowTracker::default());
    for id in [7, 8] {
        let event = event(FlowEventKind::New, id, "10.96.0.1:80", TcpState::SynSent);
        tracker.on_event(&event, &index, AT);
    }
    tracker.sample(SampleRate::ALL.halved());
    assert_eq!(tracker.begun.keys().copied().collect::<Vec<_>>(), [8]);
    tracker.forget();
    assert!(tracker.begun.is_empty());
}
