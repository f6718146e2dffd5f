//! Decodes a list of a store, as an agent does.

use std::collections::BTreeMap;

use contiv_external_workloads::DerivedSlices;
use contiv_model::{Object, wire};
use contiv_proto::Key;
use contiv_store::{Snapshot, StoreUrl};

/// The objects of a list by their keys, and why others cannot be used.
pub(crate) fn decode(
    url: &StoreUrl,
    mut listed: Snapshot,
) -> (BTreeMap<String, Object>, BTreeMap<String, String>) {
    // As the agent does: only into etcd the controller writes them.
    if !matches!(url, StoreUrl::Etcd { .. }) {
        let derived = DerivedSlices::default().list(&listed.entries, listed.revision);
        listed
            .entries
            .retain(|entry| !derived.replaced.contains(&entry.key));
        listed.entries.extend(derived.entries);
    }
    let (mut objects, mut unusable) = (BTreeMap::new(), BTreeMap::new());
    for entry in listed.entries {
        let decoded = match Key::parse(&entry.key) {
            Ok(None) => continue,
            Ok(Some(key)) => wire::decode(&key, &entry.value, entry.create_revision)
                .map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match decoded {
            Ok(object) => objects.extend(object.map(|object| (entry.key, object))),
            Err(error) => drop(unusable.insert(entry.key, error)),
        }
    }
    (objects, unusable)
}
