//! The agent's folder on disk, used by one agent at a time.

mod pods;

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read, Seek, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use nix::{errno::Errno, fcntl::OFlag};
use thiserror::Error;
use tracing::warn;

pub use pods::{PodsFile, attached_pods};

const LOCK_FILE: &str = "agent.lock";

/// Why the folder cannot be used.
#[derive(Debug, Error)]
pub enum StateDirError {
    /// The folder, or the lock in it, cannot be created.
    #[error(
        "failed to {action} {path}: {source}; choose another folder with --state-dir, or run as root"
    )]
    File {
        /// Such as "create".
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The link's target would be overwritten.
    #[error(
        "{path} is a symbolic link, and no lock file: remove it, or choose another folder with --state-dir"
    )]
    Link {
        /// The link.
        path: PathBuf,
    },
    /// Two agents would fight over one node.
    #[error(
        "another agent (pid {pid}) holds {path}: stop it first, or give this one a folder of its own with --state-dir"
    )]
    InUse {
        /// The pid in the lock file.
        pid: String,
        /// The lock file.
        path: PathBuf,
    },
}

/// The folder, locked until this value is dropped. The kernel releases the lock when the process ends.
#[derive(Debug)]
pub struct StateDir {
    _lock: File,
}

impl StateDir {
    /// Creates the folder if necessary, and locks it. A full or read-only disk must not leave a node without services, so it is
    /// no error.
    ///
    /// # Errors
    /// When it cannot be created or opened, or another agent uses it.
    pub fn lock(folder: &Path) -> Result<Self, StateDirError> {
        let failed = |action, path: &Path| {
            let path = path.to_owned();
            move |source| StateDirError::File {
                action,
                path,
                source,
            }
        };
        fs::create_dir_all(folder).map_err(failed("create", folder))?;
        let path = folder.join(LOCK_FILE);
        let mut options = fs::OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(OFlag::O_NOFOLLOW.bits());
        let (mut file, can_be_written) = match options.open(&path) {
            Err(error) if is_link(&error) => return Err(StateDirError::Link { path }),
            Err(error) if is_disk_failure(&error) => {
                warn!(path = %path.display(), %error, "nothing can be saved in the state folder");
                (open_to_read(folder).map_err(failed("open", folder))?, false)
            }
            opened => (opened.map_err(failed("open", &path))?, true),
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StateDirError::InUse {
                    pid: holder(&mut file),
                    path,
                });
            }
            Err(TryLockError::Error(source)) => return Err(failed("lock", &path)(source)),
        }
        let note = |file: &mut File| {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        if can_be_written && let Err(error) = note(&mut file) {
            // The lock is held all the same.
            warn!(path = %path.display(), %error, "nothing can be saved in the state folder");
        }
        Ok(Self { _lock: file })
    }
}

fn is_disk_failure(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
    )
}

/// The error of `O_NOFOLLOW` for a symbolic link.
fn is_link(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::ELOOP as i32)
}

/// The lock file; if it cannot be created, the folder itself can be locked.
fn open_to_read(folder: &Path) -> io::Result<File> {
    let mut options = fs::OpenOptions::new();
    options.read(true).custom_flags(OFlag::O_NOFOLLOW.bits());
    options
        .open(folder.join(LOCK_FILE))
        .or_else(|_| File::open(folder))
}

fn holder(file: &mut File) -> String {
    let mut pid = String::new();
    match file.read_to_string(&mut pid) {
        Ok(_) if !pid.trim().is_empty() => pid.trim().to_owned(),
        _ => "unknown".to_owned(),
    }
}

/// The pid of the agent that uses the folder, if any.
pub fn holder_of(folder: &Path) -> Option<String> {
    let mut file = open_to_read(folder).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Some(holder(&mut file)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_folder_is_locked_while_an_agent_uses_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        assert_eq!(holder_of(&path), None);
        let first = StateDir::lock(&path).unwrap();
        let error = StateDir::lock(&path).unwrap_err().to_string();
        let own_pid = std::process::id().to_string();
        assert!(
            error.contains(&format!("pid {own_pid}")) && error.contains("agent.lock"),
            "{error}"
        );
        assert_eq!(holder_of(&path), Some(own_pid));
        drop(first);
        assert_eq!(holder_of(&path), None);
        StateDir::lock(&path).unwrap();
    }

    #[test]
    fn symbolic_link_as_lock_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (target, dangling) = (folder.path().join("target"), folder.path().join("dangling"));
        fs::write(&target, "precious").unwrap();
        for target in [&target, &dangling] {
            let state = tempfile::tempdir().unwrap();
            std::os::unix::fs::symlink(target, state.path().join(LOCK_FILE)).unwrap();
            let error = StateDir::lock(state.path()).unwrap_err().to_string();
            assert!(error.contains("agent.lock is a symbolic link"), "{error}");
            assert_eq!(holder_of(state.path()), None);
        }
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
        assert!(!dangling.exists());
    }

    #[test]
    fn error_for_an_unusable_state_folder_names_the_flag() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = StateDir::lock(&file.join("state")).unwrap_err().to_string();
        assert!(
            error.contains("--state-dir") && error.contains("file/state"),
            "{error}"
        );
    }
}
