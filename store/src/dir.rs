//! The embedded backend: a folder of manifests, watched.
//!
//! - Every `*.yaml`, `*.yml` and `*.json` below the folder is read. Objects have the same keys and values as in etcd.
//! - A change becomes visible when its writer closes the file or renames it into place, never a part of it.
//! - Unreadable objects are not deleted: an invalid object keeps its last good state, and so do all objects of a file of which
//!   some part cannot be parsed. The problem is reported and does not affect other files. Files that are invalid from the start
//!   have the state that an earlier run saved.
//! - Where two files define one object, the file with the smaller path is used.
//! - Revisions count changes since the folder was opened. A folder does not show the order in which its objects were created,
//!   so all have the same creation revision.
//! - Writers of the folder cannot stop its reader: only regular files up to a limit are read, and links are not followed out of
//!   the folder unless that is allowed.

mod file;
mod folder;
mod history;
mod index;
mod options;
mod owner;
mod pending;
mod watcher;
mod write;

use std::path::Path;

use futures::{FutureExt, future::BoxFuture};
use tokio::sync::{mpsc, oneshot};

use crate::{Snapshot, Store, StoreError, Transaction, WatchStream};
use owner::Command;

pub use options::{DirOptions, LoadSaved};

/// A store in a folder of manifests. A thread owns its state, and this handle sends commands to it.
#[derive(Debug, Clone)]
pub struct DirStore {
    path: String,
    commands: mpsc::Sender<Command>,
}

impl DirStore {
    /// Reads the folder and watches it until the store and all its clones are dropped.
    ///
    /// # Errors
    /// When `path` is not a folder or cannot be read or watched. Invalid manifests are not an error.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_with(path, DirOptions::default()).await
    }

    /// As [`DirStore::open`], with options.
    ///
    /// # Errors
    /// As [`DirStore::open`].
    pub async fn open_with(path: &Path, options: DirOptions) -> Result<Self, StoreError> {
        let commands = owner::start(path, options).await?;
        Ok(Self {
            path: path.display().to_string(),
            commands,
        })
    }

    /// Sends a command to the owner and awaits its answer.
    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, StoreError> {
        let gone = || StoreError::Unavailable {
            endpoint: format!("dir:{}", self.path),
            reason: "the thread that watches the folder has ended".to_owned(),
        };
        let (reply, answer) = oneshot::channel();
        self.commands
            .send(command(reply))
            .await
            .map_err(|_| gone())?;
        answer.await.map_err(|_| gone())
    }
}

impl Store for DirStore {
    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Snapshot, StoreError>> {
        self.ask(|reply| Command::List {
            prefix: prefix.to_owned(),
            reply,
        })
        .boxed()
    }

    fn watch<'a>(
        &'a self,
        prefix: &'a str,
        revision: i64,
    ) -> BoxFuture<'a, Result<WatchStream, StoreError>> {
        let answer = self.ask(move |reply| Command::Watch {
            prefix: prefix.to_owned(),
            revision,
            reply,
        });
        answer.map(Result::flatten).boxed()
    }

    fn transact(&self, transaction: Transaction) -> BoxFuture<'_, Result<i64, StoreError>> {
        let answer = self.ask(|reply| Command::Commit { transaction, reply });
        answer.map(Result::flatten).boxed()
    }
}
