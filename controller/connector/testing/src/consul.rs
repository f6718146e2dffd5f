//! A simulated Consul: `/v1/catalog/services` and `/v1/health/service/<name>` with blocking queries.
//!
//! It behaves as clients expect: a query with an index waits until its result is newer, also when that index is in the future;
//! each service has its own index; catalog changes do not wake queries for the health of other services. Clients are
//! disconnected by a restart.

mod fault;
mod http;
mod instance;
mod shared;
mod state;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::Path,
    sync::Arc,
    thread,
};

use parking_lot::Mutex;
use tokio::sync::watch;

pub use fault::Fault;
pub use instance::ConsulInstance;
use shared::Shared;
use state::State;

/// A running server. It ends when this is dropped.
#[derive(Debug)]
pub struct ConsulServer {
    address: SocketAddr,
    scheme: &'static str,
    shared: Arc<Shared>,
}

impl ConsulServer {
    /// Starts a server on a free loopback port, without services.
    ///
    /// # Errors
    /// When there is no port.
    pub fn start() -> io::Result<Self> {
        Self::serve(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?, None)
    }

    /// The same with TLS, with files for the certificate and its key.
    ///
    /// # Errors
    /// When there is no port, or a file is invalid.
    pub fn start_tls(certificate: &Path, key: &Path) -> io::Result<Self> {
        let acceptor = http::acceptor(certificate, key)?;
        Self::serve(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?, Some(acceptor))
    }

    /// Starts a server on this listener, in its own thread.
    ///
    /// # Errors
    /// When the listener cannot be used.
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
            connection_epoch: watch::Sender::new(Some(0)),
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let serving = Arc::clone(&shared);
        thread::Builder::new()
            .name("consul".to_owned())
            .spawn(move || {
                runtime.block_on(http::serve(listener, tls, serving));
            })?;
        Ok(Self {
            address,
            scheme,
            shared,
        })
    }

    /// The URL of the server.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// Registers an instance, or updates it.
    pub fn register(&self, service: &str, instance: ConsulInstance) {
        self.change(|state| state.register(service, instance));
    }

    /// Removes an instance. A service without instances is removed.
    pub fn deregister(&self, service: &str, id: &str) {
        self.change(|state| state.deregister(service, id));
    }

    /// Sets the status of an instance's check.
    pub fn set_status(&self, service: &str, id: &str, status: &str) {
        self.change(|state| state.set_status(service, id, status));
    }

    /// Sets or clears a fault.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.shared.state.lock().fault = fault;
        if fault == Some(Fault::Down) {
            self.cut();
        }
    }

    /// Requires this token from now on.
    pub fn set_token(&self, token: &str) {
        self.shared.state.lock().token = Some(token.to_owned());
        self.cut();
    }

    /// Cuts all connections and continues at this index, like a server restored from an older snapshot. All its content has
    /// that index.
    pub fn restart_at(&self, index: u64) {
        self.shared.state.lock().restart_at(index);
        self.cut();
    }

    /// The same without cutting connections, as behind a proxy.
    pub fn rewind_to(&self, index: u64) {
        self.change(|state| state.restart_at(index));
    }

    /// The number of requests so far, and of waiting queries.
    pub fn requests(&self) -> (u64, u64) {
        let state = self.shared.state.lock();
        (state.requests, state.waiting)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.shared.state.lock());
        self.shared.changed.send_modify(|count| *count += 1);
    }

    fn cut(&self) {
        self.shared
            .connection_epoch
            .send_modify(|epoch| *epoch = epoch.map(|count| count + 1));
    }
}

impl Drop for ConsulServer {
    fn drop(&mut self) {
        self.shared.connection_epoch.send_replace(None);
    }
}
