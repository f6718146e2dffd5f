//! Which error a client gets whose connection is not served: for each kind of refusal, frontend and client, by TCP and UDP, in
//! both families. `docs/proof/behaviour.md` has the table.

use std::{
    io::{self, ErrorKind},
    net::{SocketAddr, TcpStream, UdpSocket},
    time::Duration,
};

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Frontend, Manifests, Service, ServiceManifest, State},
    lab::{Family, Lab, LabError, Namespace, Result, isolated},
};

/// Long enough for any error in the lab, even on a busy machine.
const ERROR_TIMEOUT: Duration = Duration::from_secs(2);

/// What the calls of a client return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Error {
    /// `ECONNREFUSED`: of `connect` on a TCP socket, of `recv` or the next `send` on a UDP socket.
    Refused,
    /// `EPERM` of `send` on a UDP socket: the node's own filter stopped the packet before it left.
    NotPermitted,
    /// None: the client waits.
    Silence,
}

use Error::{NotPermitted, Refused, Silence};

/// A client, and the errors that it gets by TCP and by UDP.
type Cell = (&'static str, Error, Error);

/// The errors of one kind of refusal.
struct Row {
    /// As in the table.
    name: &'static str,
    to: fn(&Services, &Lab, Family) -> Vec<SocketAddr>,
    cells: [Cell; 3],
}

struct Services {
    /// Without any endpoint.
    empty: Service,
    /// Internal policy Local, and no endpoint on this node.
    internal: Service,
    /// External policy Local, and no endpoint on this node.
    external: Service,
}

const fn from(pod: [Error; 2], node: [Error; 2], outside: [Error; 2]) -> [Cell; 3] {
    [
        ("pod", pod[0], pod[1]),
        ("node", node[0], node[1]),
        ("outside", outside[0], outside[1]),
    ]
}

const fn rows() -> [Row; 7] {
    [
        Row {
            name: "no endpoints, cluster IP",
            to: |services, lab, family| {
                vec![services.empty.address(lab, Frontend::ClusterIp, family)]
            },
            cells: from([Refused; 2], [Refused, NotPermitted], [Refused; 2]),
        },
        Row {
            name: "no endpoints, external IP or load balancer",
            to: |services, lab, family| {
                let frontends = [Frontend::ExternalIp, Frontend::LoadBalancer];
                frontends
                    .map(|frontend| services.empty.address(lab, frontend, family))
                    .into()
            },
            cells: from([Refused; 2], [Refused, NotPermitted], [Refused; 2]),
        },
        Row {
            name: "no endpoints, node port",
            to: |services, lab, family| {
                vec![services.empty.address(lab, Frontend::NodePort, family)]
            },
            cells: from([Refused; 2], [Refused; 2], [Refused; 2]),
        },
        Row {
            name: "internal policy Local, none here, cluster IP",
            to: |services, lab, family| {
                vec![services.internal.address(lab, Frontend::ClusterIp, family)]
            },
            cells: from([Silence; 2], [Silence, NotPermitted], [Silence; 2]),
        },
        Row {
            name: "external policy Local, none here, any external frontend",
            to: |services, lab, family| {
                let frontends = [
                    Frontend::ExternalIp,
                    Frontend::LoadBalancer,
                    Frontend::NodePort,
                ];
                frontends
                    .map(|frontend| services.external.address(lab, frontend, family))
                    .into()
            },
            // Clients of this node are served by all endpoints, and these do not run.
            cells: from([Refused; 2], [Refused; 2], [Silence; 2]),
        },
        Row {
            name: "unknown port, cluster IP",
            to: |services, lab, family| {
                let mut address = services.empty.address(lab, Frontend::ClusterIp, family);
                address.set_port(81);
                vec![address]
            },
            cells: from([Refused; 2], [Refused, NotPermitted], [Refused; 2]),
        },
        Row {
            name: "unknown port, address of the node",
            to: |_, lab, family| vec![lab.node.host.socket(family, 30_999)],
            cells: from([Refused; 2], [Refused; 2], [Refused; 2]),
        },
    ]
}

#[test]
fn refused_client_gets_the_error_of_the_table() -> Result<()> {
    isolated(
        "errors::refused_client_gets_the_error_of_the_table",
        |lab| {
            let state = Manifests::new(lab)?;
            let there = [lab.pod3.host];
            let [empty, internal, external] = [("empty", 80), ("internal", 81), ("external", 82)]
                .map(|(name, number)| {
                    Service::new(name, number, if name == "empty" { &[] } else { &there })
                });
            state.put(&empty)?;
            state.put_manifest(&ServiceManifest {
                internal_local: true,
                ..ServiceManifest::new(internal.clone())
            })?;
            state.put_manifest(&ServiceManifest {
                external_local: true,
                ..ServiceManifest::new(external.clone())
            })?;
            let services = Services {
                empty,
                internal,
                external,
            };
            let _agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
            let mut wrong = Vec::new();
            for row in rows() {
                for family in Family::BOTH {
                    for to in (row.to)(&services, lab, family) {
                        for (client, tcp, udp) in row.cells {
                            let from = match client {
                                "pod" => &lab.pod1,
                                "node" => &lab.node,
                                _ => &lab.client,
                            };
                            let found = (by_tcp(from, to)?, by_udp(from, to)?);
                            if found != (tcp, udp) {
                                let expected = (tcp, udp);
                                wrong.push(format!(
                                    "{}, {client} to {to}: {found:?}, expected {expected:?}",
                                    row.name
                                ));
                            }
                        }
                    }
                }
            }
            assert!(wrong.is_empty(), "{wrong:#?}");
            Ok(())
        },
    )
}

fn by_tcp(from: &Namespace, to: SocketAddr) -> Result<Error> {
    from.run(|| {
        of(
            &TcpStream::connect_timeout(&to, ERROR_TIMEOUT).map(drop),
            to,
        )
    })
}

fn by_udp(from: &Namespace, to: SocketAddr) -> Result<Error> {
    let exchange = || {
        let any: SocketAddr = if to.is_ipv4() {
            ([0; 4], 0).into()
        } else {
            ([0_u16; 8], 0).into()
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(to)?;
        socket.set_read_timeout(Some(ERROR_TIMEOUT))?;
        socket.send(b"who?\n")?;
        socket.recv(&mut [0; 16]).map(drop)
    };
    from.run(|| of(&exchange(), to))
}

fn of(result: &io::Result<()>, to: SocketAddr) -> Result<Error> {
    match result.as_ref().map_err(io::Error::kind) {
        Err(ErrorKind::ConnectionRefused) => Ok(Refused),
        Err(ErrorKind::PermissionDenied) => Ok(NotPermitted),
        Err(ErrorKind::TimedOut | ErrorKind::WouldBlock) => Ok(Silence),
        _ => Err(LabError::Unexpected(format!("{to}: {result:?}"))),
    }
}
