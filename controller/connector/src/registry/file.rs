//! A watched file with services, in YAML or JSON.
//!
//! A missing, empty, broken or incomplete file changes nothing: only a complete file can remove a service. A file that is being
//! written is read when its writer has closed it, or has renamed it into place.

mod format;
mod pending;
mod watcher;

use std::{convert::Infallible, fs, os::unix::fs::MetadataExt, path::PathBuf};

use futures::{FutureExt, future::BoxFuture};
use tokio::time::{Instant, sleep_until};

use super::{Publisher, Registry, RegistryError};
use pending::{Fingerprint, Pending};
use watcher::Watcher;

/// The maximum size of the file.
const LARGEST: u64 = 64 << 20;

/// A registry that is a file.
#[derive(Debug, Clone)]
pub struct FileRegistry {
    path: PathBuf,
}

impl FileRegistry {
    /// The file at this path, which may be created later.
    pub const fn new(path: PathBuf) -> Self {
        Self { path }
    }

    async fn run(&self, publisher: &Publisher) -> Result<Infallible, RegistryError> {
        let mut watcher = Watcher::new(&self.path).map_err(|error| self.error(error))?;
        let mut pending = Pending::new(self.fingerprint(), Instant::now());
        // The fingerprint of the last read, and whether it was usable.
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
