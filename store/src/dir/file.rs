//! The content of one file, with the last good state of its broken objects.

use std::{collections::BTreeSet, fs, io, os::unix::fs::MetadataExt, path::Path, sync::Arc};

use bytes::Bytes;
use contiv_proto::{Key, Object};

use crate::{
    Problem,
    manifest::{self, FOLDER_NODES, Links, ParsedManifests, walk::read_text},
};

/// One object of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Definition {
    pub(super) key: Arc<Key>,
    /// Binary protobuf, a third of the size of the stored form: a folder keeps all its objects in memory. Of an object that was not
    /// read it is the saved value.
    pub(super) value: Box<[u8]>,
    /// The place in the file, for messages: `:2`, or empty if it is the only document.
    pub(super) place: Box<str>,
    /// It was not read: an earlier run saved it, and a file that cannot be read now may still contain it.
    pub(super) is_recalled: bool,
}

impl Definition {
    /// The value as every store has it.
    pub(super) fn stored_value(&self) -> Bytes {
        let encoded = || Object::decode(&self.key, &self.value).ok()?.encode().ok();
        let stored = if self.is_recalled { None } else { encoded() };
        stored.unwrap_or_else(|| self.value.to_vec()).into()
    }
}

/// The file's metadata; if it differs, the file may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint([i64; 2], [u64; 3]);

impl Fingerprint {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let of = fs::metadata(path)?;
        // Times are only compared; one beyond the 64 bits of nanoseconds, in the year 2262, may wrap.
        let nanoseconds =
            |seconds: i64, rest| seconds.wrapping_mul(1_000_000_000).wrapping_add(rest);
        let times = [
            nanoseconds(of.mtime(), of.mtime_nsec()),
            nanoseconds(of.ctime(), of.ctime_nsec()),
        ];
        Ok(Self(times, [of.dev(), of.ino(), of.size()]))
    }

    /// True if the file has no bytes.
    pub(super) const fn is_empty(&self) -> bool {
        let Self(_, [_, _, size]) = self;
        *size == 0
    }
}

/// A file as it was last read. A folder has tens of thousands.
#[derive(Debug, Clone, Default)]
pub(super) struct File {
    /// Its metadata, and whether it had no bytes. None when it could not be read.
    read: Option<(Fingerprint, bool)>,
    /// The good objects, and the last good state of broken ones.
    pub(super) definitions: Box<[Arc<Definition>]>,
    /// None for most files, which keeps the others small.
    findings: Option<Box<Findings>>,
}

/// The content of a file that is not a usable object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Findings {
    pub(super) problems: Vec<Problem>,
    /// Fields without effect.
    pub(super) warnings: Vec<Problem>,
    /// The objects that exist but are not usable.
    pub(super) broken: BTreeSet<Key>,
    /// The file contains something that is neither in `definitions` nor in `broken`.
    pub(super) holds_more: bool,
    /// Some part could not be identified: it may be any object.
    pub(super) is_incomplete: bool,
}

static NOTHING: Findings = Findings {
    problems: Vec::new(),
    warnings: Vec::new(),
    broken: BTreeSet::new(),
    holds_more: false,
    is_incomplete: false,
};

impl File {
    /// Reads a file below `root`, of at most `budget` bytes.
    ///
    /// # Errors
    /// Only when there is no such file. All other errors become problems of it.
    pub(super) fn read(
        path: &Path,
        root: &Path,
        links: Links,
        budget: u64,
        before: Option<&Self>,
    ) -> io::Result<Self> {
        // Read before the text, so that a change in between is noticed.
        let fingerprint = Fingerprint::of(path);
        let parsed = match fingerprint
            .and_then(|fingerprint| Ok((fingerprint, read_text(path, root, links, budget)?)))
        {
            Ok((fingerprint, text)) => {
                let name = path.display().to_string();
                let parsed = manifest::parse_file_within(&name, &text, FOLDER_NODES);
                let is_empty = text.is_empty();
                let read = Self::after(parsed, &name, before);
                return Ok(Self {
                    read: Some((fingerprint, is_empty)),
                    ..read
                });
            }
            // A dangling link is a file without content.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    && fs::symlink_metadata(path).is_err() =>
            {
                return Err(error);
            }
            Err(error) => manifest::unreadable(path, &error),
        };
        Ok(Self::after(parsed, &path.display().to_string(), before))
    }

