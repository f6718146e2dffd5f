//! Reads and decodes the objects of a store, as an agent does.

use std::{collections::BTreeMap, io::Write, sync::Arc};

use contiv_external_workloads::DerivedSlices;
use contiv_model::{Object, wire};
use contiv_proto::{Key, key};
use contiv_store::{Snapshot, Store, StoreUrl};

use super::store;
use crate::cli::Terminal;
use crate::config::{Config, EtcdFlags};

/// The objects of a store, and whether all could be used. Into the agent's own store it gets by the agent's configuration, with flags and
/// environment on top.
pub(crate) fn objects_of_store(
    url: &StoreUrl,
    etcd: &EtcdFlags,
    config: &Config,
    terminal: &mut Terminal,
) -> anyhow::Result<(Vec<Object>, bool)> {
    let access = if *url == config.store {
        etcd.over(url, config.etcd_access())
    } else {
        etcd.access(url)
    };
    let list = async |store: Arc<dyn Store>| Ok(store.list(key::ROOT).await?);
    let listed = store::run_with(url, access, Some(&config.node_name), list)?;
    let (objects, unusable) = decode(url, listed);
    for error in unusable.values() {
        writeln!(
            terminal.err,
            "{error}; an agent may still use an earlier state of it, which is not known here"
        )?;
    }
    Ok((objects.into_values().collect(), unusable.is_empty()))
}

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
