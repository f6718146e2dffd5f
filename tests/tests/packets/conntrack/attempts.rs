//! New attempts on the flows of removed backends: a client that repeats from a fixed port reaches one of the present backends.

use std::{
    iter,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    thread,
    time::{Duration, Instant},
};

use contiv_model::{ContivService, Protocol};
use contiv_tests::lab::{
    Family, Lab, Namespace, Protocol as LabProtocol, Result, Session, isolated, wait_until,
};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::gateway::{EVENT_TIMEOUT, Gateway, NODE_PORT, PORT, address, service, unexpected};

/// Within this time a client has repeated its SYN after 1, 3, 7 and 15 seconds.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);

/// Drops all that a host receives, as if it were gone without a word.
const SILENCE: &str = "add table inet silence; add chain inet silence in { type filter hook prerouting priority raw; policy drop; }";
/// Drops the resets that a host sends: it loses its connections without a word.
const NO_RESETS: &str = "add table inet silence; add chain inet silence out { type filter hook output priority raw; }; \
                         add rule inet silence out tcp flags & (rst|fin) != 0 drop";

/// Drops the first two answers to a SYN that a host receives: it repeats its SYN.
const TWO_ANSWERS_LOST: &str = "add table inet silence; add chain inet silence in { type filter hook prerouting priority raw; }; \
                                add rule inet silence in tcp flags & (syn|ack) == syn|ack limit rate 1/hour burst 2 packets drop";

/// Runs `work` while this table is in a namespace.
fn with_table<T>(
    namespace: &Namespace,
    table: &str,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    namespace.exec_with_input(&["nft", "-f", "-"], table)?;
    let result = work();
    namespace.exec(&["nft", "delete table inet silence"])?;
    result
}

fn with_node_port(service: ContivService) -> ContivService {
    let mut service = service;
    for port in &mut service.ports {
        port.node_port = Some(NODE_PORT);
    }
    service
}

/// How a client reaches the service.
#[derive(Debug, Clone, Copy)]
struct ClientPath {
    family: Family,
    is_node_port: bool,
    is_from_node: bool,
}

impl ClientPath {
    /// Each kind once in each family.
    fn all() -> Vec<Self> {
        let of = |family| {
            [(false, false), (true, false), (false, true)].map(|(is_node_port, is_from_node)| {
                Self {
                    family,
                    is_node_port,
                    is_from_node,
                }
            })
        };
        Family::BOTH.into_iter().flat_map(of).collect()
    }

    fn client(self, lab: &Lab) -> &Namespace {
        if self.is_from_node {
            &lab.node
        } else {
            &lab.pod1
        }
    }

    fn server(self, lab: &Lab) -> SocketAddr {
        let Self {
            family,
            is_node_port,
            ..
        } = self;
        if is_node_port {
            SocketAddr::new(lab.node.host.address(family), NODE_PORT)
        } else {
            address(1, family)
        }
    }
}

