//! Decides which file defines each object, and what changed with a file. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use contiv_proto::Key;

use super::file::Definition;
use crate::{Batch, Change, Entry, Problem, manifest};

/// The creation revision of every entry. A folder does not record the order in which its objects were created, and the order in
/// which this process saw them differs on each node and after each start; nothing may depend on it.
const CREATE_REVISION: i64 = 0;

/// All definitions of all files, and the entries they make. An object is held once, however many maps it is in: a folder has tens
/// of thousands of them.
#[derive(Debug, Default)]
pub(super) struct Index {
    objects: BTreeMap<Arc<Key>, Claims>,
    /// The objects with more than one claim.
    contested: BTreeSet<Arc<Key>>,
    /// The objects whose claims changed since the last [`Index::commit`], with their values then.
    changed: BTreeMap<Arc<Key>, Option<Box<[u8]>>>,
}

/// The definitions of one object, sorted by file.
#[derive(Debug, Default)]
struct Claims {
    all: Box<[(Arc<Path>, Arc<Definition>)]>,
    /// The revision of its entry.
    mod_revision: i64,
}

impl Claims {
    /// The definition that counts: the first one that was read, before recalled ones. Further ones are mistakes.
    fn winner(&self) -> Option<&Definition> {
        self.all
            .iter()
            .map(|(_, definition)| &**definition)
            .min_by_key(|definition| definition.is_recalled)
    }

    /// The claims that were read.
    fn read(&self) -> impl Iterator<Item = &(Arc<Path>, Arc<Definition>)> {
        self.all
            .iter()
            .filter(|(_, definition)| !definition.is_recalled)
    }

    fn set(&mut self, path: &Arc<Path>, definition: &Arc<Definition>) {
        match self.all.binary_search_by(|(of, _)| of.cmp(path)) {
            Ok(at) => self.all[at].1 = Arc::clone(definition),
            Err(at) => {
                let (before, after) = self.all.split_at(at);
                let new = (Arc::clone(path), Arc::clone(definition));
                self.all = before
                    .iter()
                    .cloned()
                    .chain([new])
                    .chain(after.iter().cloned())
                    .collect();
            }
        }
    }

    fn remove(&mut self, path: &Arc<Path>) {
        let others = self.all.iter().filter(|(of, _)| of != path);
        self.all = others.cloned().collect();
    }

    fn entry(&self, key: &Key) -> Option<Entry> {
        Some(Entry {
            key: key.to_path(),
            value: self.winner()?.stored_value(),
            create_revision: CREATE_REVISION,
            mod_revision: self.mod_revision,
        })
    }
}

impl Index {
    /// Replaces the definitions of `path`.
    pub(super) fn replace(
        &mut self,
        path: &Arc<Path>,
        before: &[Arc<Definition>],
        now: &[Arc<Definition>],
    ) {
        for definition in before {
            self.claims_mut(&definition.key).remove(path);
        }
        for definition in now {
            self.claims_mut(&definition.key).set(path, definition);
        }
    }

    /// The claims of an object, for a change: records the value before it.
    fn claims_mut(&mut self, key: &Arc<Key>) -> &mut Claims {
        let claims = self.objects.entry(Arc::clone(key)).or_default();
        self.changed
            .entry(Arc::clone(key))
            .or_insert_with(|| claims.winner().map(|definition| definition.value.clone()));
        claims
    }

    /// Applies the changed claims to the entries. Changes get the revision after `revision`; none without changes.
    pub(super) fn commit(&mut self, revision: i64) -> Option<Batch> {
        let revision = revision + 1;
        let mut changes = Vec::new();
        for (key, before) in std::mem::take(&mut self.changed) {
            let Some(claims) = self.objects.get_mut(&key) else {
                continue;
            };
            if claims.read().count() > 1 {
                self.contested.insert(Arc::clone(&key));
            } else {
                self.contested.remove(&key);
            }
            let now = claims.winner().map(|definition| &definition.value);
            let (is_changed, is_gone) = (now != before.as_ref(), now.is_none());
            if is_changed {
                claims.mod_revision = revision;
                let change = claims.entry(&key).map(Change::Put);
                changes.push(change.unwrap_or_else(|| Change::Delete { key: key.to_path() }));
            }
            if is_gone {
                self.objects.remove(&key);
            }
        }
        (!changes.is_empty()).then_some(Batch { revision, changes })
    }

    /// See [`super::folder::Folder::compact`].
    pub(super) fn compact(&mut self) {
        self.objects = std::mem::take(&mut self.objects).into_iter().collect();
    }

    /// Every entry below `prefix`, sorted by key.
    pub(super) fn entries(&self, prefix: &str) -> Vec<Entry> {
        let entries = self
            .objects
            .iter()
            .filter_map(|(key, claims)| claims.entry(key));
        let mut entries: Vec<Entry> = entries
            .filter(|entry| entry.key.starts_with(prefix))
            .collect();
        entries.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        entries
    }

    /// Whether a file defines this object.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.objects
            .get(key)
            .is_some_and(|claims| claims.winner().is_some())
    }

    /// The entry of a full key.
    pub(super) fn entry(&self, key: &str) -> Option<Entry> {
        let key = Key::parse(key).ok()??;
        self.objects.get(&key)?.entry(&key)
    }

    /// The files that define an object; the first one counts.
    pub(super) fn files(&self, key: &Key) -> Vec<&Path> {
        let claims = self
            .objects
            .get(key)
            .into_iter()
            .flat_map(|claims| &claims.all);
        claims.map(|(path, _)| &**path).collect()
    }

    /// One problem for each definition that does not count.
    pub(super) fn duplicates(&self) -> impl Iterator<Item = Problem> {
        self.contested.iter().flat_map(|key| {
            let source = |(path, definition): &(Arc<Path>, Arc<Definition>)| {
                format!("{}{}", path.display(), definition.place)
            };
            let claims = self.objects.get(key).into_iter().flat_map(Claims::read);
            let mut sources = claims.map(source);
            let first = sources.next().unwrap_or_default();
            sources.map(move |source| manifest::duplicate(&source, key, &first))
        })
    }
}

#[cfg(test)]
mod tests;
