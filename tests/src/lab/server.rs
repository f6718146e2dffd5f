//! Servers that answer with their name and the client's address.

use std::{
    io::{BufRead, BufReader, ErrorKind, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::fd::{AsFd, BorrowedFd},
    os::unix::net::UnixStream,
    thread::{self, JoinHandle},
    time::Duration,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};

use super::{Family, LabError, Namespace, Protocol, Result, sctp};

/// How long a server of SCTP reads on after a packet that is no INIT for it.
const INIT_TIMEOUT: Duration = Duration::from_millis(20);

/// A server on one address. It answers each line (TCP), datagram (UDP) or INIT (SCTP) with `<its name> <source address it
/// sees>`; SCTP has that in the cookie.
///
/// Dropping it closes its socket and all its connections.
#[derive(Debug)]
pub struct Server {
    /// The thread ends when this is closed.
    open: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server with this name in a namespace.
    pub fn start(
        namespace: &Namespace,
        name: &str,
        protocol: Protocol,
        address: SocketAddr,
    ) -> Result<Self> {
        let failed = |error| {
            LabError::system(
                format!(
                    "listen on {address} ({protocol:?}) in {}",
                    namespace.host.name
                ),
                error,
            )
        };
        let (open, stop) = UnixStream::pair().map_err(failed)?;
        let name = name.to_owned();
        let thread = match protocol {
            Protocol::Tcp => {
                let listener = namespace.run(|| TcpListener::bind(address).map_err(failed))?;
                listener.set_nonblocking(true).map_err(failed)?;
                thread::spawn(move || serve_tcp(&listener, &name, &stop))
            }
            Protocol::Udp => {
                let socket = namespace.run(|| UdpSocket::bind(address).map_err(failed))?;
                thread::spawn(move || serve_udp(&socket, &name, &stop))
            }
            Protocol::Sctp => {
                let listener = namespace.run(|| sctp::Listener::bind(address).map_err(failed))?;
                thread::spawn(move || serve_sctp(&listener, &name, &stop))
            }
        };
        Ok(Self {
            open: Some(open),
            thread: Some(thread),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.open.take());
        // A server thread that panicked has nothing left to stop.
        self.thread.take().map(JoinHandle::join);
    }
}

/// The servers of one host, named after it: for all protocols, on its addresses of both families, on one port.
#[derive(Debug)]
pub struct Responder {
    _servers: Vec<Server>,
}

impl Responder {
    /// Starts one on each host.
    pub fn start_all<'a>(
        namespaces: impl IntoIterator<Item = &'a Namespace>,
        port: u16,
    ) -> Result<Vec<Self>> {
        namespaces
            .into_iter()
            .map(|namespace| Self::start(namespace, port))
            .collect()
    }

    /// Starts all six servers of one host.
    pub fn start(namespace: &Namespace, port: u16) -> Result<Self> {
        let host = namespace.host;
        let start = |protocol, family| {
            Server::start(namespace, host.name, protocol, host.socket(family, port))
        };
        let servers = Protocol::ALL
            .into_iter()
            .flat_map(|protocol| Family::BOTH.map(|family| start(protocol, family)))
            .collect::<Result<_>>()?;
        Ok(Self { _servers: servers })
    }
}

fn serve_tcp(listener: &TcpListener, name: &str, stop: &UnixStream) {
    thread::scope(|connections| {
        while is_readable_before_stop(listener.as_fd(), stop) {
            // A client that gave up in the meantime is no reason to stop.
            if let Ok((stream, peer)) = listener.accept() {
                connections.spawn(move || answer_lines(&stream, peer, name, stop));
            }
        }
    });
}

fn answer_lines(stream: &TcpStream, peer: SocketAddr, name: &str, stop: &UnixStream) {
    let mut lines = BufReader::new(stream);
    while !lines.buffer().is_empty() || is_readable_before_stop(stream.as_fd(), stop) {
        let mut line = String::new();
        match lines.read_line(&mut line) {
            Ok(1..) if writeln!(&*stream, "{name} {peer}").is_ok() => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // The client has closed the connection.
            _ => return,
        }
    }
}

fn serve_udp(socket: &UdpSocket, name: &str, stop: &UnixStream) {
    let mut buffer = [0; 64];
    while is_readable_before_stop(socket.as_fd(), stop) {
        if let Ok((_, peer)) = socket.recv_from(&mut buffer) {
            // A lost answer is detected by the client.
            let _ = socket.send_to(format!("{name} {peer}\n").as_bytes(), peer);
        }
    }
}

fn serve_sctp(listener: &sctp::Listener, name: &str, stop: &UnixStream) {
    while is_readable_before_stop(listener.socket().as_fd(), stop) {
        // Packets other than an INIT for this port get no answer.
        let _ = listener.answer_one(INIT_TIMEOUT, |peer| format!("{name} {peer}\n"));
    }
}

/// Waits for something to read or accept; false if the server must stop.
fn is_readable_before_stop(socket: BorrowedFd<'_>, stop: &UnixStream) -> bool {
    loop {
        let mut sources = [
            PollFd::new(stop.as_fd(), PollFlags::POLLIN),
            PollFd::new(socket, PollFlags::POLLIN),
        ];
        match poll(&mut sources, PollTimeout::NONE) {
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(_) => return false,
        }
        let [stopped, readable] = sources.map(|source| source.any().unwrap_or(true));
        if stopped || readable {
            return !stopped;
        }
    }
}
