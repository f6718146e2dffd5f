//! A real `etcd grpc-proxy` in front of an etcd.

use std::{io, net::TcpListener, process::Stdio, time::Duration};

use tokio::{
    net::TcpStream,
    process::{Child, Command},
    time::{Instant, sleep},
};

/// How long the proxy may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// One `etcd grpc-proxy` process. It is killed when this is dropped.
#[derive(Debug)]
pub struct GrpcProxy {
    process: Child,
    port: u16,
    server: String,
}

impl GrpcProxy {
    /// Starts a proxy for `server`, the `HOST:PORT` of an etcd, and waits until it listens.
    ///
    /// # Errors
    /// When etcd is not installed, or the proxy does not listen.
    pub async fn start(server: &str) -> io::Result<Self> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let mut proxy = Self { process: spawn(server, port)?, port, server: server.to_owned() };
        proxy.wait_until_ready().await?;
        Ok(proxy)
    }

    /// The address that clients connect to.
    pub fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.port)
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
        self.process = spawn(&self.server, self.port)?;
        self.wait_until_ready().await
    }

    async fn wait_until_ready(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(("127.0.0.1", self.port)).await.is_err() {
            if let Some(status) = self.process.try_wait()? {
                return Err(io::Error::other(format!("etcd grpc-proxy ended while starting: {status}")));
            }
            if Instant::now() > deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "etcd grpc-proxy does not listen"));
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

fn spawn(server: &str, port: u16) -> io::Result<Child> {
    Command::new("etcd")
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .args(["grpc-proxy", "start"])
        .args([format!("--endpoints={server}"), format!("--listen-addr=127.0.0.1:{port}")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("cannot run etcd ({error}): run scripts/deps")))
}
