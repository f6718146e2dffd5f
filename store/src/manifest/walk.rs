//! Which files below a folder are manifests.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

/// Whether a file's name says that it holds manifests: `*.yaml`, `*.yml` or `*.json`, and not hidden.
pub(crate) fn is_manifest(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    !is_hidden(path) && matches!(extension, Some("yaml" | "yml" | "json"))
}

/// Whether a name begins with a dot: editors' and version control's own files, and the folders behind the links of a
/// mounted `ConfigMap`.
pub(crate) fn is_hidden(path: &Path) -> bool {
    path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// What a walk found.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// The manifests.
    pub(crate) files: BTreeSet<PathBuf>,
    /// Those of them that are symbolic links.
    pub(crate) links: Vec<PathBuf>,
    /// Folders that could not be read. What is below them is unknown.
    pub(crate) unreadable: Vec<(PathBuf, io::Error)>,
}

/// Finds every manifest below `root`. Symbolic links are followed, but no folder is entered twice. Hidden files and
/// folders are left out. `enter` is called for each folder before it is read.
///
/// # Errors
/// When `root` itself cannot be read.
pub(crate) fn walk(root: &Path, mut enter: impl FnMut(&Path) -> io::Result<()>) -> io::Result<Walk> {
    let mut found = Walk::default();
    let mut entered = BTreeSet::new();
    read_folder(root, &mut enter, &mut entered, &mut found)?;
    Ok(found)
}

fn read_folder(
    folder: &Path,
    enter: &mut impl FnMut(&Path) -> io::Result<()>,
    entered: &mut BTreeSet<PathBuf>,
    found: &mut Walk,
) -> io::Result<()> {
    if !entered.insert(fs::canonicalize(folder)?) {
        return Ok(());
    }
    enter(folder)?;
    let mut children = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    children.sort_by_key(fs::DirEntry::file_name);
    for child in children {
        let path = child.path();
        if is_hidden(&path) {
            continue;
        }
        let is_link = child.file_type()?.is_symlink();
        let is_folder = match fs::metadata(&path) {
            Ok(target) => target.is_dir(),
            // Gone again, or a link to nothing: the latter is reported when it is read as a file.
            Err(_) => false,
        };
        if is_folder {
            if let Err(error) = read_folder(&path, enter, entered, found) {
                found.unreadable.push((path, error));
            }
        } else if is_manifest(&path) {
            if is_link {
                found.links.push(path.clone());
            }
            found.files.insert(path);
        }
    }
    Ok(())
}

/// Reads the text of a manifest that a walk found.
///
/// # Errors
/// Those of the system; "invalid data" for what is not text, and "invalid input" for what is no regular file: reading
/// a pipe could take for ever.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    fs::read_to_string(path)
}
