//! A Kubernetes API server in memory, over real HTTP: lists in chunks, watches, bookmarks, port-forwards, and faults; and writes, for
//! kubectl and helm, with the pods of `DaemonSets`.
//!
//! Like the real one it has one version for all types, the items of a list have no `kind`, an empty list of endpoints is
//! `null`, the pages of a list have one version, a watch from an expired version gets an event `ERROR` with code 410, and an
//! object that no longer matches a field selector is `DELETED` for watches with that selector.

mod answer;
mod cluster;
mod daemon_sets;
mod decode;
mod discovery;
mod forward;
mod list;
mod patch;
mod protobuf;
mod query;
mod resource;
mod response;
mod review;
mod selector;
mod server;
mod shared;
mod watch;
mod write;

use std::{
    fs, io,
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;
use tokio::{runtime, sync::watch as notify};

use super::Authority;
use cluster::Cluster;
use list::with_kind;
use resource::Resource;
use review::User;
pub use shared::Exchange;
use shared::Shared;

/// The saved content of an API server.
#[derive(Debug)]
pub struct ApiServerBackup(Cluster);

/// An API server, on loopback by default. It ends when this is dropped.
#[derive(Debug)]
pub struct ApiServer {
    address: SocketAddr,
    authority: Option<Authority>,
    files: TempDir,
    shared: Arc<Shared>,
    /// Dropped with this, which ends the server.
    _stop: notify::Sender<()>,
}

impl ApiServer {
    /// Starts one without TLS, on a free port.
    ///
    /// # Errors
    /// Those of the system.
    pub fn start() -> io::Result<Self> {
        Self::listen(loopback()?)
    }

    /// Starts one without TLS that other machines can reach too.
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
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let state = Arc::clone(&shared);
        // A separate thread, so that tests without a runtime can use it.
        thread::Builder::new()
            .name("kubernetes".to_owned())
            .spawn(move || runtime.block_on(server::serve(listener, acceptor, state, stopped)))?;
        let files = tempfile::Builder::new()
            .prefix("contiv-kubernetes-")
            .tempdir()?;
        Ok(Self {
            address,
            authority,
            files,
            shared,
            _stop: stop,
        })
    }

    /// Its address as `HOST:PORT`.
    pub fn endpoint(&self) -> String {
        self.address.to_string()
    }

    /// Writes a kubeconfig for `endpoint` (its own, or that of a proxy in front of it). With TLS it names the authority, and
    /// always the token file of [`ApiServer::require_token`].
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn kubeconfig_for(&self, endpoint: &str) -> io::Result<PathBuf> {
        let path = self.files.path().join("kubeconfig");
        let (scheme, authority) = match &self.authority {
            None => ("http", String::new()),
            Some(authority) => (
                "https",
                format!(
                    ", certificate-authority: {}",
                    authority.file("ca.pem").display()
                ),
            ),
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

    /// Writes a kubeconfig with the authority's client certificate and no token.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn kubeconfig_with_certificate(&self) -> io::Result<PathBuf> {
        let path = self.kubeconfig()?;
        let Some(authority) = &self.authority else {
            return Ok(path);
        };
        let file = |name| authority.file(name).display().to_string();
        let certificate = format!(
            "client-certificate: {}, client-key: {}",
            file("client.pem"),
            file("client-key.pem")
        );
        let token = format!("tokenFile: {}", self.token_file().display());
        fs::write(
            &path,
            fs::read_to_string(&path)?.replace(&token, &certificate),
        )?;
        Ok(path)
    }

    /// Writes a kubeconfig as [`ApiServer::kubeconfig_for`] its own endpoint.
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

    /// Accepts only requests with this token from now on, and writes it into the file that the kubeconfig names.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn require_token(&self, token: &str) -> io::Result<()> {
        self.accept_token(token);
        fs::write(self.token_file(), token)
    }

    /// Accepts only requests with this token from now on, without writing the file.
    pub fn accept_token(&self, token: &str) {
        self.shared.faults.lock().token = Some(token.to_owned());
    }

    /// Accepts only requests with this client certificate (DER) from now on, as if all others had expired; without one, all.
    pub fn accept_certificate(&self, certificate: Option<Vec<u8>>) {
        self.shared.faults.lock().certificate = certificate;
    }

    /// The authority whose certificates it uses.
    pub const fn authority(&self) -> Option<&Authority> {
        self.authority.as_ref()
    }

    /// Adds a token for reviews, with the name of its user, who may get these paths.
    pub fn add_user_token(&self, token: &str, name: &str, paths: &[&str]) {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        let user = User {
            name: name.to_owned(),
            paths,
        };
        self.shared
            .faults
            .lock()
            .users
            .insert(token.to_owned(), user);
    }

    /// Removes a token that [`Self::add_user_token`] has added.
    pub fn remove_user_token(&self, token: &str) {
        self.shared.faults.lock().users.remove(token);
    }

    fn token_file(&self) -> PathBuf {
        self.files.path().join("token")
    }

    /// Creates or replaces an object in the form that `kubectl` prints, and returns its version.
    ///
    /// # Errors
    /// When it has no name, or is of an unknown type.
    pub fn put(&self, object: Value) -> io::Result<i64> {
        let resource = Resource::of_object(&object).ok_or_else(|| unknown(&object))?;
        if resource == Resource::EXTERNAL_WORKLOADS {
            self.deny(resource.plural, None);
        }
        Ok(self.change(|cluster| cluster.put(resource, object)))
    }

    /// The objects of a type in the form that `kubectl` prints, in order of namespace and name; `resource` is its plural, as in
    /// `services`.
    pub fn objects(&self, resource: &str) -> Vec<Value> {
        let cluster = self.shared.cluster.borrow();
        let types = Resource::ALL
            .into_iter()
            .filter(|known| known.plural == resource);
        types
            .flat_map(|known| {
                cluster
                    .objects(known)
                    .into_values()
                    .map(move |json| with_kind(known, &json))
            })
            .filter_map(|json| serde_json::from_str(&json).ok())
            .collect()
    }

    /// Deletes an object; `resource` is its plural, as in `services`.
    pub fn delete(&self, resource: &str, namespace: &str, name: &str) {
        if let Some(resource) = Resource::ALL
            .into_iter()
            .find(|known| known.plural == resource)
        {
            self.change(|cluster| cluster.delete(resource, namespace, name));
        }
    }

    /// Compacts the history: watches from older versions and pages of unfinished lists expire.
    pub fn expire(&self) {
        self.change(Cluster::expire);
    }

    /// Ends one running watch of a type, a plural as in `services`, with an event `ERROR` with code 410.
    pub fn expire_watch(&self, resource: &str) {
        self.shared
            .faults
            .lock()
            .expired
            .insert(resource.to_owned());
        self.change(|_| ());
    }

    /// Sends watches of a type, a plural as in `services`, this event, which is not true: its type, and an object in JSON.
    pub fn send_false_event(&self, resource: &str, event: &str, object: &Value) {
        let event = (event.to_owned(), object.to_string());
        self.shared
            .faults
            .lock()
            .events
            .entry(resource.to_owned())
            .or_default()
            .push(event);
        self.change(|_| ());
    }

    /// Answers lists of a type, a plural as in `services`, with this media type and text instead.
    pub fn answer_lists(&self, resource: &str, answer: Option<(&'static str, &str)>) {
        let lists = &mut self.shared.faults.lock().lists;
        lists.remove(resource);
        lists.extend(
            answer.map(|(media_type, text)| (resource.to_owned(), (media_type, text.to_owned()))),
        );
    }

    /// Saves all objects with the version.
    pub fn back_up(&self) -> ApiServerBackup {
        ApiServerBackup(self.shared.cluster.borrow().clone())
    }

    /// Restores saved objects, as when the server's etcd is restored and the server restarted. Cut its connections before.
    pub fn restore(&self, backup: ApiServerBackup) {
        self.change(|cluster| cluster.restore(backup.0));
    }

    /// Sends no more bookmarks to watches of this type, a plural as in `services`. A real API server has none to send as long
    /// as its etcd does not report the progress of a type without changes.
    pub fn withhold_bookmarks(&self, resource: &str) {
        self.shared.faults.lock().silent.insert(resource.to_owned());
    }

    /// Breaks all connections and refuses new ones until [`Self::reconnect`].
    pub fn cut(&self) {
        self.shared.is_cut.send_replace(true);
    }

    /// Accepts connections again.
    pub fn reconnect(&self) {
        self.shared.is_cut.send_replace(false);
    }

    /// Answers all requests of a type with this code; `resource` is its plural, or `pods/portforward`. External workloads are
    /// answered with 404 until the first one is put: their custom resource definition is not there.
    pub fn deny(&self, resource: &str, code: Option<u16>) {
        let denied = &mut self.shared.faults.lock().denied;
        match code {
            Some(code) => drop(denied.insert(resource.to_owned(), code)),
            None => drop(denied.remove(resource)),
        }
    }

    /// Answers this many requests with this code.
    pub fn fail_next(&self, requests: usize, code: u16) {
        self.shared
            .faults
            .lock()
            .failures
            .extend(std::iter::repeat_n(code, requests));
    }

    /// Asks in each answer with an error for a pause of so many seconds, or for none: the header `Retry-After`.
    pub fn ask_for_pause(&self, seconds: Option<u64>) {
        self.shared.faults.lock().retry_after = seconds;
    }

    /// Lets the open connections take no more requests: `GOAWAY` in HTTP/2. Answers that have begun go on.
    pub fn retire_connections(&self) {
        self.shared.retirement.send_replace(());
    }

    /// Answers all lists with this code but serves watches, like an API server with a cache whose etcd has no leader.
    pub fn fail_lists(&self, code: Option<u16>) {
        self.shared.faults.lock().list_failure = code;
    }

    /// Delays each answer.
    pub fn delay_answers(&self, delay: Duration) {
        self.shared.faults.lock().delay = delay;
    }

    /// The interval of bookmarks for watches that request them; at first a minute, as in Kubernetes.
    pub fn set_bookmark_interval(&self, interval: Duration) {
        self.shared.faults.lock().bookmark_interval = interval;
    }

    /// The maximum duration of a watch, even if it requests more.
    pub fn limit_watches(&self, limit: Duration) {
        self.shared.faults.lock().longest_watch = limit;
    }

    /// The path and query of every request since the last call.
    pub fn take_requests(&self) -> Vec<String> {
        self.take_exchanges()
            .iter()
            .map(|exchange| exchange.path.clone())
            .collect()
    }

    /// Every request since the last call, and what was answered.
    pub fn take_exchanges(&self) -> Vec<Arc<Exchange>> {
        std::mem::take(&mut self.shared.faults.lock().requests)
    }

    /// How many connections were accepted.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Answers lists in pages also where a cache would answer them as a whole.
    pub fn without_cache(&self) {
        self.shared.faults.lock().has_cache = false;
    }

    /// From now on answers lists from the cache with the current objects, as a server that is cut off from its etcd.
    pub fn freeze_cache(&self) {
        *self.shared.cache.lock() = Some(self.shared.cluster.borrow().clone());
    }

    fn change<T>(&self, change: impl FnOnce(&mut Cluster) -> T) -> T {
        let mut result = None;
        // The lock is released before watchers are notified.
        self.shared.cluster.send_modify(|cluster| {
            result = Some(change(cluster));
            daemon_sets::reconcile(cluster);
        });
        result.unwrap_or_else(|| unreachable!("send_modify runs what it is given"))
    }
}

fn loopback() -> io::Result<TcpListener> {
    TcpListener::bind(("127.0.0.1", 0))
}

fn unknown(object: &Value) -> io::Error {
    let what = format!(
        "this server does not have {} {} by name",
        object["apiVersion"], object["kind"]
    );
    io::Error::new(io::ErrorKind::InvalidInput, what)
}
