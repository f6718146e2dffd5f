//! Clients: the outcome of a connection or a datagram, and which server answered.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, BufReader, ErrorKind, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket},
    ops::Range,
    sync::atomic::{AtomicU16, Ordering},
    time::{Duration, Instant},
};

use nix::errno::Errno;

use super::{LabError, Namespace, Protocol, Result, sctp::Association, wait::scaled};

/// Long enough for any answer in the lab, even on a busy machine.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(3);

/// The answer of a server of the lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerReply {
    /// The name of the server.
    pub by: String,
    /// The client's address as the server sees it: after all translation.
    pub seen_source: SocketAddr,
}

/// The outcome of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A server answered.
    Answered {
        /// The answer.
        answer: ServerReply,
        /// From the first packet to the answer.
        after: Duration,
    },
    /// A reset, or an ICMP "port unreachable".
    Refused {
        /// From the first packet to the refusal.
        after: Duration,
    },
    /// There is no route, or an ICMP message reports that the destination is unreachable.
    Unreachable,
    /// Nothing came back.
    TimedOut,
}

impl Outcome {
    /// The answer; anything else is an error.
    pub fn answer(self) -> Result<ServerReply> {
        match self {
            Self::Answered { answer, .. } => Ok(answer),
            other => Err(LabError::Unexpected(format!(
                "expected an answer, got {other:?}"
            ))),
        }
    }

    /// How long the refusal took; anything else is an error.
    pub fn refusal(self) -> Result<Duration> {
        match self {
            Self::Refused { after } => Ok(after),
            other => Err(LabError::Unexpected(format!(
                "expected a refusal, got {other:?}"
            ))),
        }
    }
}

/// A TCP connection, or a UDP socket with a fixed port, for repeated requests.
#[derive(Debug)]
pub enum Session {
    /// A TCP connection.
    Tcp(BufReader<TcpStream>),
    /// A connected UDP socket, so that ICMP errors are seen.
    Udp(UdpSocket),
    /// The beginning of an SCTP association.
    Sctp(Association),
}

/// The ports of UDP clients: below those of node ports, and of sockets that leave the choice to the kernel.
const CLIENT_PORTS: Range<u16> = 10_000..30_000;

/// A UDP socket at a port that no client of this process had before, until all ports were used. For conntrack a packet from the
/// port of an earlier flow belongs to that flow, so it is answered although the present rules would drop it.
fn bind_unused(address: IpAddr) -> io::Result<UdpSocket> {
    static USED: AtomicU16 = AtomicU16::new(0);
    loop {
        let used = USED.fetch_add(1, Ordering::Relaxed);
        let port = CLIENT_PORTS.start + used % (CLIENT_PORTS.end - CLIENT_PORTS.start);
        match UdpSocket::bind((address, port)) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            result => return result,
        }
    }
}

impl Session {
    /// The client's own address, before any translation.
    pub fn local_address(&self) -> Result<SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.get_ref().local_addr(),
            Self::Udp(socket) => socket.local_addr(),
            Self::Sctp(association) => Ok(association.local_address()),
        }
        .map_err(|error| LabError::system("read the local address of a session", error))
    }

    /// Sends a request. This works after a failure too, since a UDP server may come back.
    pub fn ask(&mut self) -> Result<ServerReply> {
        let line = self
            .exchange()
            .map_err(|error| LabError::system("ask within a session", error))?;
        parse(&line)
    }

    fn open(protocol: Protocol, server: SocketAddr, limit: Duration) -> io::Result<Self> {
        let limit = scaled(limit);
        match protocol {
            Protocol::Tcp => {
                let stream = TcpStream::connect_timeout(&server, limit)?;
                stream.set_read_timeout(Some(limit))?;
                Ok(Self::Tcp(BufReader::new(stream)))
            }
            Protocol::Udp => {
                let any = match server.ip() {
                    IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                    IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
                };
                let socket = bind_unused(any)?;
                socket.connect(server)?;
                socket.set_read_timeout(Some(limit))?;
                Ok(Self::Udp(socket))
            }
            Protocol::Sctp => Association::open(server, limit).map(Self::Sctp),
        }
    }

    fn exchange(&mut self) -> io::Result<String> {
        match self {
            Self::Tcp(stream) => {
                stream.get_mut().write_all(b"who?\n")?;
                let mut line = String::new();
                match stream.read_line(&mut line)? {
                    0 => Err(ErrorKind::UnexpectedEof.into()),
                    _ => Ok(line),
                }
            }
            Self::Udp(socket) => {
                match socket.send(b"who?\n") {
                    // A filter of this host stopped the packet. The next packet shows whether it was rejected or dropped.
                    Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
                    result => drop(result?),
                }
                let mut buffer = [0; 256];
                let length = socket.recv(&mut buffer)?;
                Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
            }
            Self::Sctp(association) => {
                Ok(String::from_utf8_lossy(&association.exchange()?).into_owned())
            }
        }
    }
}

