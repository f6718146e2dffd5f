//! Finds the manifests below a folder.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::{
        fd::OwnedFd,
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

use nix::{
    fcntl::{OFlag, openat},
    sys::stat::Mode,
};

use crate::url::Links;

/// The largest manifest that is read from a folder: several times a dump of 10,000 services, and small enough for the memory of
/// an agent. Parsed YAML can take twenty times the size of its text.
pub(crate) const SIZE_LIMIT: u64 = 32 << 20;

/// The maximum number of manifests in a folder.
const FILES_LIMIT: usize = 100_000;
/// The maximum depth of folders: far more than manifests need, and small enough for the stack.
const DEPTH_LIMIT: usize = 64;

impl Links {
    /// Checks that `path` is within `root` after resolving all links.
    ///
    /// # Errors
    /// When it leads out of the folder and may not; the error of the system call.
    pub(crate) fn check(self, root: &Path, path: &Path) -> io::Result<()> {
        self.resolve(root, path).map(drop)
    }

    /// The current target of `path`.
    fn resolve(self, root: &Path, path: &Path) -> io::Result<Target> {
        if self == Self::Anywhere {
            return Ok(Target::Anywhere(path.to_owned()));
        }
        let (root, target) = (fs::canonicalize(root)?, fs::canonicalize(path)?);
        if let Ok(inside) = target.strip_prefix(&root) {
            return Ok(Target::Inside {
                path: inside.to_owned(),
                root,
            });
        }
        let reason = format!(
            "it leads out of the folder, to {}; put it into the folder, or allow that with ?links=anywhere in the store's URL",
            target.display()
        );
        Err(io::Error::new(io::ErrorKind::PermissionDenied, reason))
    }
}

/// The target of a path.
#[derive(Debug)]
enum Target {
    Anywhere(PathBuf),
    /// The path has no links, and is relative to the root, which has none either.
    Inside {
        root: PathBuf,
        path: PathBuf,
    },
}

impl Target {
    fn metadata(&self) -> io::Result<fs::Metadata> {
        match self {
            Self::Anywhere(path) => fs::metadata(path),
            Self::Inside { root, path } => fs::metadata(root.join(path)),
        }
    }

    /// Opens the file for reading without blocking. A link that has taken the place of the file, or of a folder above it, does
    /// not lead out of the root.
    fn open(&self) -> io::Result<File> {
        let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        match self {
            Self::Anywhere(path) => OpenOptions::new()
                .read(true)
                .custom_flags(flags.bits())
                .open(path),
            Self::Inside { root, path } => {
                // One folder after the other, and not by openat2: the units' RestrictSUIDSGID= forbids that, since seccomp does
                // not see its flags.
                let open = |folder, name: &OsStr, flags| {
                    openat(
                        folder,
                        name,
                        flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC,
                        Mode::empty(),
                    )
                };
                let mut folder = OwnedFd::from(File::open(root)?);
                for name in path.parent().unwrap_or(path) {
                    folder = open(folder, name, OFlag::O_PATH | OFlag::O_DIRECTORY)?;
                }
                Ok(open(folder, path.file_name().unwrap_or_default(), flags)?.into())
            }
        }
    }
}

/// True for the file names of manifests: `*.yaml`, `*.yml` or `*.json`, and not hidden.
pub(crate) fn is_manifest(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    !is_hidden(path) && matches!(extension, Some("yaml" | "yml" | "json"))
}

/// True if a name begins with a dot: files of editors and version control, and the folders behind the links of a mounted
/// `ConfigMap`.
pub(crate) fn is_hidden(path: &Path) -> bool {
    path.file_name()
        .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// The result of a walk.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// The manifests.
    pub(crate) files: BTreeSet<PathBuf>,
    /// Manifests that can be written through another path: symbolic links, and files with several hard links.
    pub(crate) links: Vec<PathBuf>,
    /// Folders that could not be read, and links that lead out of the folder. Their content is unknown.
    pub(crate) unreadable: Vec<(PathBuf, io::Error)>,
}

/// Finds every manifest below `root`. Symbolic links are followed as far as `links` allows, but no folder is entered twice.
/// Hidden files and folders are left out. `enter` is called for each folder before it is read.
///
/// # Errors
/// When `root` itself cannot be read.
pub(crate) fn walk(
    root: &Path,
    links: Links,
    enter: impl FnMut(&Path) -> io::Result<()>,
) -> io::Result<Walk> {
    let mut walker = Walker {
        root,
        links,
        enter,
        entered: BTreeSet::new(),
        found: Walk::default(),
    };
    walker.read_folder(root, 0)?;
    Ok(walker.found)
}

struct Walker<'a, F> {
    root: &'a Path,
    links: Links,
    enter: F,
    entered: BTreeSet<PathBuf>,
    found: Walk,
}

