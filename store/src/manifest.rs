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
    /// Where it was read: the file, with the document number where there are several, and the place in a list.
    pub source: String,
    /// Its identity.
    pub key: Key,
    /// What it says.
    pub object: Object,
    /// Whether it says anything in `status`, which is written by somebody else than the rest as a rule. Empty maps, as
    /// programs print them, say nothing.
    pub has_status: bool,
    /// Values that an API server of today would refuse, and that mean nothing to contiv.
    pub unknown_values: Vec<Problem>,
}

/// What was found in one or more files.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ParsedManifests {
    /// The good objects, in the order in which they were read, each key once.
    pub objects: Vec<ManifestObject>,
    /// What is wrong with the others.
    pub problems: Vec<Problem>,
    /// Fields that do not exist and have no effect. The objects are used all the same.
    pub warnings: Vec<Problem>,
    /// Objects of kinds that contiv does not use, as in `web.yaml:2: ConfigMap default/settings`.
    pub skipped: Vec<String>,
    /// The objects that are there, but not usable: each has a problem. They were not deleted.
    pub broken: BTreeSet<Key>,
    /// Some part could not be told apart at all. It may have held any object, so nothing can be called deleted.
    pub is_incomplete: bool,
}

impl ParsedManifests {
    /// Adds what was found in the next file. Of two objects with one key the first stays, and the second is a problem:
    /// the files' order decides, which does not depend on when they were written.
    pub fn append(&mut self, next: Self) {
        self.extend(next);
        self.drop_duplicates();
    }

    /// Takes out the objects with unknown values, which are problems then: for whoever is in the place of an API server.
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

    /// Leaves out more problems than anybody reads: a file of a few MiB can have a million. One more than is told stays as a sign.
    fn leave_out_untold(&mut self) {
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

/// The problem of an object at `source` that another one, read before it from `first`, keeps out.
pub(crate) fn duplicate(source: &str, key: &Key, first: &str) -> Problem {
    Problem {
        source: source.to_owned(),
        object: Some(kind::title(key)),
        field: None,
        reason: format!("defined in {first} too, and that one is used; remove one of them"),
    }
}

/// How many problems and warnings of one file are told, each of them.
const MAX_REPORTED_PROBLEMS: usize = 1000;
/// How many scalars, lists and maps a document in a folder may have: about what 20 MiB of manifests have. A text of seven bytes
/// for each map would otherwise take up a hundred times its size.
pub(crate) const FOLDER_NODES: usize = 2_000_000;

/// Reads the text of one file. `name` is how the problems call it.
pub fn parse_file(name: &str, text: &str) -> ParsedManifests {
    parse_file_within(name, text, usize::MAX)
}

/// As [`parse_file`], where no document may have more than so many `nodes`: scalars, lists and maps.
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
                // It takes a while to describe.
                if parsed.problems.len() <= MAX_REPORTED_PROBLEMS {
                    let reason = document::describe(&document, nodes, error);
                    parsed.problems.push(Problem { source, object: None, field: None, reason });
                }
            }
        }
        parsed.leave_out_untold();
    }
    parsed.drop_duplicates();
    parsed.leave_out_untold();
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