    /// How many bytes were read.
    pub(super) fn size(&self) -> u64 {
        self.read
            .map_or(0, |(Fingerprint(_, [_, _, size]), _)| size)
    }

    /// A file or folder that could not be read when this process started: its content is unknown.
    pub(super) fn unread() -> Self {
        let findings = Findings {
            holds_more: true,
            is_incomplete: true,
            ..Findings::default()
        };
        Self {
            findings: Some(Box::new(findings)),
            ..Self::default()
        }
    }

    pub(super) fn findings(&self) -> &Findings {
        self.findings.as_deref().unwrap_or(&NOTHING)
    }

    /// True if the file may contain an object that no file defines.
    pub(super) fn may_hold(&self, key: &Key) -> bool {
        let findings = self.findings();
        findings.is_incomplete || findings.broken.contains(key)
    }

    /// True if an earlier run may have known more of the file.
    pub(super) fn may_be_incomplete(&self) -> bool {
        let findings = self.findings();
        findings.is_incomplete || !findings.broken.is_empty()
    }

    /// The fingerprint of the file, if it was empty.
    pub(super) fn emptied(&self) -> Option<Fingerprint> {
        self.read
            .filter(|(_, is_empty)| *is_empty)
            .map(|(fingerprint, _)| fingerprint)
    }

    /// True if the file on disk may have changed.
    pub(super) fn is_stale(&self, path: &Path) -> bool {
        self.read
            .is_none_or(|(fingerprint, _)| Fingerprint::of(path).ok() != Some(fingerprint))
    }

    /// True if this object is the file's only content.
    pub(super) fn holds_only(&self, key: &Key) -> bool {
        !self.findings().holds_more
            && self
                .definitions
                .iter()
                .all(|definition| *definition.key == *key)
            && self.findings().broken.iter().all(|broken| broken == key)
    }

    fn after(parsed: ParsedManifests, name: &str, before: Option<&Self>) -> Self {
        let ParsedManifests {
            objects,
            mut problems,
            warnings,
            skipped,
            broken,
            is_incomplete,
        } = parsed;
        let mut definitions = Vec::with_capacity(objects.len());
        let mut there = BTreeSet::new();
        for manifest::ManifestObject {
            source,
            key,
            object,
            ..
        } in objects
        {
            match object.encode_binary() {
                Ok(value) => {
                    let key = Arc::new(key);
                    there.insert(Arc::clone(&key));
                    definitions.push(Arc::new(Definition {
                        key,
                        value: value.into(),
                        place: source.strip_prefix(name).unwrap_or(&source).into(),
                        is_recalled: false,
                    }));
                }
                Err(error) => problems.push(Problem {
                    source,
                    object: Some(key.to_string()),
                    field: Some(error.field),
                    reason: error.problem,
                    is_warning: false,
                }),
            }
        }
        let holds_more = is_incomplete || !skipped.is_empty();
        let is_kept = |definition: &&Arc<Definition>| {
            !there.contains(&definition.key) && (is_incomplete || broken.contains(&definition.key))
        };
        let before = before
            .map(|before| &*before.definitions)
            .unwrap_or_default();
        definitions.extend(before.iter().filter(is_kept).cloned());
        let definitions = definitions.into();
        let findings = Findings {
            problems,
            warnings,
            broken,
            holds_more,
            is_incomplete,
        };
        let findings = (findings != NOTHING).then(|| Box::new(findings));
        Self {
            read: None,
            definitions,
            findings,
        }
    }
}