/// Connects from this port of any address. When it is dropped, it is reset.
fn connect_from(port: u16, server: SocketAddr) -> std::io::Result<Socket> {
    let any = match server.ip() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = Socket::new(Domain::for_address(server), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_linger(Some(Duration::ZERO))?;
    socket.bind(&SockAddr::from(SocketAddr::new(any, port)))?;
    socket.connect_timeout(&SockAddr::from(server), CONNECT_LIMIT)?;
    Ok(socket)
}

#[test]
fn connect_from_a_port_of_a_drained_connection_succeeds() -> Result<()> {
    isolated(
        "conntrack::attempts::connect_from_a_port_of_a_drained_connection_succeeds",
        |lab| {
            let mut gateway = Gateway::start(lab)?;
            let with = |backend| with_node_port(service("web", 1, Protocol::Tcp, &[backend]));
            let ways = ClientPath::all();
            let mut connected = Vec::new();
            for (way, port) in ways.iter().zip(40_001..) {
                gateway.program(&[&with(&lab.pod3)])?;
                let (client, server) = (way.client(lab), way.server(lab));
                let connect = || client.run(|| Ok(connect_from(port, server).map(drop)));
                // The client loses its connection without a word, and its backend is gone.
                with_table(client, NO_RESETS, connect)?.map_err(unexpected)?;
                with_table(&lab.pod3, SILENCE, || {
                    gateway.program(&[&with(&lab.pod2)])?;
                    let start = Instant::now();
                    let outcome = connect()?;
                    println!("{way:?}: {outcome:?} after {:?}", start.elapsed());
                    connected.push(outcome.is_ok());
                    Ok(())
                })?;
            }
            let count = connected.iter().filter(|connected| **connected).count();
            assert_eq!(
                count,
                ways.len(),
                "of {} connects succeeded: {connected:?}",
                ways.len()
            );
            Ok(())
        },
    )
}

/// Adds the flow of an established association to `backend`.
fn establish(
    gateway: &Gateway<'_>,
    client: SocketAddr,
    server: SocketAddr,
    backend: SocketAddr,
) -> Result<()> {
    let flow = format!(
        "conntrack -I -p sctp --state ESTABLISHED -t 100 -u SEEN_REPLY,ASSURED --orig-vtag 1 --reply-vtag 2 -s {} -d {} \
         --sport {} --dport {} -g {backend}",
        client.ip(),
        server.ip(),
        client.port(),
        server.port()
    );
    gateway
        .lab
        .node
        .exec(&flow.split(' ').collect::<Vec<_>>())
        .map(drop)
}

/// The name of the server that answers the INITs of a client that repeats them from one port.
fn repeat_init(session: &mut Session) -> Option<String> {
    let start = Instant::now();
    iter::repeat_with(|| session.ask().ok())
        .take_while(|_| start.elapsed() < CONNECT_LIMIT)
        .flatten()
        .map(|answer| answer.by)
        .next()
}

#[test]
fn init_on_the_flow_of_a_removed_backend_starts_anew() -> Result<()> {
    isolated(
        "conntrack::attempts::init_on_the_flow_of_a_removed_backend_starts_anew",
        |lab| {
            let mut gateway = Gateway::start(lab)?;
            let with = |backend| with_node_port(service("calls", 1, Protocol::Sctp, &[backend]));
            let mut answers = Vec::new();
            let ways = ClientPath::all();
            for way in &ways {
                gateway.program(&[&with(&lab.pod3)])?;
                let mut session = way.client(lab).open(LabProtocol::Sctp, way.server(lab))?;
                let backend = SocketAddr::new(lab.pod3.host.address(way.family), PORT);
                establish(&gateway, session.local_address()?, way.server(lab), backend)?;
                with_table(&lab.pod3, SILENCE, || {
                    gateway.program(&[&with(&lab.pod2)])?;
                    let answered = repeat_init(&mut session);
                    println!("{way:?}: {answered:?}");
                    answers.push(answered.unwrap_or_default());
                    Ok(())
                })?;
            }
            assert_eq!(answers, vec!["pod2"; ways.len()], "who answered INITs");
            Ok(())
        },
    )
}

#[test]
fn association_half_open_stays_until_init_is_repeated() -> Result<()> {
    isolated(
        "conntrack::attempts::association_half_open_stays_until_init_is_repeated",
        |lab| {
            let mut gateway = Gateway::start(lab)?;
            let with = |backend| service("calls", 1, Protocol::Sctp, &[backend]);
            let has_table = || {
                lab.node
                    .exec(&["nft", "list tables"])
                    .is_ok_and(|tables| tables.contains("contiv-attempts"))
            };
            for (family, deletions) in Family::BOTH.into_iter().zip(0..) {
                lab.node.exec(&["conntrack", "-F"])?;
                gateway.program(&[&with(&lab.pod3)])?;
                wait_until("nothing is drained", EVENT_TIMEOUT, || !has_table())?;
                let mut session = lab.pod1.open(LabProtocol::Sctp, address(1, family))?;
                // An INIT and its answer: the client sends its cookie next.
                assert_eq!(session.ask()?.by, "pod3");
                let flow = gateway.flow_of(&lab.pod1, &session)?;
                assert!(flow.is_some());
                gateway.program(&[&with(&lab.pod2)])?;
                wait_until("the survey finds the flow", EVENT_TIMEOUT, has_table)?;
                assert_eq!(
                    gateway.flow_of(&lab.pod1, &session)?,
                    flow,
                    "the cookie would reach the same backend"
                );
                assert_eq!(gateway.deletions(), deletions);
                let start = Instant::now();
                loop {
                    match session.ask() {
                        Ok(answer) if answer.by == "pod2" => break,
                        // The former backend answers too, until the flow has ended.
                        Ok(_) => {}
                        // An answer that comes when the flow has ended is lost.
                        Err(error) => assert_eq!(gateway.deletions(), deletions + 1, "{error}"),
                    }
                    assert!(
                        start.elapsed() < CONNECT_LIMIT,
                        "repeated INITs still reach the former backend"
                    );
                    thread::sleep(Duration::from_millis(200));
                }
                gateway.wait_for_deletions(deletions + 1)?;
            }
            Ok(())
        },
    )
}

#[test]
fn drained_connection_goes_on_beside_new_attempts() -> Result<()> {
    isolated(
        "conntrack::attempts::drained_connection_goes_on_beside_new_attempts",
        |lab| {
            let mut gateway = Gateway::start(lab)?;
            let table = || lab.node.exec(&["nft", "list tables"]);
            let has_table = || table().is_ok_and(|tables| tables.contains("contiv-attempts"));
            gateway.program(&[&service("web", 1, Protocol::Tcp, &[&lab.pod3])])?;
            let mut drained = lab.pod1.open(LabProtocol::Tcp, address(1, Family::V4))?;
            assert_eq!(drained.ask()?.by, "pod3");
            let before = gateway.flow_of(&lab.pod1, &drained)?;
            assert!(
                !has_table(),
                "no packet is looked at without a drained connection"
            );

            gateway.program(&[&service("web", 1, Protocol::Tcp, &[&lab.pod2])])?;
            wait_until("new attempts are looked at", EVENT_TIMEOUT, has_table)?;
            for _ in 0..20 {
                assert_eq!(drained.ask()?.by, "pod3");
                assert_eq!(
                    lab.pod1
                        .ask(LabProtocol::Tcp, address(1, Family::V4))?
                        .answer()?
                        .by,
                    "pod2"
                );
                thread::sleep(Duration::from_millis(100));
            }
            assert_eq!(
                gateway.flow_of(&lab.pod1, &drained)?,
                before,
                "the same flow"
            );
            assert_eq!(gateway.deletions(), 0);
            let listed = lab.node.exec(&["nft", "list ruleset"])?;
            assert!(
                listed.contains("table inet contiv-attempts"),
                "nft cannot list it: {listed}"
            );

            // The service gets its backend back: nothing is drained any more.
            gateway.program(&[&service("web", 1, Protocol::Tcp, &[&lab.pod2, &lab.pod3])])?;
            wait_until("nothing is looked at any more", EVENT_TIMEOUT, || {
                !has_table()
            })?;
            assert_eq!(drained.ask()?.by, "pod3");
            Ok(())
        },
    )
}

#[test]
fn connection_whose_handshake_repeated_a_syn_goes_on() -> Result<()> {
    isolated(
        "conntrack::attempts::connection_whose_handshake_repeated_a_syn_goes_on",
        |lab| {
            let mut gateway = Gateway::start(lab)?;
            let web = |backend| service("web", 1, Protocol::Tcp, &[backend]);
            let other = |backend| service("other", 2, Protocol::Tcp, &[backend]);
            gateway.program(&[&web(&lab.pod2), &other(&lab.pod3)])?;
            // Another connection is drained, so first packets are recorded.
            let mut drained = lab.pod1.open(LabProtocol::Tcp, address(2, Family::V4))?;
            assert_eq!(drained.ask()?.by, "pod3");
            gateway.program(&[&web(&lab.pod2), &other(&lab.pod2)])?;
            let has_table = || {
                lab.node
                    .exec(&["nft", "list tables"])
                    .is_ok_and(|tables| tables.contains("contiv-attempts"))
            };
            wait_until("first packets are recorded", EVENT_TIMEOUT, has_table)?;

            let open = || lab.pod1.open(LabProtocol::Tcp, address(1, Family::V4));
            let mut repeated = with_table(&lab.pod1, TWO_ANSWERS_LOST, open)?;
            gateway.program(&[&web(&lab.pod3), &other(&lab.pod2)])?;
            assert_eq!(repeated.ask()?.by, "pod2");
            let before = gateway.flow_of(&lab.pod1, &repeated)?;
            // For as long as a recorded packet counts; within that time the connection is found to be drained.
            for _ in 0..50 {
                thread::sleep(Duration::from_millis(100));
                assert_eq!(repeated.ask()?.by, "pod2");
            }
            assert_eq!(
                gateway.flow_of(&lab.pod1, &repeated)?,
                before,
                "the same flow"
            );
            assert_eq!(gateway.deletions(), 0);
            Ok(())
        },
    )
}

#[test]
fn table_is_gone_when_drained_connections_have_ended() -> Result<()> {
    isolated(
        "conntrack::attempts::table_is_gone_when_drained_connections_have_ended",
        |lab| {
            let mut gateway = Gateway::start(lab)?;
            let has_table = || -> Result<bool> {
                Ok(lab
                    .node
                    .exec(&["nft", "list tables"])?
                    .contains("contiv-attempts"))
            };
            gateway.program(&[&service("web", 1, Protocol::Tcp, &[&lab.pod3])])?;
            let mut drained = lab.pod1.open(LabProtocol::Tcp, address(1, Family::V4))?;
            drained.ask()?;
            gateway.program(&[&service("web", 1, Protocol::Tcp, &[&lab.pod2])])?;
            wait_until("new attempts are looked at", EVENT_TIMEOUT, || {
                has_table().unwrap_or(false)
            })?;
            drop(drained);
            lab.node.exec(&["conntrack", "-F"])?;
            wait_until("nothing is looked at any more", EVENT_TIMEOUT, || {
                !has_table().unwrap_or(true)
            })?;
            Ok(())
        },
    )
}
