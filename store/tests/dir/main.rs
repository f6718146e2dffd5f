//! The folder store as its users see it: files change, and the watch reports changes of objects.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails"
)]

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use contiv_store::{
    Batch, Change, Condition, Entry, Operation, Problem, Store, StoreError, Transaction,
    WatchEvent, WatchStream,
    dir::{DirOptions, DirStore, LoadSaved},
    manifest::Links,
};
use futures::StreamExt;
use tempfile::TempDir;
use tokio::time::{Instant, timeout};

mod broken;
mod commit;
mod edits;
mod folder;
mod hostile;
mod trees;

const ROOT: &str = "/vnf-agent/contiv-ksr/";
