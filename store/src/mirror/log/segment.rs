//! The files of the log.

use std::{
    fs::{self, File},
    io::{self, BufReader, ErrorKind},
    path::{Path, PathBuf},
};

use super::record::{self, Record};
use crate::Entry;

/// The file name of a segment, without the number of its first record.
const PREFIX: &str = "mirror.log.";

/// The path of the segment whose first record has this number.
pub(super) fn path_of(folder: &Path, first: u64) -> PathBuf {
    folder.join(format!("{PREFIX}{first}"))
}

/// A list in the log. It stays readable when its segment is removed.
#[derive(Debug)]
pub struct List {
    file: File,
}

impl List {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: File::open(path)?,
        })
    }

    /// The entries in the original order. A truncated list ends with an error.
    pub fn into_entries(self) -> impl Iterator<Item = io::Result<Entry>> {
        let mut reader = BufReader::with_capacity(1 << 16, self.file);
        let mut is_over = false;
        std::iter::from_fn(move || {
            while !is_over {
                match record::read(&mut reader) {
                    Some(Record::Segment { .. } | Record::List { .. }) => (),
                    Some(Record::Entry(entry)) => return Some(Ok(entry)),
                    other => {
                        is_over = true;
                        return (other != Some(Record::ListEnd))
                            .then(|| Err(ErrorKind::UnexpectedEof.into()));
                    }
                }
            }
            None
        })
    }
}

/// Removes the segments without records after this number.
pub fn remove_saved(folder: &Path, number: u64) {
    let segments = segments(folder);
    for ((_, path), (next, _)) in segments.iter().zip(segments.iter().skip(1)) {
        if *next <= number.saturating_add(1) {
            remove(path);
        }
    }
}

/// Removes the segments that begin with this number or before.
pub fn remove_until(folder: &Path, number: u64) {
    remove_if(folder, |first| first <= number);
}

pub(super) fn remove_if(folder: &Path, is_unused: impl Fn(u64) -> bool) {
    segments(folder)
        .iter()
        .filter(|(first, _)| is_unused(*first))
        .for_each(|(_, path)| remove(path));
}

/// A segment that stays is harmless: the mirror knows that it has its records.
pub(super) fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != ErrorKind::NotFound
    {
        tracing::debug!(path = %path.display(), %error, "a segment of the mirror's log cannot be removed");
    }
}

/// The number of each segment's first record, and its path, in their order.
pub(super) fn segments(folder: &Path) -> Vec<(u64, PathBuf)> {
    let first = |path: &Path| {
        path.file_name()?
            .to_str()?
            .strip_prefix(PREFIX)?
            .parse()
            .ok()
    };
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = files.filter(|file| file.file_type().is_ok_and(|kind| kind.is_file()));
    let mut segments: Vec<(u64, PathBuf)> = files
        .filter_map(|file| Some((first(&file.path())?, file.path())))
        .collect();
    segments.sort_unstable();
    segments
}

/// Opens a segment, if its store is the expected one.
pub(super) fn open(path: &Path, is_expected: impl FnOnce(&str) -> bool) -> Option<BufReader<File>> {
    let mut reader = BufReader::with_capacity(1 << 16, File::open(path).ok()?);
    match record::read(&mut reader) {
        Some(Record::Segment { source }) if is_expected(&source) => Some(reader),
        _ => None,
    }
}
