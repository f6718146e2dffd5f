//! Real etcds, on reserved loopback ports and with their own data folders.

use std::{io, path::Path, time::Duration};

use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::Command,
    time::{Instant, sleep},
};

use super::{
    Authority,
    reserved_port::ReservedPort,
    server_process::{ServerProcess, not_installed},
};

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
        if self.authority.is_some() {
            "https"
        } else {
            "http"
        }
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
        let Some(authority) = self.authority else {
            return Vec::new();
        };
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
    process: ServerProcess,
    port: ReservedPort,
    peer_port: ReservedPort,
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
        members
            .pop()
            .ok_or_else(|| io::Error::other("no member was started"))
    }

    /// Starts several members of one cluster and waits until all of them answer.
    ///
    /// # Errors
    /// As [`Etcd::start`].
    pub async fn start_cluster(size: usize) -> io::Result<Vec<Self>> {
        Self::start_members(size, EtcdOptions::default()).await
    }

    async fn start_members(size: usize, options: EtcdOptions<'_>) -> io::Result<Vec<Self>> {
        let ports = (0..size).map(|_| Ok((ReservedPort::new()?, ReservedPort::new()?)));
        let ports = ports.collect::<io::Result<Vec<_>>>()?;
        let peers: Vec<String> = ports
            .iter()
            .map(|(_, peer)| format!("{}={}", name(peer), peer_url(peer)))
            .collect();
        let cluster = peers.join(",");
        let mut members = Vec::with_capacity(size);
        for (port, peer_port) in ports {
            let data = tempfile::Builder::new().prefix("contiv-etcd-").tempdir()?;
            let (scheme, flags) = (options.scheme(), options.server_flags());
            members.push(Self {
                process: start(scheme, &port, &peer_port, &cluster, data.path(), &flags)?,
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
        self.port.address().to_string()
    }

    /// The store URL.
    pub fn url(&self) -> String {
        let scheme = if self.scheme == "https" {
            "etcds"
        } else {
            "etcd"
        };
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
    pub fn pause(&self) -> io::Result<()> {
        self.process.pause()
    }

    /// Resumes a paused process.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn resume(&self) -> io::Result<()> {
        self.process.resume()
    }

    /// Starts the process again, on the same data and ports.
    ///
    /// # Errors
    /// As [`Etcd::start`].
    pub async fn start_again(&mut self) -> io::Result<()> {
        let (cluster, flags) = (&self.cluster, &self.server_flags);
        self.process = start(
            self.scheme,
            &self.port,
            &self.peer_port,
            cluster,
            self.data.path(),
            flags,
        )?;
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
        let folder = tempfile::Builder::new()
            .prefix("contiv-backup-")
            .tempdir()?;
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
        let (file, name, peer) = (
            backup.file(),
            name(&self.peer_port),
            peer_url(&self.peer_port),
        );
        let cluster = [
            "--initial-cluster",
            &self.cluster,
            "--initial-advertise-peer-urls",
            &peer,
        ];
        let arguments = [
            "snapshot",
            "restore",
            &file,
            "--data-dir",
            &data,
            "--name",
            &name,
        ];
        self.ctl(&[&arguments[..], &cluster].concat()).await?;
        self.start_again().await
    }

    /// What etcd counts, in the text format of Prometheus.
    ///
    /// # Errors
    /// Those of the connection.
    pub async fn metrics(&self) -> io::Result<String> {
        let mut stream = TcpStream::connect(self.port.address()).await?;
        let request = b"GET /metrics HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(text)
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
            .map_err(|error| not_installed("etcdctl", &error))?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            let problem = String::from_utf8_lossy(&output.stderr).into_owned();
            Err(io::Error::other(format!(
                "etcdctl {}: {problem}",
                arguments.join(" ")
            )))
        }
    }

    /// Waits until etcd answers a read that needs a leader.
    async fn wait_until_ready(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            self.process.check()?;
            // etcdctl needs seconds to notice that the port is closed.
            if TcpStream::connect(self.port.address()).await.is_ok() {
                match self.ctl(&["get", "/"]).await {
                    Ok(_) => return Ok(()),
                    // It answers and requires a user.
                    Err(error) if wants_user(&error.to_string()) => return Ok(()),
                    Err(_) => {}
                }
            }
            if Instant::now() > deadline {
                return Err(self.process.timeout_error());
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

fn wants_user(error: &str) -> bool {
    // With a certificate the user is the one in the certificate.
    ["user name is empty", "permission denied"]
        .iter()
        .any(|words| error.contains(words))
}

/// The URL for other members.
fn peer_url(peer_port: &ReservedPort) -> String {
    format!("http://{}", peer_port.address())
}

/// A member's name.
fn name(peer_port: &ReservedPort) -> String {
    format!("member-{}", peer_port.address().port())
}

fn start(
    scheme: &str,
    port: &ReservedPort,
    peer_port: &ReservedPort,
    cluster: &str,
    data: &Path,
    flags: &[String],
) -> io::Result<ServerProcess> {
    let client = format!("{scheme}://{}", port.address());
    let peer = peer_url(peer_port);
    let mut command = Command::new("etcd");
    command
        // The configuration of the machine's own etcd must not be used.
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .arg("--data-dir")
        .arg(data.join(DATA))
        .arg(format!("--name={}", name(peer_port)))
        .args(["--log-level=error", "--logger=zap"])
        .args([
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
        ])
        .args([
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
        ])
        .arg(format!("--initial-cluster={cluster}"))
        .args(flags);
    ServerProcess::start("etcd", &mut command)
}
