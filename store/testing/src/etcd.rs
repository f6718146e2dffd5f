//! Real etcds, on free loopback ports and with their own data folders.

use std::{io, net::TcpListener, path::Path, process::Stdio, time::Duration};

use tempfile::TempDir;
use tokio::{
    net::TcpStream,
    process::{Child, Command},
    time::{Instant, sleep},
};

use super::Authority;

/// How long etcd may take to answer. It takes well under a second unless the machine is busy.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// The data folder below an etcd's own folder.
const DATA: &str = "member";

/// Options of an etcd.
#[derive(Debug, Clone, Copy, Default)]
pub struct EtcdOptions<'a> {
    /// Use TLS and require client certificates of this authority.
    pub authority: Option<&'a Authority>,
    /// Additional flags of etcd.
    pub flags: &'a [&'a str],
}

impl EtcdOptions<'_> {
    const fn scheme(self) -> &'static str {
        if self.authority.is_some() { "https" } else { "http" }
    }

    /// The flags of etcd.
    fn server_flags(self) -> Vec<String> {
        let mut flags: Vec<String> = self.flags.iter().map(|flag| (*flag).to_owned()).collect();
        if let Some(authority) = self.authority {
            let file = |name| authority.file(name).display().to_string();
            flags.push("--client-cert-auth".to_owned());
            flags.push(format!("--trusted-ca-file={}", file("ca.pem")));
            flags.push(format!("--cert-file={}", file("server.pem")));
            flags.push(format!("--key-file={}", file("server-key.pem")));
        }
        flags
    }

    /// The flags of etcdctl.
    fn client_flags(self) -> Vec<String> {
        let Some(authority) = self.authority else { return Vec::new() };
        let file = |name| authority.file(name).display().to_string();
        vec![
            format!("--cacert={}", file("ca.pem")),
            format!("--cert={}", file("client.pem")),
            format!("--key={}", file("client-key.pem")),
        ]
    }
}

/// A snapshot of an etcd.
#[derive(Debug)]
pub struct EtcdBackup(TempDir);

impl EtcdBackup {
    fn file(&self) -> String {
        self.0.path().join("backup.db").display().to_string()
    }
}

/// One etcd process. It is killed when this is dropped, and its data is deleted.
#[derive(Debug)]
pub struct Etcd {
    process: Child,
    port: u16,
    peer_port: u16,
    /// All members in the form of etcd's `--initial-cluster`.
    cluster: String,
    data: TempDir,
    scheme: &'static str,
    server_flags: Vec<String>,
    client_flags: Vec<String>,
}

impl Etcd {
    /// Starts etcd and waits until it answers.
    ///
    /// # Errors
    /// When it is not installed, or does not answer.
    pub async fn start() -> io::Result<Self> {
        Self::start_with(EtcdOptions::default()).await
    }

    /// Starts etcd with these options and waits until it answers.
    ///
    /// # Errors
    /// As [`Etcd::start`].
    pub async fn start_with(options: EtcdOptions<'_>) -> io::Result<Self> {
        let mut members = Self::start_members(1, options).await?;
        members.pop().ok_or_else(|| io::Error::other("no member was started"))
    }

    /// Starts several members of one cluster and waits until all of them answer.
    ///
    /// # Errors
    /// As [`Etcd::start`].
    pub async fn start_cluster(size: usize) -> io::Result<Vec<Self>> {
        Self::start_members(size, EtcdOptions::default()).await
    }

