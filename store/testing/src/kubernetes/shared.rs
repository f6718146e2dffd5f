//! The state shared by the server and the test.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use http::{Request, header};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{cluster::Cluster, resource::Resource, review::User};

/// The certificate of the client of a connection, in DER.
#[derive(Debug, Clone)]
pub(super) struct ClientCertificate(pub(super) Vec<u8>);

/// A request, and how much was answered.
#[derive(Debug)]
pub struct Exchange {
    /// The path and query.
    pub path: String,
    /// The header `User-Agent`.
    pub user_agent: String,
    /// The header `Accept`.
    pub accept: String,
    /// The header `Accept-Encoding`.
    pub accept_encoding: String,
    /// The certificate of the client, in DER.
    pub client_certificate: Option<Vec<u8>>,
    /// When it arrived.
    pub received: Instant,
    bytes: AtomicUsize,
}

impl Exchange {
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        let text = |name| {
            request
                .headers()
                .get(name)
                .map(|value| String::from_utf8_lossy(value.as_bytes()).into())
        };
        Self {
            path: request
                .uri()
                .path_and_query()
                .map(ToString::to_string)
                .unwrap_or_default(),
            user_agent: text(header::USER_AGENT).unwrap_or_default(),
            accept: text(header::ACCEPT).unwrap_or_default(),
            accept_encoding: text(header::ACCEPT_ENCODING).unwrap_or_default(),
            client_certificate: request
                .extensions()
                .get()
                .map(|ClientCertificate(der)| der.clone()),
            received: Instant::now(),
            bytes: AtomicUsize::new(0),
        }
    }

    /// The bytes of the answer's body so far, as they are sent: compressed, if they are.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn add_bytes(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Shared by the server and the test.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) cluster: watch::Sender<Cluster>,
    /// The outdated content of the watch cache; none while the cache is current.
    pub(super) cache: Mutex<Option<Cluster>>,
    /// How many connections were accepted.
    pub(super) connections: AtomicUsize,
    pub(super) faults: Mutex<Faults>,
    pub(super) is_cut: watch::Sender<bool>,
    /// Notified when the connections that are open should take no more requests.
    pub(super) retirement: watch::Sender<()>,
}

/// The configured faults, and the received requests.
#[derive(Debug)]
pub(super) struct Faults {
    pub(super) token: Option<String>,
    /// The only client certificate that is accepted, in DER.
    pub(super) certificate: Option<Vec<u8>>,
    pub(super) failures: VecDeque<u16>,
    /// The code with which all lists fail.
    pub(super) list_failure: Option<u16>,
    /// The pause that answers with an error ask for, in seconds.
    pub(super) retry_after: Option<u64>,
    pub(super) delay: Duration,
    pub(super) bookmark_interval: Duration,
    pub(super) longest_watch: Duration,
    /// The plurals of types whose watches get no bookmarks.
    pub(super) silent: BTreeSet<String>,
    /// The plurals of types whose watches get an error 410 next.
    pub(super) expired: BTreeSet<String>,
    /// Events that watches of a type get next, by its plural: their types, and objects in JSON.
    pub(super) events: BTreeMap<String, Vec<(String, String)>>,
    /// The answers to lists of a type, by its plural: the media type and the body.
    pub(super) lists: BTreeMap<String, (&'static str, String)>,
    /// The code for requests of a type, by its plural.
    pub(super) denied: BTreeMap<String, u16>,
    /// The users that reviews know, by their tokens.
    pub(super) users: BTreeMap<String, User>,
    pub(super) requests: Vec<Arc<Exchange>>,
    /// Whether there is a cache, which answers lists from any version as a whole.
    pub(super) has_cache: bool,
}

impl Default for Shared {
    fn default() -> Self {
        let faults = Faults {
            token: None,
            certificate: None,
            failures: VecDeque::new(),
            list_failure: None,
            retry_after: None,
            delay: Duration::ZERO,
            bookmark_interval: Duration::from_secs(60),
            longest_watch: Duration::from_secs(3600),
            silent: BTreeSet::new(),
            expired: BTreeSet::new(),
            events: BTreeMap::new(),
            lists: BTreeMap::new(),
            denied: BTreeMap::from([(Resource::EXTERNAL_WORKLOADS.plural.to_owned(), 404)]),
            users: BTreeMap::new(),
            requests: Vec::new(),
            has_cache: true,
        };
        Self {
            cluster: watch::Sender::new(Cluster::default()),
            cache: Mutex::default(),
            connections: AtomicUsize::new(0),
            faults: Mutex::new(faults),
            is_cut: watch::Sender::new(false),
            retirement: watch::Sender::new(()),
        }
    }
}
