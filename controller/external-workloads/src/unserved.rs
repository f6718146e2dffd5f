//! External workloads of which no controller has written endpoint slices. Pure.

use std::collections::{BTreeMap, BTreeSet};

use contiv_proto::{Key, Kind};
use contiv_store::{Batch, Change, Entry, PackedEntries};

use crate::{
    derived::{self, DerivedSlices},
    slice::service_of,
};

/// Follows a store into which the controller is to write the slices. Without workloads it keeps nothing.
#[derive(Debug, Default)]
pub struct UnservedWorkloads {
    /// The slices as they should be.
    wanted: DerivedSlices,
    /// The service, by namespace and name, of each slice that the controller has written, by key.
    written: BTreeMap<String, (String, String)>,
}

impl UnservedWorkloads {
    /// Begins anew with a complete list.
    pub fn list(&mut self, entries: &PackedEntries, revision: i64) {
        let inputs = derived::inputs(entries);
        self.wanted = DerivedSlices::default();
        self.wanted.list(&inputs, revision);
        self.written = inputs.iter().filter_map(written).collect();
    }

    /// Follows changes. True if [`Self::workloads`] may have changed.
    pub fn change(&mut self, batch: &Batch) -> bool {
        let has_workloads = !self.wanted.is_empty();
        self.wanted.change(batch);
        if !has_workloads {
            return false;
        }
        let prefixes = [Kind::ExternalWorkload, Kind::Service].map(Key::prefix);
        let mut is_concerned = false;
        for change in &batch.changes {
            let key = change.key();
            is_concerned |= prefixes.iter().any(|prefix| key.starts_with(prefix));
            if derived::is_own_slice_key(key) {
                is_concerned = true;
                self.written.remove(key);
                if let Change::Put(entry) = change {
                    self.written.extend(written(entry));
                }
            }
        }
        is_concerned
    }

    /// Whether the store must be listed again, since a workload came whose services are not known. False until the next such
    /// workload.
    pub fn needs_list(&mut self) -> bool {
        self.wanted.needs_list()
    }

    /// The workloads that a service selects, and that are in no slice, as the controller has written none for that service.
    pub fn workloads(&self) -> BTreeSet<Key> {
        let written: BTreeSet<&(String, String)> = self.written.values().collect();
        let unserved = self
            .wanted
            .slices()
            .filter(|(service, _)| !written.contains(service));
        let of_slice = unserved.flat_map(|((namespace, _), slice)| {
            let targets = slice
                .endpoints
                .iter()
                .filter_map(|endpoint| endpoint.target_ref.as_ref());
            targets.filter_map(|target| {
                Key::new(
                    Kind::ExternalWorkload,
                    namespace.as_str(),
                    target.name.as_str(),
                )
                .ok()
            })
        });
        of_slice.collect()
    }
}

/// The key and the service of a slice of the controller.
fn written(entry: &Entry) -> Option<(String, (String, String))> {
    let slice = derived::own_slice(entry)?;
    let service = service_of(&slice).to_owned();
    Some((entry.key.clone(), (slice.namespace, service)))
}
