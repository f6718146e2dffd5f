//! Whether a backend answers this node, tried with a real connection.

use std::{
    io::ErrorKind,
    net::{SocketAddr, TcpStream},
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

/// Connects to a backend by TCP, and closes the connection at once. Waits for at most [`PROBE_TIMEOUT`].
pub fn probe(backend: SocketAddr) -> ProbeResult {
    match TcpStream::connect_timeout(&backend, PROBE_TIMEOUT) {
        Ok(_) => ProbeResult::Answered,
        Err(error) => match error.kind() {
            ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => ProbeResult::Refused,
            ErrorKind::TimedOut | ErrorKind::WouldBlock => ProbeResult::Silent,
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
                ProbeResult::Unreachable(error.to_string())
            }
            _ => ProbeResult::Failed(error.to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[test]
    fn probe_tells_a_listener_from_a_closed_port() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(probe(address), ProbeResult::Answered);
        drop(listener);
        assert_eq!(probe(address), ProbeResult::Refused);
    }
}
