//! Requests to the thread that deletes stale flows, and its counters.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::{Arc, atomic::AtomicUsize},
};

use contiv_model::{ContivService, ServiceChange, ServiceId};

use super::backends::Backends;
use crate::nftables::FrontendKey;

/// Services by their id.
pub(crate) type Services = BTreeMap<ServiceId, Arc<ContivService>>;

/// A message to the thread.
#[derive(Debug)]
pub(super) enum Request {
    /// These services are about to be programmed.
    Coming(Vec<Arc<ContivService>>),
    /// These changes were programmed.
    Changed(BTreeMap<ServiceId, ServiceChange>),
    /// Everything was programmed.
    Reconciled {
        /// Earlier states of services that may have changed: of all after a resync, and of those in lost requests.
        before: Services,
        services: Services,
        node_ips: BTreeSet<IpAddr>,
        /// The backends that were programmed before, by whichever process.
        found: Vec<(FrontendKey, Backends)>,
    },
}

/// Counters since the start.
#[derive(Debug, Default)]
pub(super) struct Totals {
    /// Dumps of the flows of one family and protocol, including repeated ones.
    pub(super) searches: AtomicUsize,
    pub(super) deleted: AtomicUsize,
    pub(super) failures: AtomicUsize,
}
