//! Manifests from files and folders.

use std::{fs, io, path::Path};

use super::{
    parse::{FOLDER_NODES, parse_file, parse_file_within},
    parsed::ParsedManifests,
    walk::{SIZE_LIMIT, read_text, walk},
};
use crate::{Problem, StoreError, url::Links};

/// Reads one file of any name, or every manifest below a folder: `*.yaml`, `*.yml` and `*.json`, in the order of their
/// paths, without hidden ones and links that lead out of the folder: the same as an agent by default. Unreadable files below
/// the folder are problems, and all others are read.
///
/// # Errors
/// When `path` itself cannot be read.
pub fn load_path(path: &Path) -> Result<ParsedManifests, StoreError> {
    let failed = |source: io::Error| StoreError::File {
        action: "read",
        path: path.display().to_string(),
        source,
    };
    if !fs::metadata(path).map_err(failed)?.is_dir() {
        let text = fs::read_to_string(path).map_err(failed)?;
        return Ok(parse_file(&path.display().to_string(), &text));
    }
    let found = walk(path, Links::Inside, |_| Ok(())).map_err(failed)?;
    let mut parsed = ParsedManifests::default();
    for file in &found.files {
        parsed.extend(match read_text(file, path, Links::Inside, SIZE_LIMIT) {
            Ok(text) => parse_file_within(&file.display().to_string(), &text, FOLDER_NODES),
            Err(error) => unreadable(file, &error),
        });
    }
    for (folder, error) in &found.unreadable {
        parsed.extend(unreadable(folder, error));
    }
    parsed.drop_duplicates();
    Ok(parsed)
}

/// The result for an unreadable file or folder: its content is unknown.
pub(crate) fn unreadable(path: &Path, error: &io::Error) -> ParsedManifests {
    let problem = Problem {
        source: path.display().to_string(),
        object: None,
        field: None,
        reason: format!("cannot be read: {error}"),
        is_warning: false,
    };
    ParsedManifests {
        problems: vec![problem],
        is_incomplete: true,
        ..ParsedManifests::default()
    }
}
