//! A real `etcd grpc-proxy` in front of an etcd.

use std::{io, time::Duration};

use tokio::{
    net::TcpStream,
    process::Command,
    time::{Instant, sleep},
};

use super::{reserved_port::ReservedPort, server_process::ServerProcess};

/// How long the proxy may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// One `etcd grpc-proxy` process. It is killed when this is dropped.
#[derive(Debug)]
pub struct GrpcProxy {
    process: ServerProcess,
    port: ReservedPort,
    server: String,
}

impl GrpcProxy {
    /// Starts a proxy for `server`, the `HOST:PORT` of an etcd, and waits until it listens.
    ///
    /// # Errors
    /// When etcd is not installed, or the proxy does not listen.
    pub async fn start(server: &str) -> io::Result<Self> {
        let port = ReservedPort::new()?;
        let mut proxy = Self {
            process: start(server, &port)?,
            port,
            server: server.to_owned(),
        };
        proxy.wait_until_ready().await?;
        Ok(proxy)
    }

    /// The address that clients connect to.
    pub fn endpoint(&self) -> String {
        self.port.address().to_string()
    }

    /// Kills the process.
    ///
    /// # Errors
    /// When the system cannot kill it.
    pub async fn kill(&mut self) -> io::Result<()> {
        self.process.kill().await
    }

    /// Starts the process again, on the same port.
    ///
    /// # Errors
    /// As [`GrpcProxy::start`].
    pub async fn start_again(&mut self) -> io::Result<()> {
        self.process = start(&self.server, &self.port)?;
        self.wait_until_ready().await
    }

    async fn wait_until_ready(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(self.port.address()).await.is_err() {
            self.process.check()?;
            if Instant::now() > deadline {
                return Err(self.process.timeout_error());
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

fn start(server: &str, port: &ReservedPort) -> io::Result<ServerProcess> {
    let mut command = Command::new("etcd");
    command
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .args(["grpc-proxy", "start"])
        .args([
            format!("--endpoints={server}"),
            format!("--listen-addr={}", port.address()),
        ]);
    ServerProcess::start("etcd grpc-proxy", &mut command)
}
