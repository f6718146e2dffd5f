//! The stores of contiv: one trait, [`Store`], with etcd, a folder of manifests and a Kubernetes API server behind
//! it.
//!
//! - [`url`] parses store URLs; [`open()`] opens the store of a URL.
//! - [`etcd`], [`dir`] and [`mod@kube`] are the backends. All hold the same keys and the same values, those of Contiv.
//! - [`feed`] lists and watches a store: snapshot, changes, reconnects.
//! - [`mirror`] saves the last good state on disk.
//! - [`manifest`] turns Kubernetes manifests into stored objects and back.

mod backoff;
mod certificate;
pub mod change;
pub mod dir;
pub mod error;
pub mod etcd;
pub mod feed;
mod file_versions;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod inconsistency;
pub mod kube;
pub mod manifest;
pub mod mirror;
mod open;
mod packed;
mod page;
pub mod position;
pub mod store;
pub mod url;

pub use backoff::Backoff;
pub use certificate::with_certificate_hint;
pub use change::{Batch, Change, Entry, Snapshot};
pub use error::{Problem, StoreError};
pub use feed::{Delivery, Feed, FeedEvent, FeedHandle, ListPart};
pub use file_versions::FileVersions;
pub use inconsistency::Inconsistency;
pub use mirror::{Mirror, MirrorError, MirrorSummary, QuarantinedFile, Saved};
pub use open::{NodeScope, open, open_for_node};
pub use packed::PackedEntries;
pub use page::PageSender;
pub use position::{Position, WrittenKey};
pub use store::{
    Condition, LeaseId, Leases, Operation, Store, TRANSACTION_BYTES, TRANSACTION_LIMIT,
    Transaction, TransactionSize, WatchEvent, WatchStream, commit_in_chunks,
};
pub use url::StoreUrl;
