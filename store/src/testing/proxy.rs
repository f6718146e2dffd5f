//! A wire that can be cut.

use std::io;

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::{AbortHandle, JoinSet},
};

/// Forwards TCP connections from a loopback port to a server, until it is cut or dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    server: String,
    task: AbortHandle,
}

impl Proxy {
    /// Starts to forward to `server`, a `HOST:PORT`.
    ///
    /// # Errors
    /// When no port is to be had.
    pub async fn start(server: &str) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let task = tokio::spawn(forward(listener, server.to_owned())).abort_handle();
        Ok(Self { port, server: server.to_owned(), task })
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
    /// When somebody else has taken the port.
    pub async fn mend(&mut self) -> io::Result<()> {
        let listener = TcpListener::bind(("127.0.0.1", self.port)).await?;
        self.task = tokio::spawn(forward(listener, self.server.clone())).abort_handle();
        Ok(())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
    }
}

async fn forward(listener: TcpListener, server: String) {
    // Dropped with this task, and every connection with it.
    let mut connections = JoinSet::new();
    while let Ok((mut client, _)) = listener.accept().await {
        let server = server.clone();
        connections.spawn(async move {
            if let Ok(mut server) = TcpStream::connect(server).await {
                // Whoever closes first, both sides are closed now.
                let _ = copy_bidirectional(&mut client, &mut server).await;
            }
        });
    }
}
