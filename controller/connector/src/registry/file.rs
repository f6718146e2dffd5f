//! A watched file with services, in YAML or JSON.
//!
//! A missing, empty, broken or incomplete file changes nothing: only a complete file can remove a service. A file that is being
//! written is read when its writer has closed it, or has renamed it into place.

mod format;
mod pending;
mod watcher;

use std::{convert::Infallible, fs, os::unix::fs::MetadataExt, path::PathBuf};

use futures::{FutureExt, future::BoxFuture};
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep_until},
};

use super::{Publisher, Registry, RegistryError};
use crate::catalog::Catalog;
use pending::{Fingerprint, Pending};
use watcher::Watcher;

/// The maximum size of the file.
const MAX_FILE_BYTES: u64 = 64 << 20;

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
                    match self.read().await {
                        Ok(catalog) => {
                            publisher.publish(catalog);
                            is_broken = false;
                        }
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

    /// Reads the file in a thread for blocking work. A file of 64 MiB, or one on a network, takes so long that the runtime could
    /// not renew the lease meanwhile.
    async fn read(&self) -> Result<Catalog, RegistryError> {
        let registry = self.clone();
        let read = spawn_blocking(move || registry.read_now()).await;
        read.map_err(|error| self.error(format!("it was not read: {error}")))?
    }

    fn read_now(&self) -> Result<Catalog, RegistryError> {
        if fs::metadata(&self.path).is_ok_and(|of| of.len() > MAX_FILE_BYTES) {
            return Err(self.error(format!("it is larger than {} MiB", MAX_FILE_BYTES >> 20)));
        }
        let text = fs::read_to_string(&self.path).map_err(|error| self.error(error))?;
        format::parse(&text).map_err(|reason| self.error(reason))
    }

    /// None if there is no file.
    fn fingerprint(&self) -> Option<Fingerprint> {
        let of = fs::metadata(&self.path).ok()?;
        Some([
            of.mtime(),
            of.mtime_nsec(),
            of.ctime_nsec(),
            of.ino().cast_signed(),
            of.len().cast_signed(),
        ])
    }

    fn error(&self, reason: impl ToString) -> RegistryError {
        RegistryError::new(self.path.display().to_string(), reason)
    }
}

impl Registry for FileRegistry {
    fn watch<'a>(&'a self, publisher: &'a Publisher) -> BoxFuture<'a, RegistryError> {
        async move {
            let Err(error) = self.run(publisher).await;
            error
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::OpenOptions, io::Write, process::Command, sync::mpsc, thread, time::Duration};

    use tokio::sync::oneshot;

    use super::*;

    /// A pipe serves as a file that is slow to read: its reader waits for the writer, and the writer for a message of the
    /// runtime.
    #[tokio::test]
    async fn slow_file_does_not_block_the_runtime() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("services.yaml");
        assert!(
            Command::new("mkfifo")
                .arg(&path)
                .status()
                .unwrap()
                .success()
        );
        let (opened, is_opened) = oneshot::channel();
        let (sign, signs) = mpsc::channel();
        let pipe = path.clone();
        let writer = thread::spawn(move || {
            // Waits for the reader.
            let mut pipe = OpenOptions::new().write(true).open(pipe).unwrap();
            opened.send(()).unwrap();
            let is_alive = signs.recv_timeout(Duration::from_secs(10)).is_ok();
            pipe.write_all(b"services: []\n").unwrap();
            is_alive
        });
        let registry = FileRegistry::new(path);
        let give_sign = async {
            is_opened.await.unwrap();
            // A writer that no longer waits fails the test below.
            let _ = sign.send(());
        };
        let (catalog, ()) = tokio::join!(registry.read(), give_sign);
        assert!(
            writer.join().unwrap(),
            "the runtime stood still while the file was read"
        );
        assert_eq!(catalog, Ok(Catalog::new()));
    }
}
