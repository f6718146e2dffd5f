//! Where the state of contiv lives: one [`Store`] trait, with etcd and a folder of manifests behind it.

pub mod dir;
pub mod error;
pub mod etcd;
pub mod feed;
pub mod manifest;
pub mod store;
pub mod url;

pub use error::{Problem, StoreError};
pub use store::{Batch, Change, Entry, Operation, Snapshot, Store, WatchEvent, WatchStream};
