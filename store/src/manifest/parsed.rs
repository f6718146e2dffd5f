//! The objects and problems found in manifests.

use std::collections::{BTreeMap, BTreeSet};

use contiv_proto::{Key, Object};

use super::kind;
use crate::Problem;

/// How many problems, and how many warnings, of one file are reported.
pub(super) const MAX_REPORTED_PROBLEMS: usize = 1000;

/// One object of a manifest.
#[derive(Debug, Clone, PartialEq)]
pub struct ManifestObject {
    /// The place: the file, with the document number if there are several, and the position in a list.
    pub source: String,
    /// Its identity.
    pub key: Key,
    /// The object.
    pub object: Object,
    /// Whether its `status` has any content; usually another program writes it. Empty maps, as programs print them, do not
    /// count.
    pub has_status: bool,
    /// Values that a current API server would refuse: addresses that contiv leaves out, and words that it ignores.
    pub unknown_values: Vec<Problem>,
}

/// The content of one or more files.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ParsedManifests {
    /// The good objects, in reading order, each key once.
    pub objects: Vec<ManifestObject>,
    /// The problems of all others.
    pub problems: Vec<Problem>,
    /// Fields that have no effect: unknown ones, and some that do not belong to their object. It is used all the same.
    pub warnings: Vec<Problem>,
    /// Objects of kinds that contiv does not use, as in `web.yaml:2: ConfigMap default/settings`.
    pub skipped: Vec<String>,
    /// Objects that exist but are not usable: each has a problem. They are not deleted.
    pub broken: BTreeSet<Key>,
    /// Some part could not be identified. It may contain any object, so no object counts as deleted.
    pub is_incomplete: bool,
}

impl ParsedManifests {
    /// Adds the content of the next file. Of two objects with one key the first stays, and the second is a problem: the order
    /// of the files decides, independent of when they were written.
    pub fn append(&mut self, next: Self) {
        self.extend(next);
        self.drop_duplicates();
    }

    /// Turns objects with unknown values into problems: for use in place of an API server.
    pub fn refuse_unknown_values(&mut self) {
        for object in self
            .objects
            .extract_if(.., |object| !object.unknown_values.is_empty())
        {
            self.broken.insert(object.key);
            self.problems.extend(object.unknown_values);
        }
    }

    pub(super) fn extend(&mut self, next: Self) {
        self.objects.extend(next.objects);
        self.problems.extend(next.problems);
        self.warnings.extend(next.warnings);
        self.skipped.extend(next.skipped);
        self.broken.extend(next.broken);
        self.is_incomplete |= next.is_incomplete;
    }

    /// Drops problems beyond the limit: a file of a few MiB can have a million. One more is kept as a sign.
    pub(super) fn truncate_problems(&mut self) {
        self.problems.truncate(MAX_REPORTED_PROBLEMS + 1);
        self.warnings.truncate(MAX_REPORTED_PROBLEMS);
    }

    pub(super) fn drop_duplicates(&mut self) {
        let mut first = BTreeMap::new();
        let mut duplicates = Vec::new();
        self.objects.retain(|object| match first.get(&object.key) {
            None => {
                first.insert(object.key.clone(), object.source.clone());
                true
            }
            Some(source) => {
                duplicates.push(duplicate(&object.source, &object.key, source));
                false
            }
        });
        self.problems.extend(duplicates);
    }
}

/// The problem of an object at `source` that is a duplicate of an earlier one, from `first`.
pub(crate) fn duplicate(source: &str, key: &Key, first: &str) -> Problem {
    Problem {
        source: source.to_owned(),
        object: Some(kind::title(key)),
        field: None,
        reason: format!("defined in {first} too, and that one is used; remove one of them"),
        is_warning: false,
    }
}
