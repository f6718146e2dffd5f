//! Decides which file defines each object, and what changed with a file. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use contiv_proto::Key;

use super::file::Definition;
use crate::{Batch, Change, Entry, Problem, manifest};

/// The creation revision of every entry. A folder does not record the order in which its objects were created, and the order in
/// which this process saw them differs on each node and after each start; nothing may depend on it.
const CREATE_REVISION: i64 = 0;

/// All definitions of all files, and the entries they make.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// The definitions of each object by file. The first one that was read counts, before recalled ones; further ones are
    /// mistakes.
    claims: BTreeMap<Key, BTreeMap<PathBuf, Claim>>,
    entries: BTreeMap<String, Entry>,
    /// The objects with more than one claim.
    contested: BTreeSet<Key>,
    /// The objects whose claims changed since the last [`Index::settle`].
    touched: BTreeSet<Key>,
}

#[derive(Debug)]
struct Claim {
    value: Bytes,
    source: String,
    is_recalled: bool,
}

/// The definition that counts.
fn winner(claims: &BTreeMap<PathBuf, Claim>) -> Option<&Claim> {
    claims.values().min_by_key(|claim| claim.is_recalled)
}

impl Index {
    /// Replaces the definitions of `path`.
    pub(super) fn replace(&mut self, path: &Path, before: &[Definition], now: &[Definition]) {
        for Definition { key, .. } in before {
            if let Some(claims) = self.claims.get_mut(key) {
                claims.remove(path);
                self.touched.insert(key.clone());
            }
        }
        for Definition { key, value, source, is_recalled } in now {
            let claim = Claim { value: value.clone(), source: source.clone(), is_recalled: *is_recalled };
            self.claims.entry(key.clone()).or_default().insert(path.to_owned(), claim);
            self.touched.insert(key.clone());
        }
    }

    /// Updates the entries. Changes get the revision after `revision`; none without changes.
    pub(super) fn settle(&mut self, revision: i64) -> Option<Batch> {
        let revision = revision + 1;
        let mut changes = Vec::new();
        for key in std::mem::take(&mut self.touched) {
            let claims = self.claims.get(&key);
            if claims.is_some_and(|claims| claims.values().filter(|claim| !claim.is_recalled).count() > 1) {
                self.contested.insert(key.clone());
            } else {
                self.contested.remove(&key);
            }
            let path = key.to_path();
            let value = claims.and_then(winner).map(|claim| claim.value.clone());
            let Some(value) = value else {
                self.claims.remove(&key);
                if self.entries.remove(&path).is_some() {
                    changes.push(Change::Delete { key: path });
                }
                continue;
            };
            if self.entries.get(&path).is_some_and(|before| before.value == value) {
                continue;
            }
            let entry =
                Entry { key: path.clone(), value, create_revision: CREATE_REVISION, mod_revision: revision };
            self.entries.insert(path, entry.clone());
            changes.push(Change::Put(entry));
        }
        (!changes.is_empty()).then_some(Batch { revision, changes })
    }

    /// Every entry below `prefix`, sorted by key.
    pub(super) fn entries(&self, prefix: &str) -> Vec<Entry> {
        let from_prefix = self.entries.range(prefix.to_owned()..);
        from_prefix.take_while(|(key, _)| key.starts_with(prefix)).map(|(_, entry)| entry.clone()).collect()
    }

    /// The value of a full key.
    pub(super) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// The files that define an object; the first one counts.
    pub(super) fn files(&self, key: &Key) -> Vec<&Path> {
        self.claims.get(key).into_iter().flat_map(BTreeMap::keys).map(PathBuf::as_path).collect()
    }

    /// One problem for each definition that does not count.
    pub(super) fn duplicates(&self) -> impl Iterator<Item = Problem> {
        self.contested.iter().flat_map(|key| {
            let claims = self.claims.get(key).into_iter().flat_map(BTreeMap::values);
            let mut claims = claims.filter(|claim| !claim.is_recalled);
            let first = claims.next().map(|claim| claim.source.as_str()).unwrap_or_default();
            claims.map(move |claim| manifest::duplicate(&claim.source, key, first))
        })
    }
}

#[cfg(test)]
mod tests;
