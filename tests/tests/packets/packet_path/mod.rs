//! Packets are followed through the rules of other programs as the kernel does it: the predicted end is compared with that of real
//! connections, for many rules of nft and of iptables.

mod cases;
mod facts;
mod iptables;
mod nft;
mod own_table;
mod programs;

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use contiv_model::{InterfaceName, Protocol as ModelProtocol};
use contiv_renderer::packet_path::{
    KernelNetwork, OwnVerdict, Packet, PathInspector, Route, StopKind, Walk, WalkEnd,
};
use contiv_tests::{
    cluster::TARGET_PORT,
    lab::{self, Family, Lab, LabError, Protocol, Responder, Result, Server, ranges},
};

use self::cases::{Case, Outcome, Rules};

/// A port of a client; no rule depends on it.
const CLIENT_PORT: u16 = 40_000;
/// How long a connection is awaited that should be lost.
const LOSS_TIMEOUT: Duration = Duration::from_millis(300);
/// How long others are awaited.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

fn unexpected(error: impl std::fmt::Display) -> LabError {
    LabError::Unexpected(error.to_string())
}

/// Loads the rules of each case, and compares what becomes of a connection with what is said of it.
fn check(lab: &Lab, cases: &[Case], families: &[Family], protocols: &[Protocol]) -> Result<()> {
    let hosts = [&lab.pod1, &lab.pod3, &lab.pod4, &lab.node];
    let _responders = Responder::start_all(hosts, TARGET_PORT)?;
    let _servers = start_servers_of_redirects(lab)?;
    let mut wrong = Vec::new();
    for case in cases {
        for family in families {
            for protocol in protocols {
                if let Err(difference) = check_one(lab, case, *family, *protocol) {
                    wrong.push(format!("{case:?}, {family:?}, {protocol:?}: {difference}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    Ok(())
}

/// Connections that the node redirects to itself arrive at its address on the interface, or at that of the loopback.
fn start_servers_of_redirects(lab: &Lab) -> Result<Vec<Server>> {
    let addresses = Family::BOTH.into_iter().flat_map(|family| {
        let gateway = ranges::PODS.address(family, 1);
        let loopback = match family {
            Family::V4 => "127.0.0.1",
            Family::V6 => "::1",
        };
        [Some(gateway), loopback.parse().ok()]
    });
    let addresses: Vec<IpAddr> = addresses.flatten().collect();
    let servers = addresses.into_iter().flat_map(|address| {
        [Protocol::Tcp, Protocol::Udp].map(|protocol| {
            let address = SocketAddr::new(address, TARGET_PORT);
            Server::start(&lab.node, "node", protocol, address)
        })
    });
    servers.collect()
}

fn check_one(lab: &Lab, case: &Case, family: Family, protocol: Protocol) -> Result<()> {
    load(lab, case, family, protocol)?;
    let server = SocketAddr::new(case.flow.server(lab, family), TARGET_PORT);
    compare(lab, case, server, protocol, OwnVerdict::Untouched)
}

/// Compares what becomes of a connection with what is said of it.
fn compare(
    lab: &Lab,
    case: &Case,
    server: SocketAddr,
    protocol: Protocol,
    own: OwnVerdict,
) -> Result<()> {
    let (first, answer) = walks(lab, case, server, protocol, own)?;
    let packet = packet(lab, case, server, protocol);
    let client = case.flow.client(lab);
    let predicted = predict(lab, &packet, &first, answer.as_ref());
    let limit = if *case.outcome == Outcome::Lost {
        LOSS_TIMEOUT
    } else {
        ANSWER_TIMEOUT
    };
    let mut seen_source = None;
    let real = match client.ask_within(protocol, server, limit)? {
        lab::Outcome::Answered { answer, .. } => {
            seen_source = Some(answer.seen_source.ip());
            answer.by
        }
        // A machine further on says so, sooner or later.
        lab::Outcome::Unreachable if matches!(first.end, WalkEnd::Sent { .. }) => "lost".to_owned(),
        lab::Outcome::Refused { .. } | lab::Outcome::Unreachable => "refused".to_owned(),
        lab::Outcome::TimedOut => "lost".to_owned(),
    };
    let expected = match case.outcome {
        Outcome::By(name) => *name,
        Outcome::Refused => "refused",
        Outcome::Lost => "lost",
    };
    let is_harmful = |walk: &Walk| walk.doubts.iter().any(|doubt| doubt.is_harmful);
    let has_doubts = is_harmful(&first) || answer.as_ref().is_some_and(is_harmful);
    let source = match &first.end {
        WalkEnd::Sent { source, .. } | WalkEnd::Local { source, .. } => Some(source.ip()),
        _ => None,
    };
    let has_source = seen_source.is_none() || seen_source == source;
    if real == expected && predicted == expected && has_source && has_doubts == case.has_doubts {
        return Ok(());
    }
    Err(unexpected(format!(
        "expected {expected}, is {real}, predicted {predicted}, from {seen_source:?}, harmful doubts: {has_doubts}\n\
         {first:?}\n{answer:?}"
    )))
}

/// The first packet of a connection of a case.
fn packet(lab: &Lab, case: &Case, server: SocketAddr, protocol: Protocol) -> Packet {
    let family = if server.is_ipv4() {
        Family::V4
    } else {
        Family::V6
    };
    Packet {
        protocol: match protocol {
            Protocol::Tcp => ModelProtocol::Tcp,
            Protocol::Udp => ModelProtocol::Udp,
            Protocol::Sctp => ModelProtocol::Sctp,
        },
        source: case.flow.client(lab).host.socket(family, CLIENT_PORT),
        destination: server,
        input: case.flow.input().map(InterfaceName::new),
    }
}

/// What is said of the first packet, and of its answer.
fn walks(
    lab: &Lab,
    case: &Case,
    server: SocketAddr,
    protocol: Protocol,
    own: OwnVerdict,
) -> Result<(Walk, Option<Walk>)> {
    let packet = packet(lab, case, server, protocol);
    lab.node.run(|| {
        let mut inspector = PathInspector::open().map_err(unexpected)?;
        let mut network = KernelNetwork::open().map_err(unexpected)?;
        let first = inspector.walk_first(&packet, own, &mut network);
        let first = first.map_err(unexpected)?;
        let answer = inspector.walk_answer(&packet, &first, &mut network);
        Ok((first, answer.map_err(unexpected)?))
    })
}

/// Replaces the rules of the node.
fn load(lab: &Lab, case: &Case, family: Family, protocol: Protocol) -> Result<()> {
    lab.node.exec(&["nft", "flush", "ruleset"])?;
    let text = case.text(lab, family, protocol);
    match case.rules {
        Rules::Chain(..) | Rules::File(_) => {
            lab.node.exec_with_input(&["nft", "-f", "-"], &text)?;
        }
        Rules::Iptables(_) => {
            let program = match family {
                Family::V4 => "iptables-nft",
                Family::V6 => "ip6tables-nft",
            };
            for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
                let command: Vec<&str> = [program]
                    .into_iter()
                    .chain(line.split_whitespace())
                    .collect();
                lab.node.exec(&command)?;
            }
        }
    }
    Ok(())
}

/// The outcome of a connection whose packets go these ways.
fn predict(lab: &Lab, packet: &Packet, first: &Walk, answer: Option<&Walk>) -> String {
    let destination = match &first.end {
        WalkEnd::Sent { destination, .. } | WalkEnd::Local { destination, .. } => *destination,
        WalkEnd::Stopped {
            kind: StopKind::Rejects,
            ..
        }
        | WalkEnd::NotRouted(Route::Unreachable | Route::Prohibited) => {
            return "refused".to_owned();
        }
        WalkEnd::Stopped { .. } | WalkEnd::NotRouted(_) | WalkEnd::OwnTable => {
            return "lost".to_owned();
        }
    };
    let is_back = match answer.map(|answer| &answer.end) {
        Some(
            WalkEnd::Sent {
                source,
                destination,
                ..
            }
            | WalkEnd::Local {
                source,
                destination,
            },
        ) => (*source, *destination) == (packet.destination, packet.source),
        _ => false,
    };
    let of_node = matches!(first.end, WalkEnd::Local { .. }).then_some("node");
    let hosts = [&lab.pod1, &lab.pod3, &lab.pod4, &lab.node];
    let of_host = hosts.iter().find(|host| {
        Family::BOTH
            .iter()
            .any(|family| host.host.address(*family) == destination.ip())
    });
    match of_node.or(of_host.map(|host| host.host.name)) {
        Some(name) if is_back && destination.port() == TARGET_PORT => name.to_owned(),
        Some(_) if is_back => "refused".to_owned(),
        _ => "lost".to_owned(),
    }
}
