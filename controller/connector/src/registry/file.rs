//! A file with services, in YAML or JSON, that is watched.
//!
//! A file that is missing, empty, broken or half-written changes nothing: only a complete file that says so takes a service
//! away. One that is being written is read when its writer has closed it, or has renamed it into place.

mod format;
mod pending;
mod watcher;

use std::{convert::Infallible, fs, os::unix::fs::MetadataExt, path::PathBuf, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use tokio::time::{Instant, sleep_until};

use super::{Publisher, Registry, RegistryError};
use pending::Pending;
use watcher::Watcher;

/// No file is larger.
const LARGEST: u64 = 64 << 20;

/// A registry that is a file.
#[derive(Debug, Clone)]
pub struct FileRegistry {
    path: PathBuf,
}

/// What the file system says of a file; another value means that it may have changed.
type Fingerprint = [i64; 5];

impl FileRegistry {
    /// The file at this path, which may come later.
    pub const fn new(path: PathBuf) -> Self {
        Self { path }
    }

    async fn run(&self, publisher: &Publisher) -> Result<Infallible, RegistryError> {
        let mut watcher = Watcher::new(&self.path).map_err(|error| self.error(error))?;
        let mut pending = Pending::new(self.fingerprint(), Instant::now());
        // What was read last, and whether that was any good.
        let mut read = None;
        let mut is_broken = false;
        loop {
            tokio::select! {
                signal = watcher.next() => {
                    let signal = signal.map_err(|error| self.error(error))?;
                    pending.note(signal, Instant::now());
                }
                () = sleep_until(pending.deadline()) => {
                    let now = self.fingerprint();
                    if !pending.is_due(now, Instant::now()) || (read == Some(now) && !is_broken) {
                        continue;
                    }
                    match self.read(publisher) {
                        Ok(()) => is_broken = false,
                        // Reported once for each state of the file.
                        Err(error) if read != Some(now) || !is_broken => {
                            publisher.failed(&error);
                            is_broken = true;
                        }
                        Err(_) => {}
                    }
                    read = Some(now);
                }
            }
        }
    }

    fn read(&self, publisher: &Publisher) -> Result<(), RegistryError> {
        if fs::metadata(&self.path).is_ok_and(|of| of.len() > LARGEST) {
            return Err(self.error(format!("it is larger than {} MiB", LARGEST >> 20)));
        }
        let text = fs::read_to_string(&self.path).map_err(|error| self.error(error))?;
        let catalog = format::parse(&text).map_err(|reason| self.error(reason))?;
        publisher.publish(catalog);
        Ok(())
    }

    /// None if there is no file.
    fn fingerprint(&self) -> Option<Fingerprint> {
        let of = fs::metadata(&self.path).ok()?;
        Some([of.mtime(), of.mtime_nsec(), of.ctime_nsec(), of.ino().cast_signed(), of.len().cast_signed()])
    }

    fn error(&self, reason: impl ToString) -> RegistryError {
        RegistryError::new(self.path.display().to_string(), reason)
    }
}

impl Registry for FileRegistry {
    fn follow<'a>(&'a self, publisher: &'a Publisher) -> BoxFuture<'a, RegistryError> {
        async move {
            let Err(error) = self.run(publisher).await;
            error
        }
        .boxed()
    }
}

/// How often a file is looked at of whose changes nothing is heard: one on a network, or behind a link.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
