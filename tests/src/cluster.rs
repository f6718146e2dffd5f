//! The cluster's state in tests, in one of two stores: a folder of manifests, and etcd.
//!
//! Neither uses code of the product. Manifests are text as `kubectl` prints it, and etcd holds Contiv's JSON, written by
//! `etcdctl`.

mod etcd;
mod manifests;
mod service;
mod service_manifest;

pub use etcd::{Backup, Etcd, EtcdClient, Isolation, ROOT};
pub use manifests::{Manifests, NodeManifest};
pub use service::{Frontend, PORT, Service, TARGET_PORT};
pub use service_manifest::{Hint, ServiceManifest};

use crate::lab::{Host, Result};

/// The namespace of all services of the tests.
pub const NAMESPACE: &str = "default";

/// A store that a test writes and an agent reads. Both nodes are in it from the start.
pub trait State {
    /// The URL for `--store`.
    fn url(&self) -> String;

    /// Creates or replaces a service and its endpoint slices.
    fn put(&self, service: &Service) -> Result<()>;

    /// Removes a service; its endpoint slices stay.
    fn delete(&self, service: &Service) -> Result<()>;

    /// Removes the Node object of a node.
    fn delete_node(&self, node: &Host) -> Result<()>;
}
