//! An API server of Kubernetes in memory, over real HTTP: lists in chunks, watches, bookmarks, and what goes wrong.
//!
//! As the real one it has one version for everything, the items of a list do not say what they are, an empty list of
//! endpoints is `null`, the pages of a list are of one version, a watch whose version is gone is an event `ERROR` with
//! code 410, and an object that leaves a field selector is `DELETED` for who watches by it.

mod answer;
mod cluster;
mod list;
mod resource;
mod selector;
mod server;
mod watch;

use std::{
    fs, io,
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    sync::Arc,
    thread,
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;
use tokio::{runtime, sync::watch as notify};

use super::Authority;
use cluster::Cluster;
use resource::Resource;
use server::Shared;

/// All that an API server had at some moment.
#[derive(Debug)]
pub struct ApiServerBackup(Cluster);

/// An API server, on loopback if nobody says otherwise. It ends when this is dropped.
#[derive(Debug)]
pub struct ApiServer {
    address: SocketAddr,
    authority: Option<Authority>,
    files: TempDir,
    shared: Arc<Shared>,
    /// Dropped with this: the server ends.
    _stop: notify::Sender<()>,
}

impl ApiServer {
    /// Starts one without TLS, on a port of its own.
    ///
    /// # Errors
    /// Those of the system.
    pub fn start() -> io::Result<Self> {
        Self::listen(loopback()?)
    }

    /// Starts one without TLS, where others than this machine reach it too.
    ///
    /// # Errors
    /// Those of the system.
    pub fn listen(listener: TcpListener) -> io::Result<Self> {
        Self::start_with(listener, None)
    }

    /// Starts one with the certificates of an authority.
    ///
    /// # Errors
    /// As [`ApiServer::start`], and when a certificate cannot be read.
    pub fn start_with_tls(authority: Authority) -> io::Result<Self> {
        Self::start_with(loopback()?, Some(authority))
    }

    fn start_with(listener: TcpListener, authority: Option<Authority>) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let acceptor = authority.as_ref().map(server::acceptor).transpose()?;
        let shared = Arc::new(Shared::default());
        let (stop, stopped) = notify::channel(());
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let state = Arc::clone(&shared);
        // A thread of its own, so that tests without a runtime can use it.
        thread::Builder::new()
            .name("kubernetes".to_owned())
            .spawn(move || runtime.block_on(server::serve(listener, acceptor, state, stopped)))?;
        let files = tempfile::Builder::new().prefix("contiv-kubernetes-").tempdir()?;
        Ok(Self { address, authority, files, shared, _stop: stop })
    }

    /// Its address as `HOST:PORT`.
    pub fn endpoint(&self) -> String {
        self.address.to_string()
    }

    /// A kubeconfig by which clients find it, at `endpoint` (its own, or that of a proxy before it). With TLS it names the
    /// authority, and in any case the file of [`ApiServer::require_token`] as that of the token.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn kubeconfig_for(&self, endpoint: &str) -> io::Result<PathBuf> {
        let path = self.files.path().join("kubeconfig");
        let (scheme, authority) = match &self.authority {
            None => ("http", String::new()),
            Some(authority) => {
                ("https", format!(", certificate-authority: {}", authority.file("ca.pem").display()))
            }
        };
        let token = self.token_file();
        if !token.exists() {
            fs::write(&token, "none")?;
        }
        let text = format!(
            "apiVersion: v1
kind: Config
clusters: [{{name: it, cluster: {{server: '{scheme}://{endpoint}'{authority}}}}}]
users: [{{name: me, user: {{tokenFile: {token}}}}}]
contexts: [{{name: here, context: {{cluster: it, user: me}}}}]
current-context: here
",
            token = token.display()
        );
        fs::write(&path, text)?;
        Ok(path)
    }

    /// A kubeconfig with the certificate for clients of the authority, and no token.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn kubeconfig_with_certificate(&self) -> io::Result<PathBuf> {
        let path = self.kubeconfig()?;
        let Some(authority) = &self.authority else { return Ok(path) };
        let file = |name| authority.file(name).display().to_string();
        let certificate =
            format!("client-certificate: {}, client-key: {}", file("client.pem"), file("client-key.pem"));
        let token = format!("tokenFile: {}", self.token_file().display());
        fs::write(&path, fs::read_to_string(&path)?.replace(&token, &certificate))?;
        Ok(path)
    }

    /// [`ApiServer::kubeconfig_for`] its own endpoint.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn kubeconfig(&self) -> io::Result<PathBuf> {
        self.kubeconfig_for(&self.endpoint())
    }

    /// The store URL.
    ///
    /// # Errors
    /// As [`ApiServer::kubeconfig`].
    pub fn url(&self) -> io::Result<String> {
        Ok(format!("kube:{}", self.kubeconfig()?.display()))
    }

    /// Answers from now on only to who has this token, and puts it into the file that the kubeconfig names.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn require_token(&self, token: &str) -> io::Result<()> {
        self.accept_token(token);
        fs::write(self.token_file(), token)
    }

    /// Answers from now on only to who has this token; nobody is told.
    pub fn accept_token(&self, token: &str) {
        self.shared.faults.lock().token = Some(token.to_owned());
    }

    fn token_file(&self) -> PathBuf {
        self.files.path().join("token")
    }

    /// Creates or replaces an object, as `kubectl` would print it, and returns its version.
    ///
    /// # Errors
    /// When it says no name, or is of a type that this server does not have.
    pub fn put(&self, object: Value) -> io::Result<i64> {
        let resource = Resource::of_object(&object).ok_or_else(|| unknown(&object))?;
        Ok(self.change(|cluster| cluster.put(resource, object)))
    }

    /// Removes an object; `resource` is its plural, as in `services`.
    pub fn delete(&self, resource: &str, namespace: &str, name: &str) {
        if let Some(resource) = Resource::ALL.into_iter().find(|known| known.plural == resource) {
            self.change(|cluster| cluster.delete(resource, namespace, name));
        }
    }

    /// Forgets everything but the present: watches of older versions, and pages of lists that have begun, are gone.
    pub fn expire(&self) {
        self.change(Cluster::expire);
    }

    /// Saves all objects, with the version.
    pub fn back_up(&self) -> ApiServerBackup {
        ApiServerBackup(self.shared.cluster.borrow().clone())
    }

    /// Goes back to what was saved, as when its etcd is restored and it starts again on that. Cut it before.
    pub fn restore(&self, backup: ApiServerBackup) {
        self.change(|cluster| cluster.restore(backup.0));
    }

    /// Sends the watches of this type, a plural as in `services`, no bookmarks from now on. An API server has none to send as
    /// long as its etcd does not tell it how far a type without changes is.
    pub fn withhold_bookmarks(&self, resource: &str) {
        self.shared.faults.lock().silent.insert(resource.to_owned());
    }

    /// Breaks all connections, and new ones at once, until it is mended.
    pub fn cut(&self) {
        self.shared.is_cut.send_replace(true);
    }

    /// Takes connections again.
    pub fn mend(&self) {
        self.shared.is_cut.send_replace(false);
    }

    /// Answers so many requests with this code.
    pub fn fail_next(&self, requests: usize, code: u16) {
        self.shared.faults.lock().failures.extend(std::iter::repeat_n(code, requests));
    }

    /// Answers all lists with this code, and watches as before: so does one with a cache whose etcd has no leader.
    pub fn fail_lists(&self, code: Option<u16>) {
        self.shared.faults.lock().list_failure = code;
    }

    /// Waits so long before each answer.
    pub fn delay_answers(&self, delay: Duration) {
        self.shared.faults.lock().delay = delay;
    }

    /// How often watches that want it are sent a bookmark; a minute at first, as in Kubernetes.
    pub fn set_bookmark_interval(&self, interval: Duration) {
        self.shared.faults.lock().bookmark_interval = interval;
    }

    /// How long a watch may take at most, whatever it asks for.
    pub fn limit_watches(&self, limit: Duration) {
        self.shared.faults.lock().longest_watch = limit;
    }

    /// The path and query of every request since the last call.
    pub fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.faults.lock().requests)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Cluster) -> T) -> T {
        let mut result = None;
        // The lock is released before anybody is told.
        self.shared.cluster.send_modify(|cluster| result = Some(change(cluster)));
        result.unwrap_or_else(|| unreachable!("send_modify runs what it is given"))
    }
}

fn loopback() -> io::Result<TcpListener> {
    TcpListener::bind(("127.0.0.1", 0))
}

fn unknown(object: &Value) -> io::Error {
    let what = format!("this server does not have {} {} by name", object["apiVersion"], object["kind"]);
    io::Error::new(io::ErrorKind::InvalidInput, what)
}
