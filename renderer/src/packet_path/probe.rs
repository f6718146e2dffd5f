//! Whether a backend answers this node, tried with a real connection.

use std::{
    io::{self, ErrorKind},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket},
    time::Duration,
};

use serde::Serialize;

/// How long a backend may take to answer a probe.
/// A machine on the way reports after three seconds that a backend is not there.
pub const PROBE_TIMEOUT: Duration = Duration::from_millis(3500);

/// How a backend answers a connection of this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeResult {
    /// It accepts.
    Answered,
    /// It refuses, by a reset or by "port unreachable" of ICMP.
    Refused,
    /// Somebody on the way, or this node, reports that it cannot be reached: the text of the error.
    Unreachable(String),
    /// Nothing came back in time.
    Silent,
    /// The connection could not be tried: the text of the error.
    Failed(String),
}

/// Sends an empty datagram to a backend. Nothing has to come back, so only errors say something; none if there was none in time.
pub fn probe_datagram(backend: SocketAddr) -> Option<ProbeResult> {
    let unspecified: IpAddr = if backend.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let exchange = || {
        let socket = UdpSocket::bind((unspecified, 0))?;
        socket.set_read_timeout(Some(PROBE_TIMEOUT))?;
        socket.connect(backend)?;
        socket.send(&[])?;
        socket.recv(&mut [0; 1])
    };
    match exchange() {
        Ok(_) => Some(ProbeResult::Answered),
        Err(error) if is_timeout(&error) => None,
        Err(error) => Some(of_error(&error)),
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock)
}

fn of_error(error: &io::Error) -> ProbeResult {
    match error.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => ProbeResult::Refused,
        ErrorKind::TimedOut | ErrorKind::WouldBlock => ProbeResult::Silent,
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
            ProbeResult::Unreachable(error.to_string())
        }
        _ => ProbeResult::Failed(error.to_string()),
    }
}

/// Connects to a backend by TCP, and closes the connection at once. Waits for at most [`PROBE_TIMEOUT`].
pub fn probe(backend: SocketAddr) -> ProbeResult {
    match TcpStream::connect_timeout(&backend, PROBE_TIMEOUT) {
        Ok(_) => ProbeResult::Answered,
        Err(error) => of_error(&error),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn probe_tells_a_listener_from_a_closed_port() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(probe(address), ProbeResult::Answered);
        drop(listener);
        assert_eq!(probe(address), ProbeResult::Refused);
    }

    #[test]
    fn closed_port_of_datagrams_refuses() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = socket.local_addr().unwrap();
        drop(socket);
        assert_eq!(probe_datagram(address), Some(ProbeResult::Refused));
    }
}
