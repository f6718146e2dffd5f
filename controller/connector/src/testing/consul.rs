//! A Consul as its clients see it: `/v1/catalog/services` and `/v1/health/service/<name>` with blocking queries.
//!
//! Faithful in what matters to a client: a query with an index waits until something it asks about is newer, also when
//! that index is of the future; each service has an index of its own; catalog changes do not wake queries for the health
//! of other services. Clients that a restart cut off are gone.

mod http;
mod state;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::Path,
    sync::Arc,
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::watch;

use state::State;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Connections are closed as soon as they are there.
    Down,
    /// Every request is answered with 500.
    NoLeader,
    /// Queries for instances are answered with 500, the one for services as ever.
    NoHealth,
    /// Answers stop in their middle.
    Truncated,
    /// The header with the index is missing.
    NoIndex,
    /// Every answer comes so much later.
    Slow(Duration),
}

/// One instance of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsulInstance {
    /// Its id.
    pub id: String,
    /// The address of its own; empty for that of its node.
    pub address: String,
    /// The address of its node.
    pub node_address: String,
    /// Its port.
    pub port: u16,
    /// Its tags.
    pub tags: Vec<String>,
    /// The status of its check: `passing`, `warning` or `critical`.
    pub status: String,
}

impl ConsulInstance {
    /// An instance that passes its check. Its id is address and port.
    pub fn new(address: &str, port: u16, tags: &[&str]) -> Self {
        Self {
            id: format!("{address}-{port}"),
            address: address.to_owned(),
            node_address: "192.0.2.1".to_owned(),
            port,
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            status: "passing".to_owned(),
        }
    }
}

/// A running server. It ends when this is dropped.
#[derive(Debug)]
pub struct ConsulServer {
    address: SocketAddr,
    scheme: &'static str,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Counts what happens; queries that wait look again.
    changed: watch::Sender<u64>,
    /// Counts restarts; connections of another count end. None: the server has ended.
    life: watch::Sender<Option<u64>>,
}

impl ConsulServer {
    /// A server on a free port of loopback, without a service.
    ///
    /// # Errors
    /// When there is no port.
    pub fn start() -> io::Result<Self> {
        Self::serve(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?, None)
    }

    /// The same with TLS: files with the certificate and its key.
    ///
    /// # Errors
    /// When there is no port, or a file makes no sense.
    pub fn start_tls(certificate: &Path, key: &Path) -> io::Result<Self> {
        let acceptor = http::acceptor(certificate, key)?;
        Self::serve(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?, Some(acceptor))
    }

    /// A server on this listener, in a thread of its own.
    ///
    /// # Errors
    /// When the listener is of no use.
    pub fn listen(listener: TcpListener) -> io::Result<Self> {
        Self::serve(listener, None)
    }

    fn serve(listener: TcpListener, tls: Option<tokio_rustls::TlsAcceptor>) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new()),
            changed: watch::Sender::default(),
            life: watch::Sender::new(Some(0)),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let serving = Arc::clone(&shared);
        thread::Builder::new().name("consul".to_owned()).spawn(move || {
            runtime.block_on(http::serve(listener, tls, serving));
        })?;
        Ok(Self { address, scheme, shared })
    }

    /// Where it answers.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// Registers an instance, or what has changed of it.
    pub fn register(&self, service: &str, instance: ConsulInstance) {
        self.change(|state| state.register(service, instance));
    }

    /// Removes an instance. With its last one a service goes.
    pub fn deregister(&self, service: &str, id: &str) {
        self.change(|state| state.deregister(service, id));
    }

    /// The check of an instance says something else.
    pub fn set_status(&self, service: &str, id: &str, status: &str) {
        self.change(|state| state.set_status(service, id, status));
    }

    /// From now on this goes wrong, or nothing.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.shared.state.lock().fault = fault;
        if fault == Some(Fault::Down) {
            self.cut();
        }
    }

    /// From now on requests need this token.
    pub fn set_token(&self, token: &str) {
        self.shared.state.lock().token = Some(token.to_owned());
        self.cut();
    }

    /// Cuts all connections and goes on at this index, as a server that was restored from an older snapshot. Everything it
    /// holds has that index.
    pub fn restart_at(&self, index: u64) {
        self.shared.state.lock().restart_at(index);
        self.cut();
    }

    /// The same without cutting anybody off, as when a proxy hides it.
    pub fn rewind_to(&self, index: u64) {
        self.change(|state| state.restart_at(index));
    }

    /// How often it was asked so far, and how many queries wait.
    pub fn requests(&self) -> (u64, u64) {
        let state = self.shared.state.lock();
        (state.requests, state.waiting)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.shared.state.lock());
        self.shared.changed.send_modify(|count| *count += 1);
    }

    fn cut(&self) {
        self.shared.life.send_modify(|life| *life = life.map(|count| count + 1));
    }
}

impl Drop for ConsulServer {
    fn drop(&mut self) {
        self.shared.life.send_replace(None);
    }
}
