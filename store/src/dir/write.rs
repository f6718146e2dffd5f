//! Writes objects into the folder: a file for each, or the existing file with just that object.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use contiv_proto::{Key, Object};

use super::folder::Folder;
use crate::{
    Operation, StoreError, Transaction,
    manifest::{parse_file, to_value, to_yaml},
};

/// Writes all operations or none, and returns the changed files.
///
/// All are checked before the first is written; when writing fails, earlier writes are undone. Conditions are checked against
/// the folder as last read: a file that another process is writing at this moment is not seen.
///
/// # Errors
/// When a condition does not hold; when an operation cannot be written without touching other objects, or has no valid place
/// below the folder.
pub(super) fn commit(
    folder: &Folder,
    transaction: &Transaction,
) -> Result<Vec<PathBuf>, StoreError> {
    if let Some(broken) = transaction
        .conditions
        .iter()
        .find(|it| !it.holds(folder.entry(it.key()).as_ref()))
    {
        return Err(StoreError::Conflict {
            key: broken.key().to_owned(),
        });
    }
    let mut plan = BTreeMap::new();
    for operation in &transaction.operations {
        let (path, text) = match operation {
            Operation::Put { key, value } => {
                let (path, text) = put(folder, key, value)?;
                (path, Some(text))
            }
            Operation::PutLeased { key, .. } => {
                return Err(refused(
                    format!("write {key}"),
                    "a folder of manifests has no leases",
                ));
            }
            Operation::Delete { key } => match delete(folder, key)? {
                Some(path) => (path, None),
                None => continue,
            },
        };
        if plan.insert(path.clone(), text).is_some() {
            return Err(refused(
                "commit",
                format!("two operations write {}", path.display()),
            ));
        }
    }
    write_all(plan)
}

fn refused(action: impl Into<String>, reason: impl Into<String>) -> StoreError {
    StoreError::Refused {
        action: action.into(),
        reason: reason.into(),
    }
}

fn put(folder: &Folder, path: &str, value: &Bytes) -> Result<(PathBuf, String), StoreError> {
    let action = || format!("write {path}");
    let key = parse_key(path)?;
    let object =
        Object::decode(&key, value).map_err(|error| refused(action(), error.to_string()))?;
    let file = match own_file(folder, &key, &action())? {
        Some(file) => file,
        None => new_file(folder, &key, &action())?,
    };
    let manifest = to_value(&object);
    let text = if file
        .extension()
        .is_some_and(|extension| extension == "json")
    {
        serde_json::to_string_pretty(&manifest).map_err(|error| error.to_string())
    } else {
        to_yaml(&[manifest]).map_err(|error| error.to_string())
    }
    .map_err(|reason| refused(action(), reason))?;
    // An object that cannot be read back would be broken on disk.
    let parsed = parse_file("the manifest", &text);
    if let Some(problem) = parsed.problems.first() {
        return Err(refused(action(), problem.to_string()));
    }
    Ok((file, text))
}

fn delete(folder: &Folder, path: &str) -> Result<Option<PathBuf>, StoreError> {
    own_file(folder, &parse_key(path)?, &format!("delete {path}"))
}

fn parse_key(path: &str) -> Result<Key, StoreError> {
    match Key::parse(path) {
        Ok(Some(key)) => Ok(key),
        Ok(None) => Err(refused(
            format!("write {path}"),
            "a folder of manifests has no such keys",
        )),
        Err(error) => Err(refused(format!("write {path}"), error.to_string())),
    }
}

/// The file with just this object, if there is one.
fn own_file(folder: &Folder, key: &Key, action: &str) -> Result<Option<PathBuf>, StoreError> {
    let files = folder.files_with(key);
    let (path, file) = match files.iter().collect::<Vec<_>>().as_slice() {
        [] => return Ok(None),
        [(path, file)] => (**path, **file),
        several => {
            let paths: Vec<_> = several
                .iter()
                .map(|(path, _)| path.display().to_string())
                .collect();
            let reason = format!("{} define it; leave it in one of them", paths.join(" and "));
            return Err(refused(action, reason));
        }
    };
    if !file.holds_only(key) {
        let reason = format!("{} holds other objects too; edit that file", path.display());
        return Err(refused(action, reason));
    }
    if fs::symlink_metadata(path).is_ok_and(|of| of.is_symlink()) {
        let reason = format!(
            "{} is a symbolic link; edit the file it leads to",
            path.display()
        );
        return Err(refused(action, reason));
    }
    check_inside(folder, path, action)?;
    Ok(Some(path.to_owned()))
}

/// The file of a new object: `<namespace>/<kind>-<name>.yaml`.
fn new_file(folder: &Folder, key: &Key, action: &str) -> Result<PathBuf, StoreError> {
    for part in [key.namespace(), key.name()] {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if !part.chars().all(is_plain) || part.starts_with('.') {
            return Err(refused(
                action,
                format!("{part:?} cannot be part of a file name"),
            ));
        }
    }
    let mut path = folder.root.clone();
    if !key.namespace().is_empty() {
        path.push(key.namespace());
    }
    path.push(format!("{}-{}.yaml", key.kind(), key.name()));
    if fs::symlink_metadata(&path).is_ok() {
        let reason = format!(
            "{} is there already, and does not define it",
            path.display()
        );
        return Err(refused(action, reason));
    }
    check_inside(folder, &path, action)?;
    Ok(path)
}

/// A link may lead out of the folder. Nothing is written there.
fn check_inside(folder: &Folder, path: &Path, action: &str) -> Result<(), StoreError> {
    let parent = path.parent().unwrap_or(path);
    let failed = |source| StoreError::File {
        action: "find",
        path: parent.display().to_string(),
        source,
    };
    let root = fs::canonicalize(&folder.root).map_err(failed)?;
    match fs::canonicalize(parent) {
        Ok(parent) if parent.starts_with(&root) => Ok(()),
        Ok(parent) => Err(refused(
            action,
            format!(
                "{} is outside the folder {}",
                parent.display(),
                root.display()
            ),
        )),
        // The namespace has no folder yet; it will be created in the root.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

/// Writes each file, or removes it if there is no text. Undoes everything when one fails.
fn write_all(plan: BTreeMap<PathBuf, Option<String>>) -> Result<Vec<PathBuf>, StoreError> {
    let mut done: Vec<(PathBuf, Option<Vec<u8>>)> = Vec::new();
    for (path, text) in plan {
        let before = fs::read(&path).ok();
        let result = match &text {
            Some(text) => write_file(&path, text.as_bytes()),
            None => fs::remove_file(&path),
        };
        if let Err(source) = result {
            for (path, before) in done.into_iter().rev() {
                // If this fails too there is nothing left to do; the first error is reported.
                let _ = match before {
                    Some(text) => write_file(&path, &text),
                    None => fs::remove_file(&path),
                };
            }
            let action = if text.is_some() { "write" } else { "remove" };
            return Err(StoreError::File {
                action,
                path: path.display().to_string(),
                source,
            });
        }
        done.push((path, before));
    }
    Ok(done.into_iter().map(|(path, _)| path).collect())
}

/// Replaces a file atomically: a reader finds the old or the new text.
fn write_file(path: &Path, text: &[u8]) -> io::Result<()> {
    let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    fs::create_dir_all(parent)?;
    // The leading dot hides it from readers of manifests.
    let mut file = tempfile::Builder::new()
        .prefix(".contiv-")
        .permissions(fs::Permissions::from_mode(0o644))
        .tempfile_in(parent)?;
    file.write_all(text)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}
