//! A TCP proxy that can be cut.

use std::io;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::{AbortHandle, JoinSet},
};

/// Forwards TCP connections from a loopback port to a server, until it is cut or dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    server: String,
    task: AbortHandle,
    /// Whether data is forwarded.
    flows: watch::Sender<bool>,
}

impl Proxy {
    /// Starts to forward to `server`, a `HOST:PORT`.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn start(server: &str) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let flows = watch::Sender::new(true);
        let task = tokio::spawn(forward(listener, server.to_owned(), flows.subscribe())).abort_handle();
        Ok(Self { port, server: server.to_owned(), task, flows })
    }

    /// The address that clients connect to.
    pub fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Resets all connections and refuses new ones.
    pub fn cut(&self) {
        self.task.abort();
    }

    /// Forwards again, on the same port.
    ///
    /// # Errors
    /// When another process has taken the port.
    pub async fn reconnect(&mut self) -> io::Result<()> {
        let listener = TcpListener::bind(("127.0.0.1", self.port)).await?;
        self.task =
            tokio::spawn(forward(listener, self.server.clone(), self.flows.subscribe())).abort_handle();
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
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
    }
}

async fn forward(listener: TcpListener, server: String, flows: watch::Receiver<bool>) {
    // Dropped with this task, which closes every connection.
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let server = server.clone();
        let flows = flows.clone();
        connections.spawn(async move {
            if let Ok(server) = TcpStream::connect(server).await {
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                // When one side has closed, both are closed.
                tokio::select! {
                    _ = copy(from_client, to_server, flows.clone()) => {}
                    _ = copy(from_server, to_client, flows) => {}
                }
            }
        });
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
        flows.wait_for(|flows| *flows).await.map_err(io::Error::other)?;
        if size == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..size]).await?;
    }
}