    async fn start_members(size: usize, options: EtcdOptions<'_>) -> io::Result<Vec<Self>> {
        let ports: Vec<(u16, u16)> =
            free_ports(2 * size)?.chunks(2).map(|pair| (pair[0], pair[pair.len() - 1])).collect();
        let peers: Vec<String> =
            ports.iter().map(|(_, peer)| format!("{}={}", name(*peer), peer_url(*peer))).collect();
        let cluster = peers.join(",");
        let mut members = Vec::with_capacity(size);
        for (port, peer_port) in ports {
            let data = tempfile::Builder::new().prefix("contiv-etcd-").tempdir()?;
            let (scheme, flags) = (options.scheme(), options.server_flags());
            members.push(Self {
                process: spawn(scheme, port, peer_port, &cluster, data.path(), &flags)?,
                port,
                peer_port,
                cluster: cluster.clone(),
                data,
                scheme,
                server_flags: flags,
                client_flags: options.client_flags(),
            });
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
        let scheme = if self.scheme == "https" { "etcds" } else { "etcd" };
        format!("{scheme}://{}", self.endpoint())
    }

    /// Kills the process, as a power failure would. The data stays.
    ///
    /// # Errors
    /// Those of the system.
    pub async fn kill(&mut self) -> io::Result<()> {
        self.process.kill().await
    }

    /// Pauses the process: it answers nothing, and its connections stay open.
    ///
    /// # Errors
    /// When the process has ended.
    pub async fn pause(&self) -> io::Result<()> {
        self.signal("-STOP").await
    }

    /// Resumes a paused process.
    ///
    /// # Errors
    /// When the process has ended.
    pub async fn resume(&self) -> io::Result<()> {
        self.signal("-CONT").await
    }

    async fn signal(&self, signal: &str) -> io::Result<()> {
        let id = self.process.id().ok_or_else(|| io::Error::other("this etcd has ended"))?;
        let status = Command::new("kill").args([signal, &id.to_string()]).status().await?;
        if status.success() { Ok(()) } else { Err(io::Error::other(format!("kill {signal} {id}: {status}"))) }
    }

    /// Starts the process again, on the same data and ports.
    ///
    /// # Errors
    /// As [`Etcd::start`].
    pub async fn start_again(&mut self) -> io::Result<()> {
        let (cluster, flags) = (&self.cluster, &self.server_flags);
        self.process = spawn(self.scheme, self.port, self.peer_port, cluster, self.data.path(), flags)?;
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

    /// Saves a snapshot.
    ///
    /// # Errors
    /// As [`Etcd::ctl`].
    pub async fn back_up(&self) -> io::Result<EtcdBackup> {
        let folder = tempfile::Builder::new().prefix("contiv-backup-").tempdir()?;
        let backup = EtcdBackup(folder);
        self.ctl(&["snapshot", "save", &backup.file()]).await?;
        Ok(backup)
    }

    /// Starts the process with the content of a snapshot, as the only member. It must have been killed.
    ///
    /// # Errors
    /// As [`Etcd::start`] and [`Etcd::ctl`].
    pub async fn start_restored(&mut self, backup: &EtcdBackup) -> io::Result<()> {
        self.data = tempfile::Builder::new().prefix("contiv-etcd-").tempdir()?;
        let data = self.data.path().join(DATA).display().to_string();
        let (file, name, peer) = (backup.file(), name(self.peer_port), peer_url(self.peer_port));
        let cluster = ["--initial-cluster", &self.cluster, "--initial-advertise-peer-urls", &peer];
        let arguments = ["snapshot", "restore", &file, "--data-dir", &data, "--name", &name];
        self.ctl(&[&arguments[..], &cluster].concat()).await?;
        self.start_again().await
    }

    /// Runs `etcdctl` against this etcd and returns its output.
    ///
    /// # Errors
    /// When it is not installed or fails; the error contains its output.
    pub async fn ctl(&self, arguments: &[&str]) -> io::Result<String> {
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .arg(format!("--endpoints={}://{}", self.scheme, self.endpoint()))
            .args(&self.client_flags)
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
            // etcdctl needs seconds to notice that the port is closed.
            if TcpStream::connect(("127.0.0.1", self.port)).await.is_ok() {
                match self.ctl(&["get", "/"]).await {
                    Ok(_) => return Ok(()),
                    // It answers and requires a user.
                    Err(error) if wants_user(&error.to_string()) => return Ok(()),
                    Err(_) => {}
                }
            }
            if Instant::now() > deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "etcd does not answer"));
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

fn wants_user(error: &str) -> bool {
    // With a certificate the user is the one in the certificate.
    ["user name is empty", "permission denied"].iter().any(|words| error.contains(words))
}

/// The URL for other members.
fn peer_url(peer_port: u16) -> String {
    format!("http://127.0.0.1:{peer_port}")
}

/// A member's name.
fn name(peer_port: u16) -> String {
    format!("member-{peer_port}")
}

fn spawn(
    scheme: &str,
    port: u16,
    peer_port: u16,
    cluster: &str,
    data: &Path,
    flags: &[String],
) -> io::Result<Child> {
    let client = format!("{scheme}://127.0.0.1:{port}");
    let peer = peer_url(peer_port);
    Command::new("etcd")
        // The configuration of the machine's own etcd must not be used.
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .arg("--data-dir")
        .arg(data.join(DATA))
        .arg(format!("--name={}", name(peer_port)))
        .args(["--log-level=error", "--logger=zap"])
        .args([format!("--listen-client-urls={client}"), format!("--advertise-client-urls={client}")])
        .args([format!("--listen-peer-urls={peer}"), format!("--initial-advertise-peer-urls={peer}")])
        .arg(format!("--initial-cluster={cluster}"))
        .args(flags)
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

/// Unused ports. Another process may take one before etcd does, but the kernel hands out others first.
fn free_ports(count: usize) -> io::Result<Vec<u16>> {
    // All are held until the last is found, so they differ.
    let listeners =
        (0..count).map(|_| TcpListener::bind(("127.0.0.1", 0))).collect::<io::Result<Vec<_>>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}
