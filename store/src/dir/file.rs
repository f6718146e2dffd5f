//! What one file says, and what it said before it was broken.

use std::{collections::BTreeSet, fs, io, os::unix::fs::MetadataExt, path::Path};

use bytes::Bytes;
use contiv_proto::Key;

use crate::{
    Problem,
    manifest::{self, FOLDER_NODES, Links, ParsedManifests, walk::read_text},
};

/// One object of a file, in stored form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Definition {
    pub(super) key: Key,
    pub(super) value: Bytes,
    /// Where it was read, for people.
    pub(super) source: String,
    /// It was not read: an earlier run saved it, and a file that cannot be read now may still hold it.
    pub(super) is_recalled: bool,
}

/// What the file system says of a file; another value means that it may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint([i64; 4], [u64; 3]);

impl Fingerprint {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let of = fs::metadata(path)?;
        Ok(Self([of.mtime(), of.mtime_nsec(), of.ctime(), of.ctime_nsec()], [of.dev(), of.ino(), of.size()]))
    }

    /// Whether there is not a single byte in the file.
    pub(super) const fn is_empty(&self) -> bool {
        let Self(_, [_, _, size]) = self;
        *size == 0
    }
}

/// A file as it was last read.
#[derive(Debug, Clone, Default)]
pub(super) struct File {
    /// None when it could not be read.
    fingerprint: Option<Fingerprint>,
    /// The good objects, and the last good state of those that are broken now.
    pub(super) definitions: Vec<Definition>,
    pub(super) problems: Vec<Problem>,
    /// What has no effect.
    pub(super) warnings: Vec<Problem>,
    /// The objects that are there but not usable.
    pub(super) broken: BTreeSet<Key>,
    /// There was not a single byte in it.
    is_empty: bool,
    /// Whether the file holds something that is neither in `definitions` nor in `broken`.
    pub(super) holds_more: bool,
    /// Some part could not be told apart: it may hold any object.
    pub(super) is_incomplete: bool,
}

impl File {
    /// Reads a file below `root`, of at most `budget` bytes.
    ///
    /// # Errors
    /// Only when there is no such file. Any other trouble is in its problems.
    pub(super) fn read(
        path: &Path,
        root: &Path,
        links: Links,
        budget: u64,
        before: Option<&Self>,
    ) -> io::Result<Self> {
        // Taken before the text: a change between the two is then seen as one.
        let fingerprint = Fingerprint::of(path);
        let parsed = match fingerprint
            .and_then(|fingerprint| Ok((fingerprint, read_text(path, root, links, budget)?)))
        {
            Ok((fingerprint, text)) => {
                let parsed = manifest::parse_file_within(&path.display().to_string(), &text, FOLDER_NODES);
                let is_empty = text.is_empty();
                return Ok(Self { fingerprint: Some(fingerprint), is_empty, ..Self::after(parsed, before) });
            }
            // A link to nothing is there, and says nothing.
            Err(error) if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(path).is_err() => {
                return Err(error);
            }
            Err(error) => manifest::unreadable(path, &error),
        };
        Ok(Self::after(parsed, before))
    }

    /// How many bytes were read.
    pub(super) fn size(&self) -> u64 {
        self.fingerprint.map_or(0, |Fingerprint(_, [_, _, size])| size)
    }

    /// What is known of a file or folder that could not be read when this process began: nothing.
    pub(super) fn unread() -> Self {
        Self { holds_more: true, is_incomplete: true, ..Self::default() }
    }

    /// Whether the file may hold an object of which no file has a definition.
    pub(super) fn may_hold(&self, key: &Key) -> bool {
        self.is_incomplete || self.broken.contains(key)
    }

    /// Whether an earlier run may know more of the file than this one.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.is_incomplete || !self.broken.is_empty()
    }

    /// What the file system said of the file if it was empty.
    pub(super) fn emptied(&self) -> Option<Fingerprint> {
        self.fingerprint.filter(|_| self.is_empty)
    }

    /// Whether the file on disk may say something else by now.
    pub(super) fn is_stale(&self, path: &Path) -> bool {
        self.fingerprint.is_none() || Fingerprint::of(path).ok() != self.fingerprint
    }

    /// Whether the file is there for this one object and nothing else.
    pub(super) fn holds_only(&self, key: &Key) -> bool {
        !self.holds_more
            && self.definitions.iter().all(|definition| definition.key == *key)
            && self.broken.iter().all(|broken| broken == key)
    }

    fn after(parsed: ParsedManifests, before: Option<&Self>) -> Self {
        let ParsedManifests { objects, mut problems, warnings, skipped, broken, is_incomplete } = parsed;
        let mut definitions = Vec::with_capacity(objects.len());
        let mut there = BTreeSet::new();
        for manifest::ManifestObject { source, key, object, .. } in objects {
            match object.encode() {
                Ok(value) => {
                    there.insert(key.clone());
                    definitions.push(Definition {
                        key,
                        value: Bytes::from(value),
                        source,
                        is_recalled: false,
                    });
                }
                Err(error) => problems.push(Problem {
                    source,
                    object: Some(key.to_string()),
                    field: Some(error.field),
                    reason: error.problem,
                }),
            }
        }
        let holds_more = is_incomplete || !skipped.is_empty();
        let is_kept = |definition: &&Definition| {
            !there.contains(&definition.key) && (is_incomplete || broken.contains(&definition.key))
        };
        let before = before.map(|before| before.definitions.as_slice()).unwrap_or_default();
        definitions.extend(before.iter().filter(is_kept).cloned());
        Self {
            fingerprint: None,
            is_empty: false,
            definitions,
            problems,
            warnings,
            broken,
            holds_more,
            is_incomplete,
        }
    }
}
