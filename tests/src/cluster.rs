//! What a test says of the cluster, and the two places where it can say it: a folder of manifests, and etcd.
//!
//! Neither uses code of the product. Manifests are text as `kubectl` prints it, and what goes to etcd is Contiv's JSON,
//! written by `etcdctl` as any other client would.

mod etcd;
mod manifests;
mod service;
mod service_manifest;

pub use etcd::{Backup, Etcd, EtcdClient, Isolation, ROOT};
pub use manifests::{Manifests, NodeManifest};
pub use service::{Frontend, PORT, Service, TARGET_PORT};
pub use service_manifest::{Hint, ServiceManifest};

use crate::lab::Result;

/// The namespace of all services of the tests.
pub const NAMESPACE: &str = "default";

/// A store that a test can write to and an agent can read from. Both nodes are in it from the start.
pub trait State {
    /// As in `--store URL`.
    fn url(&self) -> String;

    /// Writes a service and its endpoint slices, whether they are there or not.
    fn put(&self, service: &Service) -> Result<()>;

    /// Removes a service; its endpoint slices stay.
    fn delete(&self, service: &Service) -> Result<()>;
}
