//! Affinity entries in the kernel while an unresponsive backend is removed, and over a restart.

use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use contiv_model::{Backend, ContivService, Protocol};
use contiv_renderer::nftables::COMPARE_LIMIT;
use contiv_tests::lab::{
    Family, LabError, Namespace, Protocol as LabProtocol, Result, isolated, wait_until,
};
use socket2::{Domain, Socket, Type};

use crate::gateway::{EVENT_TIMEOUT, Gateway, PORT, address, service};

const DATAGRAM_SOCKETS: usize = 20;
const DATAGRAM_PAUSE: Duration = Duration::from_millis(2);
const DATAGRAM_CHANGES: usize = 24;
/// Enough that some of them repeat their SYN within any 50 ms, the time that a search for such flows waits.
const CONNECTIONS: usize = 200;
const CONNECTION_PAUSE: Duration = Duration::from_millis(5);
const CONNECTION_CHANGES: usize = 2;
/// The first address of the backends: with this many a table is not compared element by element. Each has two elements.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 0);

/// Three hours, the default of Kubernetes.
fn sticky(protocol: Protocol, backends: &[&Namespace]) -> ContivService {
    ContivService {
        session_affinity_timeout: 10_800,
        ..service("dns", 1, protocol, backends)
    }
}

/// Makes a pod receive the client's packets without answering.
fn silence(pod: &Namespace, client: &Namespace) -> Result<()> {
    for family in Family::BOTH {
        pod.exec(&[
            "ip",
            "route",
            "add",
            "blackhole",
            &client.host.address(family).to_string(),
        ])?;
    }
    Ok(())
}

/// Replaces the only backend of the service repeatedly while its client sends, and waits after each change until all flows of
/// both families go to the new one.
fn every_change_moves_all_flows(
    gateway: &mut Gateway<'_>,
    protocol: Protocol,
    changes: usize,
    flows: usize,
) -> Result<()> {
    let lab = gateway.lab;
    let name = protocol.to_string();
    let mut stuck = Vec::new();
    for change in 0..changes {
        let backend = [&lab.pod3, &lab.pod2][change % 2];
        gateway.program(&[&sticky(protocol, &[backend])])?;
        let ends = Family::BOTH.map(|family| backend.host.socket(family, PORT));
        let mut moved = 0;
        let all_moved = wait_until("all flows go to the new backend", EVENT_TIMEOUT, || {
            moved = gateway.flows(&name).map_or(0, |all| {
                all.values()
                    .filter(|flow| ends.contains(&flow.backend))
                    .count()
            });
            moved == flows
        });
        if all_moved.is_err() {
            stuck.push(format!("change {change}: {} of {flows}", flows - moved));
        }
        if stuck.len() > 2 {
            break;
        }
    }
    if stuck.is_empty() {
        return Ok(());
    }
    // Not a panic, which would wait for the sending thread.
    Err(LabError::Unexpected(format!(
        "flows that stay with a backend that is gone: {stuck:?}"
    )))
}

#[test]
fn datagrams_to_silent_backend_that_is_removed_go_elsewhere() -> Result<()> {
    isolated(
        "conntrack::affinity::datagrams_to_silent_backend_that_is_removed_go_elsewhere",
        |lab| {
            let mut gateway = Gateway::start(lab)?;
            gateway.program(&[&sticky(Protocol::Udp, &[&lab.pod2])])?;
            silence(&lab.pod2, &lab.pod1)?;
            silence(&lab.pod3, &lab.pod1)?;
            let sockets = lab.pod1.run(|| {
                let one = |family: Family| {
                    let any = lab.pod1.host.socket(family, 0);
                    let socket = UdpSocket::bind(any)?;
                    socket.connect(address(1, family))?;
                    Ok(socket)
                };
                let all = Family::BOTH
                    .into_iter()
                    .flat_map(|family| (0..DATAGRAM_SOCKETS).map(move |_| one(family)));
                let all: std::io::Result<Vec<UdpSocket>> = all.collect();
                all.map_err(|error| LabError::system("open UDP sockets", error))
            })?;
            let is_over = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        for socket in &sockets {
                            // Whether it arrives shows in the flows.
                            let _ = socket.send(b"who?\n");
                        }
                        thread::sleep(DATAGRAM_PAUSE);
                    }
                });
                let result = every_change_moves_all_flows(
                    &mut gateway,
                    Protocol::Udp,
                    DATAGRAM_CHANGES,
                    sockets.len(),
                );
                is_over.store(true, Ordering::Relaxed);
                result
            })
        },
    )
}

