//! Real etcds, on free loopback ports and with data folders of their own.

use std::{io, net::TcpListener, path::Path, process::Stdio, time::Duration};

use tempfile::TempDir;
use tokio::{
    net::TcpStream,
    process::{Child, Command},
    time::{Instant, sleep},
};

/// How long etcd may take to answer. It takes well under a second, unless the machine is busy with other tests.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// One etcd process. It is killed when this is dropped, and its data goes with it.
#[derive(Debug)]
pub struct Etcd {
    process: Child,
    port: u16,
    peer_port: u16,
    /// All members as etcd's `--initial-cluster` wants them.
    cluster: String,
    data: TempDir,
}

impl Etcd {
    /// Starts etcd and waits until it answers.
    ///
    /// # Errors
    /// When it is not installed, or does not answer.
    pub async fn start() -> io::Result<Self> {
        let mut members = Self::start_cluster(1).await?;
        members.pop().ok_or_else(|| io::Error::other("no member was started"))
    }

    /// Starts several etcds that are one cluster, and waits until all of them answer.
    ///
    /// # Errors
    /// As [`Etcd::start`].
    pub async fn start_cluster(size: usize) -> io::Result<Vec<Self>> {
        let ports: Vec<(u16, u16)> =
            free_ports(2 * size)?.chunks(2).map(|pair| (pair[0], pair[pair.len() - 1])).collect();
        let peers: Vec<String> =
            ports.iter().map(|(_, peer)| format!("{}=http://127.0.0.1:{peer}", name(*peer))).collect();
        let cluster = peers.join(",");
        let mut members = Vec::with_capacity(size);
        for (port, peer_port) in ports {
            let data = tempfile::Builder::new().prefix("contiv-etcd-").tempdir()?;
            let process = spawn(port, peer_port, &cluster, data.path())?;
            members.push(Self { process, port, peer_port, cluster: cluster.clone(), data });
        }
        for member in &mut members {
            member.wait_until_ready().await?;
        }
        Ok(members)
    }

    /// The member's address as `HOST:PORT`.
    pub fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The store URL.
    pub fn url(&self) -> String {
        format!("etcd://{}", self.endpoint())
    }

    /// Kills the process, as a power failure would. The data stays.
    ///
    /// # Errors
    /// Those of the system.
    pub async fn kill(&mut self) -> io::Result<()> {
        self.process.kill().await
    }

    /// Starts the process again, on the same data and ports.
    ///
    /// # Errors
    /// As [`Etcd::start`].
    pub async fn start_again(&mut self) -> io::Result<()> {
        self.process = spawn(self.port, self.peer_port, &self.cluster, self.data.path())?;
        self.wait_until_ready().await
    }

    /// Starts the process again with no data at all.
    ///
    /// # Errors
    /// As [`Etcd::start`].
    pub async fn start_empty(&mut self) -> io::Result<()> {
        self.data = tempfile::Builder::new().prefix("contiv-etcd-").tempdir()?;
        self.start_again().await
    }

    /// Runs `etcdctl` against this etcd, and returns what it prints.
    ///
    /// # Errors
    /// When it is not installed or fails; with what it prints then.
    pub async fn ctl(&self, arguments: &[&str]) -> io::Result<String> {
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .arg(format!("--endpoints={}", self.endpoint()))
            .args(arguments)
            .output()
            .await
            .map_err(|error| missing("etcdctl", &error))?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            let problem = String::from_utf8_lossy(&output.stderr).into_owned();
            Err(io::Error::other(format!("etcdctl {}: {problem}", arguments.join(" "))))
        }
    }

    /// Waits until etcd answers a read that needs a leader.
    async fn wait_until_ready(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Some(status) = self.process.try_wait()? {
                return Err(io::Error::other(format!("etcd ended at once: {status}")));
            }
            let is_listening = TcpStream::connect(("127.0.0.1", self.port)).await.is_ok();
            if is_listening && self.ctl(&["get", "/"]).await.is_ok() {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "etcd does not answer"));
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// A member's name.
fn name(peer_port: u16) -> String {
    format!("member-{peer_port}")
}

fn spawn(port: u16, peer_port: u16, cluster: &str, data: &Path) -> io::Result<Child> {
    let client = format!("http://127.0.0.1:{port}");
    let peer = format!("http://127.0.0.1:{peer_port}");
    Command::new("etcd")
        // Whatever the machine's own etcd is configured with is not meant for this one.
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .arg("--data-dir")
        .arg(data.join("member"))
        .arg(format!("--name={}", name(peer_port)))
        .args(["--log-level=error", "--logger=zap"])
        .args([format!("--listen-client-urls={client}"), format!("--advertise-client-urls={client}")])
        .args([format!("--listen-peer-urls={peer}"), format!("--initial-advertise-peer-urls={peer}")])
        .arg(format!("--initial-cluster={cluster}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| missing("etcd", &error))
}

fn missing(program: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot run {program} ({error}): run scripts/deps"))
}

/// Ports that nobody listens on. Someone else may take one before etcd does; the kernel hands out others first.
fn free_ports(count: usize) -> io::Result<Vec<u16>> {
    // All are held until the last is found, so they differ.
    let listeners =
        (0..count).map(|_| TcpListener::bind(("127.0.0.1", 0))).collect::<io::Result<Vec<_>>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}
