//! Kubernetes manifests to stored objects, and back.
//!
//! Read are YAML (several documents in one file) and JSON, single objects and lists, as people write them and as
//! `kubectl get -o yaml` prints them. Fields that contiv does not use are accepted and dropped; fields that do not exist are a
//! warning. Kinds it does not know are skipped, unless one is a slip of a kind that it knows. What an API server would refuse in
//! a field that contiv uses is a [`Problem`] which names file, object and field; the other objects go on. What an API server
//! would fill in (protocol TCP, namespace `default`) is filled in.

mod annotation;
mod check;
mod document;
mod endpoint_slice;
mod endpoints;
mod external_workload;
mod ip_allocation;
mod kind;
mod load;
mod metadata;
mod namespace;
mod node;
mod object;
mod pod;
mod port;
mod received;
mod reference;
mod service;
mod strict;
mod vpp_node;
pub(crate) mod walk;
mod write;

use std::collections::{BTreeMap, BTreeSet};

use contiv_proto::{Key, Object};

use crate::Problem;

pub use check::routable_address;
pub use load::load_path;
pub(crate) use load::unreadable;
pub(crate) use received::parse_object;
pub use walk::Links;
pub use write::{to_value, to_yaml};

/// One object of a manifest.
#[derive(Debug, Clone, PartialEq)]
pub struct ManifestObject {
    /// The place: the file, with the document number if there are several, and the position in a list.
    pub source: String,
    /// Its identity.
    pub key: Key,
    /// What it says.
    pub object: Object,
    /// Whether its `status` has any content; usually another program writes it. Empty maps, as programs print them, do not
    /// count.
    pub has_status: bool,
    /// Values that a current API server would refuse, and that contiv ignores.
    pub unknown_values: Vec<Problem>,
}

/// The content of one or more files.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ParsedManifests {
    /// The good objects, in reading order, each key once.
    pub objects: Vec<ManifestObject>,
    /// The problems of all others.
    pub problems: Vec<Problem>,
    /// Unknown fields, which have no effect. Their objects are used all the same.
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
        for object in self.objects.extract_if(.., |object| !object.unknown_values.is_empty()) {
            self.broken.insert(object.key);
            self.problems.extend(object.unknown_values);
        }
    }

    fn extend(&mut self, next: Self) {
        self.objects.extend(next.objects);
        self.problems.extend(next.problems);
        self.warnings.extend(next.warnings);
        self.skipped.extend(next.skipped);
        self.broken.extend(next.broken);
        self.is_incomplete |= next.is_incomplete;
    }

    /// Drops problems beyond the limit: a file of a few MiB can have a million. One more is kept as a sign.
    fn truncate_problems(&mut self) {
        self.problems.truncate(MAX_REPORTED_PROBLEMS + 1);
        self.warnings.truncate(MAX_REPORTED_PROBLEMS);
    }

    fn drop_duplicates(&mut self) {
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
    }
}

/// How many problems, and how many warnings, of one file are reported.
const MAX_REPORTED_PROBLEMS: usize = 1000;
/// The limit of scalars, lists and maps in a document of a folder: about that of 20 MiB of manifests. Otherwise a text with
/// seven bytes per map would take a hundred times its size in memory.
pub(crate) const FOLDER_NODES: usize = 2_000_000;

/// Parses the text of one file. `name` is its name in problems.
pub fn parse_file(name: &str, text: &str) -> ParsedManifests {
    parse_file_within(name, text, usize::MAX)
}

/// Like [`parse_file`], with a limit of scalars, lists and maps in a document.
pub(crate) fn parse_file_within(name: &str, text: &str, nodes: usize) -> ParsedManifests {
    let mut parsed = ParsedManifests::default();
    let documents = document::split(text);
    let is_single = documents.len() == 1;
    for (position, document) in documents.into_iter().enumerate() {
        let source = if is_single { name.to_owned() } else { format!("{name}:{}", position + 1) };
        match document::parse(&document, nodes) {
            Ok(Some(value)) => object::read(&source, value, &mut parsed),
            Ok(None) => {}
            Err(error) => {
                parsed.is_incomplete = true;
                // Its description is expensive.
                if parsed.problems.len() <= MAX_REPORTED_PROBLEMS {
                    let reason = document::describe(&document, nodes, error);
                    parsed.problems.push(Problem { source, object: None, field: None, reason });
                }
            }
        }
        parsed.truncate_problems();
    }
    parsed.drop_duplicates();
    parsed.truncate_problems();
    if parsed.problems.len() > MAX_REPORTED_PROBLEMS {
        parsed.problems.truncate(MAX_REPORTED_PROBLEMS);
        let reason =
            format!("only the first {MAX_REPORTED_PROBLEMS} problems of this file are told; there are more");
        let source = name.to_owned();
        parsed.problems.push(Problem { source, object: None, field: None, reason });
    }
    parsed
}

#[cfg(test)]
mod tests;