/// Begins a connection without waiting for it.
fn begin(to: SocketAddr) -> std::io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    // It is in progress until it is answered.
    let _ = socket.connect(&to.into());
    Ok(socket)
}

#[test]
fn connection_attempts_at_a_removed_silent_backend_go_elsewhere() -> Result<()> {
    isolated(
        "conntrack::affinity::connection_attempts_at_a_removed_silent_backend_go_elsewhere",
        |lab| {
            let mut gateway = Gateway::start(lab)?;
            gateway.program(&[&sticky(Protocol::Tcp, &[&lab.pod2])])?;
            silence(&lab.pod2, &lab.pod1)?;
            silence(&lab.pod3, &lab.pod1)?;
            let sockets = lab.pod1.run(|| {
                let families = Family::BOTH.into_iter().cycle().take(CONNECTIONS);
                let one = |family| {
                    thread::sleep(CONNECTION_PAUSE);
                    begin(address(1, family))
                };
                let all: std::io::Result<Vec<Socket>> = families.map(one).collect();
                all.map_err(|error| LabError::system("begin connections", error))
            })?;
            every_change_moves_all_flows(
                &mut gateway,
                Protocol::Tcp,
                CONNECTION_CHANGES,
                sockets.len(),
            )
        },
    )
}

/// The backends in the affinity entries.
fn remembered(gateway: &Gateway<'_>) -> Result<Vec<String>> {
    let listed = gateway
        .lab
        .node
        .exec(&["nft", "list", "map", "inet", "contiv", "affinity4"])?;
    let after_expires = listed
        .split(" expires ")
        .skip(1)
        .filter_map(|rest| rest.split(" : ").nth(1));
    let backend = |text: &str| {
        text.split_whitespace()
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    Ok(after_expires.map(backend).collect())
}

#[test]
fn table_too_large_to_compare_keeps_its_clients_over_restart() -> Result<()> {
    isolated(
        "conntrack::affinity::table_too_large_to_compare_keeps_its_clients_over_restart",
        |lab| {
            let mut gateway = Gateway::start(lab)?;
            let sticky = |backends: &[&Namespace]| sticky(Protocol::Udp, backends);
            let mut large = service("large", 2, Protocol::Tcp, &[]);
            large.cluster_ips = [address(2, Family::V4).ip()].into();
            let elsewhere = |number| {
                SocketAddr::new(
                    Ipv4Addr::from_bits(ELSEWHERE.to_bits() + number).into(),
                    PORT,
                )
            };
            large.ports[0].backends = (0..)
                .map(elsewhere)
                .map(Backend::new)
                .take(COMPARE_LIMIT / 2)
                .collect();
            let both = sticky(&[&lab.pod2, &lab.pod3]);
            gateway.restart(&[&both, &large])?;
            let mut session = lab.pod1.open(LabProtocol::Udp, address(1, Family::V4))?;
            let by = session.ask()?.by;
            let before = remembered(&gateway)?;
            assert_eq!(before.len(), 1, "{before:?}");
            gateway.restart(&[&both, &large])?;
            assert_eq!(remembered(&gateway)?, before);

            let left = if by == lab.pod2.host.name {
                &lab.pod3
            } else {
                &lab.pod2
            };
            gateway.restart(&[&sticky(&[left]), &large])?;
            assert_eq!(
                remembered(&gateway)?,
                Vec::<String>::new(),
                "who is remembered for a backend that is gone"
            );
            Ok(())
        },
    )
}
