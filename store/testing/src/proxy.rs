//! A TCP proxy that can be cut.

use std::io;

use futures::stream::{FuturesUnordered, StreamExt};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinSet,
};

use super::reserved_port::ReservedPort;

/// Forwards TCP connections from a loopback port to a server, until it is cut or dropped.
#[derive(Debug)]
pub struct Proxy {
    port: ReservedPort,
    server: String,
    /// The listener with its connections; nothing while it is cut.
    task: JoinSet<()>,
    /// Whether data is forwarded.
    flows: watch::Sender<bool>,
    /// Whether new connections are forwarded.
    accepts: watch::Sender<bool>,
}

impl Proxy {
    /// Starts to forward to `server`, a `HOST:PORT`.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn start(server: &str) -> io::Result<Self> {
        let port = ReservedPort::new()?;
        let listener = TcpListener::bind(port.address()).await?;
        let [flows, accepts] = [watch::Sender::new(true), watch::Sender::new(true)];
        let mut task = JoinSet::new();
        task.spawn(forward(
            listener,
            server.to_owned(),
            flows.subscribe(),
            accepts.subscribe(),
        ));
        Ok(Self {
            port,
            server: server.to_owned(),
            task,
            flows,
            accepts,
        })
    }

    /// The address that clients connect to.
    pub fn endpoint(&self) -> String {
        self.port.address().to_string()
    }

    /// Resets all connections and refuses new ones. Both is done when this returns.
    pub async fn cut(&mut self) {
        self.task.shutdown().await;
    }

    /// Forwards again, on the same port.
    ///
    /// # Errors
    /// Those of the system.
    pub async fn reconnect(&mut self) -> io::Result<()> {
        self.cut().await;
        let listener = TcpListener::bind(self.port.address()).await?;
        let (flows, accepts) = (self.flows.subscribe(), self.accepts.subscribe());
        self.task
            .spawn(forward(listener, self.server.clone(), flows, accepts));
        Ok(())
    }

    /// Stops forwarding in both directions without closing connections, as when packets are lost.
    pub fn stall(&self) {
        self.flows.send_replace(false);
    }

    /// Forwards pending and new data again.
    pub fn flow(&self) {
        self.flows.send_replace(true);
    }

    /// Whether new connections are forwarded, or closed at once. Those that are open go on.
    pub fn accept_connections(&self, are_accepted: bool) {
        self.accepts.send_replace(are_accepted);
    }
}

/// Accepts connections, and forwards them until this future is dropped with all of them.
async fn forward(
    listener: TcpListener,
    server: String,
    flows: watch::Receiver<bool>,
    accepts: watch::Receiver<bool>,
) {
    let mut connections = FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { return };
                if *accepts.borrow() {
                    connections.push(connect(client, &server, flows.clone()));
                }
            }
            Some(()) = connections.next() => {}
        }
    }
}

/// Forwards one connection until a side closes it.
async fn connect(client: TcpStream, server: &str, flows: watch::Receiver<bool>) {
    if let Ok(server) = TcpStream::connect(server).await {
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        // When one side has closed, both are closed.
        tokio::select! {
            _ = copy(from_client, to_server, flows.clone()) => {}
            _ = copy(from_server, to_client, flows) => {}
        }
    }
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut flows: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let size = from.read(&mut buffer).await?;
        flows
            .wait_for(|flows| *flows)
            .await
            .map_err(io::Error::other)?;
        if size == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..size]).await?;
    }
}
