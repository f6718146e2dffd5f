//! The state shared by the server and the test.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::{cluster::Cluster, resource::Resource};

/// Shared by the server and the test.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) cluster: watch::Sender<Cluster>,
    pub(super) faults: Mutex<Faults>,
    pub(super) is_cut: watch::Sender<bool>,
}

/// The configured faults, and the received requests.
#[derive(Debug)]
pub(super) struct Faults {
    pub(super) token: Option<String>,
    pub(super) failures: VecDeque<u16>,
    /// The code with which all lists fail.
    pub(super) list_failure: Option<u16>,
    pub(super) delay: Duration,
    pub(super) bookmark_interval: Duration,
    pub(super) longest_watch: Duration,
    /// The plurals of types whose watches get no bookmarks.
    pub(super) silent: BTreeSet<String>,
    /// The code for requests of a type, by its plural.
    pub(super) denied: BTreeMap<String, u16>,
    pub(super) requests: Vec<String>,
}

impl Default for Shared {
    fn default() -> Self {
        let faults = Faults {
            token: None,
            failures: VecDeque::new(),
            list_failure: None,
            delay: Duration::ZERO,
            bookmark_interval: Duration::from_secs(60),
            longest_watch: Duration::from_secs(3600),
            silent: BTreeSet::new(),
            denied: BTreeMap::from([(Resource::EXTERNAL_WORKLOADS.plural.to_owned(), 404)]),
            requests: Vec::new(),
        };
        Self {
            cluster: watch::Sender::new(Cluster::default()),
            faults: Mutex::new(faults),
            is_cut: watch::Sender::new(false),
        }
    }
}
