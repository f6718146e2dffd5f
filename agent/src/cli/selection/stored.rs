//! Reads the requested objects of the store.

use std::io::{self, Write};

use contiv_proto::{Key, Kind, Object};
use contiv_store::{Entry, Store, manifest};

use super::{
    resources::{ObjectSelector, ResourceRequest},
    selector::Selector,
};
use crate::cli::{
    output::suggest::suggest,
    source::{input::print_problems, store::read, views::Labels},
};

/// The objects of one kind, by namespace and name.
#[derive(Debug)]
pub(crate) struct StoredObjects {
    pub(crate) kind: Kind,
    pub(crate) objects: Vec<(Key, Object)>,
    /// True if all named objects exist, and all were readable.
    pub(crate) is_good: bool,
}

/// Reads the requested objects. Prints missing and unreadable ones.
pub(crate) async fn fetch(
    request: &ResourceRequest,
    store: &dyn Store,
    err: &mut impl Write,
) -> anyhow::Result<StoredObjects> {
    let kind = request.kind;
    let (entries, mut is_good) = match &request.objects {
        ObjectSelector::Keys(keys) => {
            let mut stored = read(store, keys).await?;
            let entries: Vec<Entry> = keys
                .iter()
                .filter_map(|key| stored.remove(&key.to_path()))
                .collect();
            let found: Vec<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
            let missing: Vec<&Key> = keys
                .iter()
                .filter(|key| !found.contains(&key.to_path().as_str()))
                .collect();
            print_missing(&missing, store, err).await?;
            (entries, missing.is_empty())
        }
        ObjectSelector::All { .. } => {
            let snapshot = store.list(&Key::prefix(kind)).await?;
            print_problems(&snapshot.problems, err)?;
            (
                snapshot.entries,
                snapshot.problems.iter().all(|problem| problem.is_warning),
            )
        }
    };
    let mut objects = Vec::new();
    for entry in entries {
        match decode(&entry, request) {
            Ok(object) => objects.extend(object),
            Err(error) => {
                is_good = false;
                writeln!(err, "error: {error}")?;
            }
        }
    }
    objects.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(StoredObjects {
        kind,
        objects,
        is_good,
    })
}

/// The object, if it was requested.
///
/// # Errors
/// Why it is unreadable.
pub(crate) fn decode(
    entry: &Entry,
    request: &ResourceRequest,
) -> Result<Option<(Key, Object)>, String> {
    let Some(key) = Key::parse(&entry.key).map_err(|error| error.to_string())? else {
        return Ok(None);
    };
    if !request.has_key(&key) {
        return Ok(None);
    }
    let object = Object::decode(&key, &entry.value).map_err(|error| format!("{key}: {error}"))?;
    let is_selected = request
        .selector()
        .is_none_or(|selector| selector.matches(&labels(&object)));
    Ok(is_selected.then_some((key, object)))
}

impl ResourceRequest {
    fn has_key(&self, key: &Key) -> bool {
        key.kind() == self.kind
            && match &self.objects {
                ObjectSelector::Keys(keys) => keys.contains(key),
                ObjectSelector::All { namespace, .. } => namespace
                    .as_ref()
                    .is_none_or(|namespace| namespace == key.namespace()),
            }
    }

    const fn selector(&self) -> Option<&Selector> {
        match &self.objects {
            ObjectSelector::Keys(_) => None,
            ObjectSelector::All { selector, .. } => selector.as_ref(),
        }
    }
}

/// The labels in an object's manifest.
pub(crate) fn labels(object: &Object) -> Labels {
    let manifest = manifest::to_value(object);
    let labels = manifest["metadata"]["labels"]
        .as_object()
        .into_iter()
        .flatten();
    labels
        .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
        .collect()
}

/// A line for each missing object, with a suggestion.
///
/// # Errors
/// When the store cannot be read, or nothing can be printed.
pub(crate) async fn print_missing(
    missing: &[&Key],
    store: &dyn Store,
    err: &mut impl Write,
) -> anyhow::Result<()> {
    let Some(kind) = missing.first().map(|key| key.kind()) else {
        return Ok(());
    };
    let stored = store.list(&Key::prefix(kind)).await?.entries;
    let known: Vec<String> = stored
        .iter()
        .filter_map(|entry| Key::parse(&entry.key).ok().flatten())
        .filter(|key| key.kind() == kind)
        .map(|key| place(&key))
        .collect();
    for key in missing {
        let hint = suggest(&place(key), &known).map_or_else(
            || format!("`contiv get {kind} -A` lists what is"),
            |meant| format!("did you mean {meant}?"),
        );
        writeln!(err, "error: {key} is not there; {hint}")?;
    }
    Ok(())
}

/// Prints that nothing was found.
pub(crate) fn print_none(request: &ResourceRequest, err: &mut impl Write) -> io::Result<()> {
    let ResourceRequest {
        kind,
        objects: ObjectSelector::All {
            namespace,
            selector,
        },
    } = request
    else {
        return Ok(());
    };
    let which = if selector.is_some() {
        " with these labels"
    } else {
        ""
    };
    match namespace {
        None => writeln!(err, "no {kind}{which} found"),
        Some(namespace) => {
            writeln!(
                err,
                "no {kind}{which} found in namespace {namespace}; -A looks in every one"
            )
        }
    }
}

fn place(key: &Key) -> String {
    if key.kind().is_namespaced() {
        format!("{}/{}", key.namespace(), key.name())
    } else {
        key.name().to_owned()
    }
}
