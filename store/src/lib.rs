//! The stores of contiv: one trait, [`Store`], with etcd, a folder of manifests and a Kubernetes API server behind
//! it.
//!
//! - [`url`] parses store URLs; [`open()`] opens the store of a URL.
//! - [`etcd`], [`dir`] and [`mod@kube`] are the backends. All hold the same keys and the same values, those of Contiv.
//! - [`feed`] lists and watches a store: snapshot, changes, reconnects.
//! - [`mirror`] saves the last good state on disk.
//! - [`manifest`] turns Kubernetes manifests into stored objects and back.
//!
//! Each backend is a feature (`etcd`, `folder`, `kube`), and so are `manifest`, which the last two need, and `mirror`. All are on by
//! default. [`open()`] needs all: a program with one backend constructs its store.

mod backoff;
mod certificate;
pub mod change;
#[cfg(feature = "folder")]
pub mod dir;
pub mod error;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod feed;
mod file_versions;
#[cfg(all(feature = "manifest", any(test, fuzzing)))]
pub mod fuzz;
pub mod inconsistency;
#[cfg(feature = "kube")]
pub mod kube;
#[cfg(feature = "manifest")]
pub mod manifest;
#[cfg(feature = "mirror")]
pub mod mirror;
#[cfg(all(
    feature = "etcd",
    feature = "folder",
    feature = "kube",
    feature = "mirror"
))]
mod open;
#[cfg(feature = "mirror")]
mod packed;
mod page;
pub mod position;
pub mod resume;
pub mod store;
pub mod url;

pub use backoff::Backoff;
pub use certificate::with_certificate_hint;
pub use change::{Batch, Change, Entry, Snapshot};
pub use error::{Problem, StoreError};
pub use feed::{Delivery, Feed, FeedEvent, FeedHandle, ListPart};
pub use file_versions::FileVersions;
pub use inconsistency::Inconsistency;
#[cfg(feature = "mirror")]
pub use mirror::{Mirror, MirrorError, MirrorSummary, QuarantinedFile, Saved};
#[cfg(all(
    feature = "etcd",
    feature = "folder",
    feature = "kube",
    feature = "mirror"
))]
pub use open::{NodeScope, open, open_as_node, open_for_node};
#[cfg(feature = "mirror")]
pub use packed::PackedEntries;
pub use page::PageSender;
pub use position::{Position, WrittenKey};
pub use resume::{ResumePoint, SavedStart, StoreIdentity};
pub use store::{
    Condition, LeaseId, Leases, Operation, Store, TRANSACTION_BYTES, TRANSACTION_LIMIT,
    Transaction, TransactionSize, WatchEvent, WatchStream, commit_in_chunks,
};
pub use url::{AgentScope, StoreUrl};