impl<F: FnMut(&Path) -> io::Result<()>> Walker<'_, F> {
    fn read_folder(&mut self, folder: &Path, depth: usize) -> io::Result<()> {
        if depth > DEPTH_LIMIT {
            let reason = format!("more than {DEPTH_LIMIT} folders in one another; move it up");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        if !self.entered.insert(fs::canonicalize(folder)?) {
            return Ok(());
        }
        (self.enter)(folder)?;
        let mut children = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
        children.sort_by_key(fs::DirEntry::file_name);
        for child in children {
            let path = child.path();
            if is_hidden(&path) {
                continue;
            }
            let is_link = child.file_type()?.is_symlink();
            // Removed again, or a dangling link: the latter is reported when it is read as a file.
            let target = fs::metadata(&path).ok();
            let is_folder = target.as_ref().is_some_and(fs::Metadata::is_dir);
            if !is_folder && !is_manifest(&path) {
                continue;
            }
            if is_link
                && target.is_some()
                && let Err(error) = self.links.check(self.root, &path)
            {
                self.found.unreadable.push((path, error));
            } else if is_folder {
                if let Err(error) = self.read_folder(&path, depth + 1) {
                    self.found.unreadable.push((path, error));
                }
            } else if self.found.files.len() == FILES_LIMIT {
                let reason = format!("more than {FILES_LIMIT} manifests; what follows is not read");
                let error = io::Error::new(io::ErrorKind::QuotaExceeded, reason);
                self.found.unreadable.push((folder.to_owned(), error));
                return Ok(());
            } else {
                if is_link || target.is_some_and(|target| target.nlink() > 1) {
                    self.found.links.push(path.clone());
                }
                self.found.files.insert(path);
            }
        }
        Ok(())
    }
}

/// Reads the text of a manifest found by a walk of `root`. It never blocks, and reads at most [`SIZE_LIMIT`] and `budget`, the
/// rest of the limit for all manifests together.
///
/// # Errors
/// The error of the system call; a link that leads out of the folder and may not; "invalid data" for content that is not text,
/// "invalid input" for a special file, and "file too large".
pub(crate) fn read_text(path: &Path, root: &Path, links: Links, budget: u64) -> io::Result<String> {
    let target = links.resolve(root, path)?;
    check_file(&target.metadata()?, budget)?;
    // It may have become another file since.
    let file = target.open()?;
    let metadata = file.metadata()?;
    check_file(&metadata, budget)?;
    let mut text = String::new();
    // Files of /proc report a size of zero, and some never end or block.
    if metadata.len() > 0 {
        let limit = SIZE_LIMIT.min(budget);
        let size = file.take(limit + 1).read_to_string(&mut text)?;
        check_size(size as u64, budget)?;
    }
    Ok(text)
}

fn check_file(metadata: &fs::Metadata, budget: u64) -> io::Result<()> {
    if !metadata.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ));
    }
    check_size(metadata.len(), budget)
}

fn check_size(size: u64, budget: u64) -> io::Result<()> {
    let reason = if size > SIZE_LIMIT {
        format!(
            "the file is too large; at most {} MiB are read: split it",
            SIZE_LIMIT >> 20
        )
    } else if size > budget {
        "all manifests of the folder together are too large; remove files that are not needed"
            .to_owned()
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::FileTooLarge, reason))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_inside_the_folder_are_read_relative_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("..data")).unwrap();
        fs::write(root.join("..data/web.yaml"), "inside").unwrap();
        fs::write(folder.path().join("web.yaml"), "outside").unwrap();
        symlink("..data/web.yaml", root.join("relative.yaml")).unwrap();
        symlink(root.join("..data/web.yaml"), root.join("absolute.yaml")).unwrap();
        symlink("../web.yaml", root.join("out.yaml")).unwrap();
        // The folder itself may be a link.
        symlink("root", folder.path().join("link")).unwrap();
        for root in [root, folder.path().join("link")] {
            let read = |name, links| read_text(&root.join(name), &root, links, SIZE_LIMIT);
            for name in ["relative.yaml", "absolute.yaml", "..data/web.yaml"] {
                assert_eq!(read(name, Links::Inside).unwrap(), "inside", "{name}");
            }
            assert_eq!(
                read("out.yaml", Links::Inside).unwrap_err().kind(),
                io::ErrorKind::PermissionDenied
            );
            assert_eq!(read("out.yaml", Links::Anywhere).unwrap(), "outside");
        }
    }

    #[test]
    fn link_exchanged_while_it_is_read_does_not_lead_out() {
        let folder = tempfile::tempdir().unwrap();
        let (root, outside) = (folder.path().join("root"), folder.path().join("outside"));
        for folder in [&root.join("inside"), &outside] {
            fs::create_dir_all(folder).unwrap();
            fs::write(
                folder.join("file"),
                folder.file_name().unwrap().as_encoded_bytes(),
            )
            .unwrap();
        }
        let link = root.join("web.yaml");
        symlink("inside/file", &link).unwrap();
        let target = Links::Inside.resolve(&root, &link).unwrap();
        let exchange = |path: &Path, target: &str| {
            fs::rename(path, folder.path().join("before")).unwrap();
            symlink(target, path).unwrap();
        };
        let put_back = |path: &Path| {
            fs::remove_file(path).unwrap();
            fs::rename(folder.path().join("before"), path).unwrap();
        };
        // The link itself does not count any more.
        exchange(&link, "../outside/file");
        let mut text = String::new();
        target.open().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "inside");
        put_back(&link);
        // The target of the link is exchanged: the file, or the folder with it.
        let exchanges = [
            ("inside/file", "../../outside/file", nix::libc::ELOOP),
            ("inside", "../outside", nix::libc::ENOTDIR),
        ];
        for (path, outwards, refusal) in exchanges {
            let path = root.join(path);
            exchange(&path, outwards);
            assert_eq!(fs::read_to_string(&link).unwrap(), "outside");
            assert_eq!(
                target.open().unwrap_err().raw_os_error(),
                Some(refusal),
                "{outwards}"
            );
            put_back(&path);
        }
    }
}
