//! The cluster's state in tests, in one of two stores: a folder of manifests, and etcd.
//!
//! Neither uses code of the product. Manifests are text as `kubectl` prints it, and etcd holds Contiv's JSON, written by
//! `etcdctl`.

mod etcd;
mod manifests;
mod service;
mod service_manifest;
mod state;

pub use etcd::{Backup, Etcd, EtcdClient, Isolation, ROOT};
pub use manifests::{Manifests, NodeManifest};
pub use service::{Frontend, PORT, Service, TARGET_PORT};
pub use service_manifest::{Hint, ServiceManifest};
pub use state::{NAMESPACE, State};