impl Namespace {
    /// Opens a connection, or a UDP socket with a fixed port, from this namespace.
    pub fn open(&self, protocol: Protocol, server: SocketAddr) -> Result<Session> {
        let failed = |error| {
            LabError::system(
                format!("connect from {} to {server} ({protocol:?})", self.host.name),
                error,
            )
        };
        self.run(|| Session::open(protocol, server, TIME_LIMIT).map_err(failed))
    }

    /// Sends one request on a new connection or from a new UDP port and returns its outcome.
    pub fn ask(&self, protocol: Protocol, server: SocketAddr) -> Result<Outcome> {
        self.ask_within(protocol, server, TIME_LIMIT)
    }

    /// The same with another time limit.
    pub fn ask_within(
        &self,
        protocol: Protocol,
        server: SocketAddr,
        limit: Duration,
    ) -> Result<Outcome> {
        self.run(|| ask_from_here(protocol, server, limit))
    }

    /// Sends `count` requests, each on a new connection or from a new UDP port.
    ///
    /// # Errors
    /// When one gets anything but an answer.
    pub fn answers(
        &self,
        protocol: Protocol,
        server: SocketAddr,
        count: usize,
    ) -> Result<Vec<ServerReply>> {
        self.run(|| {
            (0..count)
                .map(|_| ask_from_here(protocol, server, TIME_LIMIT)?.answer())
                .collect()
        })
    }

    /// The same, and counts the answers of each server.
    pub fn distribution(
        &self,
        protocol: Protocol,
        server: SocketAddr,
        count: usize,
    ) -> Result<BTreeMap<String, usize>> {
        let mut counts = BTreeMap::new();
        for ServerReply { by, .. } in self.answers(protocol, server, count)? {
            *counts.entry(by).or_default() += 1;
        }
        Ok(counts)
    }
}

pub(super) fn ask_from_here(
    protocol: Protocol,
    server: SocketAddr,
    limit: Duration,
) -> Result<Outcome> {
    let start = Instant::now();
    let line = Session::open(protocol, server, limit).and_then(|mut session| session.exchange());
    let after = start.elapsed();
    match line {
        Ok(line) => Ok(Outcome::Answered {
            answer: parse(&line)?,
            after,
        }),
        Err(error) => match error.kind() {
            ErrorKind::ConnectionRefused => Ok(Outcome::Refused { after }),
            ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable => Ok(Outcome::Unreachable),
            ErrorKind::TimedOut | ErrorKind::WouldBlock => Ok(Outcome::TimedOut),
            _ if has_no_such_protocol(&error) => Ok(Outcome::Unreachable),
            _ => Err(LabError::system(
                format!("ask {server} ({protocol:?})"),
                error,
            )),
        },
    }
}

/// The ICMP error of a host that does not have the protocol, in both families.
fn has_no_such_protocol(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw);
    matches!(code, Some(Errno::ENOPROTOOPT | Errno::EPROTO))
}

fn parse(line: &str) -> Result<ServerReply> {
    line.trim_end()
        .split_once(' ')
        .and_then(|(by, source)| {
            Some(ServerReply {
                by: by.to_owned(),
                seen_source: source.parse().ok()?,
            })
        })
        .ok_or_else(|| LabError::Unexpected(format!("not an answer of a lab server: {line:?}")))
}
