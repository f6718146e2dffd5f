//! Notices that files have been written or replaced.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Inode, times of modification and of change with nanoseconds, and size; none if there is no file.
type Version = Option<(u64, (i64, i64), (i64, i64), u64)>;

/// The versions of some files at one moment. Symbolic links are followed, so a changed link counts too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileVersions(BTreeMap<PathBuf, Version>);

impl FileVersions {
    /// The present versions of these files.
    pub fn read<P: AsRef<Path>>(files: impl IntoIterator<Item = P>) -> Self {
        let mut versions = Self::default();
        versions.add(files);
        versions
    }

    /// Adds the present versions of more files.
    pub fn add<P: AsRef<Path>>(&mut self, files: impl IntoIterator<Item = P>) {
        let of_a_file = |file: P| (file.as_ref().to_owned(), version(file.as_ref()));
        self.0.extend(files.into_iter().map(of_a_file));
    }

    /// The present versions of the same files.
    #[must_use]
    pub fn read_again(&self) -> Self {
        Self::read(self.0.keys())
    }
}

fn version(file: &Path) -> Version {
    let metadata = fs::metadata(file).ok()?;
    let modified = (metadata.mtime(), metadata.mtime_nsec());
    Some((
        metadata.ino(),
        modified,
        (metadata.ctime(), metadata.ctime_nsec()),
        metadata.size(),
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn written_replaced_and_removed_files_have_other_versions() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["one", "other"] {
            fs::write(at(name), name).unwrap();
        }
        symlink(at("one"), at("link")).unwrap();
        let mut before = FileVersions::read([at("link"), at("missing")]);
        assert_eq!(before.read_again(), before);
        let is_changed = |before: &mut FileVersions| {
            let now = before.read_again();
            std::mem::replace(before, now.clone()) != now
        };
        fs::write(at("one"), "longer").unwrap();
        assert!(is_changed(&mut before));
        symlink(at("other"), at("new")).unwrap();
        fs::rename(at("new"), at("link")).unwrap();
        assert!(is_changed(&mut before));
        fs::remove_file(at("other")).unwrap();
        assert!(is_changed(&mut before));
        fs::write(at("missing"), "").unwrap();
        assert!(is_changed(&mut before));
        assert!(!is_changed(&mut before));
    }
}
