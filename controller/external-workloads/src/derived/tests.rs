use contiv_proto::{
    Object,
    message::{externalworkload::ExternalWorkload, service::Service as ServiceMessage},
};
use proptest::prelude::*;

use super::*;

fn entry(object: impl Into<Object>) -> Entry {
    let object = object.into();
    let value = object.encode().unwrap().into();
    Entry {
        key: object.key().unwrap().to_path(),
        value,
        create_revision: 0,
        mod_revision: 1,
    }
}

fn service(name: &str, app: &str) -> Entry {
    let json = format!(
        r#"{{"name":"{name}","namespace":"shop","selector":{{"app":"{app}"}},"cluster_ip":"10.96.0.1",
        "port":[{{"port":80,"target_port":{{"int_val":8080}}}}]}}"#
    );
    entry(value::decode::<ServiceMessage>(json.as_bytes()).unwrap())
}

fn workload(name: &str, app: &str, ip: &str) -> Entry {
    let json = format!(
        r#"{{"name":"{name}","namespace":"shop","labels":{{"app":"{app}"}},"workload_ips":["{ip}"],
        "ports":[{{"port":8080}}],"conditions":[{{"type":"Ready","status":"True"}}]}}"#
    );
    entry(value::decode::<ExternalWorkload>(json.as_bytes()).unwrap())
}

fn unreadable(entry: Entry) -> Entry {
    Entry {
        value: bytes::Bytes::new(),
        ..entry
    }
}

fn batch(changes: Vec<Change>) -> Batch {
    Batch {
        revision: 2,
        changes,
    }
}

/// Entries in pages, the last one first.
fn packed(entries: &[Entry]) -> PackedEntries {
    let mut pages = PackedEntries::default();
    entries
        .iter()
        .rev()
        .for_each(|entry| pages.add(vec![entry.clone()]));
    pages
}

/// A store with its derived slices.
#[derive(Default)]
struct DerivedStore {
    derived: DerivedSlices,
    entries: BTreeMap<String, Entry>,
}

impl DerivedStore {
    fn listed(entries: impl IntoIterator<Item = Entry>) -> Self {
        let mut store = Self::default();
        store.list(entries);
        store
    }

    fn list(&mut self, entries: impl IntoIterator<Item = Entry>) {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let derived = self.derived.list(&inputs(&packed(&entries)), 1);
        let kept = entries
            .into_iter()
            .filter(|entry| !derived.replaced.contains(&entry.key));
        self.entries = kept
            .chain(derived.entries)
            .map(|entry| (entry.key.clone(), entry))
            .collect();
    }

    fn change(&mut self, changes: Vec<Change>) -> Vec<Change> {
        let batch = batch(changes);
        let derived = self.derived.change(&batch);
        for change in batch.changes.into_iter().chain(derived.clone()) {
            match change {
                Change::Put(entry) => drop(self.entries.insert(entry.key.clone(), entry)),
                Change::Delete { key } => drop(self.entries.remove(&key)),
            }
        }
        derived
    }

    /// The addresses behind each service, in order.
    fn backends(&self) -> BTreeMap<String, Vec<String>> {
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let slices = self
            .entries
            .values()
            .filter_map(|entry| service::read::<EndpointSlice>(entry).ok());
        for slice in slices.filter(|slice| !slice.address_type.is_empty()) {
            let addresses = slice
                .endpoints
                .iter()
                .flat_map(|endpoint| endpoint.addresses.clone());
            found
                .entry(service_of(&slice).to_owned())
                .or_default()
                .extend(addresses);
        }
        for addresses in found.values_mut() {
            addresses.sort_unstable();
        }
        found
    }
}

fn backends(expected: &[(&str, &[&str])]) -> BTreeMap<String, Vec<String>> {
    let owned = |addresses: &[&str]| {
        addresses
            .iter()
            .map(|address| (*address).to_owned())
            .collect()
    };
    expected
        .iter()
        .map(|(name, addresses)| ((*name).to_owned(), owned(addresses)))
        .collect()
}

#[test]
fn listed_workload_is_behind_services_that_select_it() {
    let store = DerivedStore::listed([
        service("web", "web"),
        service("other", "db"),
        workload("vm-1", "web", "192.0.2.1"),
        workload("vm-2", "web", "192.0.2.2"),
    ]);
    assert_eq!(
        store.backends(),
        backends(&[("web", &["192.0.2.1", "192.0.2.2"])])
    );
}

#[test]
fn list_without_workloads_keeps_nothing() {
    let mut derived = DerivedSlices::default();
    assert_eq!(
        derived.list(&[service("web", "web")], 1),
        DerivedList::default()
    );
    assert!(derived.state.is_none());
    assert_eq!(
        derived.change(&batch(vec![Change::Put(service("db", "db"))])),
        []
    );
    assert!(!derived.needs_list());
}

#[test]
fn first_workload_needs_a_list_and_later_ones_do_not() {
    let mut store = DerivedStore::listed([service("web", "web")]);
    let vm = workload("vm-1", "web", "192.0.2.1");
    assert_eq!(store.change(vec![Change::Put(vm.clone())]), []);
    assert!(store.derived.needs_list());
    assert!(!store.derived.needs_list(), "it says so once");
    store.list([service("web", "web"), vm]);
    assert_eq!(store.backends(), backends(&[("web", &["192.0.2.1"])]));
    store.change(vec![Change::Put(workload("vm-2", "web", "192.0.2.2"))]);
    assert!(!store.derived.needs_list());
    assert_eq!(
        store.backends(),
        backends(&[("web", &["192.0.2.1", "192.0.2.2"])])
    );
}

#[test]
fn changes_of_services_and_workloads_change_slices() {
    let mut store =
        DerivedStore::listed([service("web", "web"), workload("vm-1", "web", "192.0.2.1")]);
    store.change(vec![
        Change::Put(workload("vm-1", "db", "192.0.2.1")),
        Change::Put(service("db", "db")),
    ]);
    assert_eq!(store.backends(), backends(&[("db", &["192.0.2.1"])]));
    store.change(vec![Change::Put(workload("vm-1", "db", "192.0.2.9"))]);
    assert_eq!(store.backends(), backends(&[("db", &["192.0.2.9"])]));
    let same = store.change(vec![Change::Put(workload("vm-1", "db", "192.0.2.9"))]);
    assert_eq!(same, [], "nothing has changed");
    store.change(vec![Change::Delete {
        key: service("db", "db").key,
    }]);
    assert_eq!(store.backends(), backends(&[]));
    store.change(vec![Change::Put(service("db", "db"))]);
    store.change(vec![Change::Delete {
        key: workload("vm-1", "db", "192.0.2.9").key,
    }]);
    assert_eq!(store.backends(), backends(&[]));
}

#[test]
fn workload_that_cannot_be_read_keeps_its_endpoints() {
    let vm = workload("vm-1", "web", "192.0.2.1");
    let mut store = DerivedStore::listed([service("web", "web"), vm.clone()]);
    store.change(vec![Change::Put(unreadable(vm.clone()))]);
    assert_eq!(store.backends(), backends(&[("web", &["192.0.2.1"])]));
    let broken = unreadable(vm.clone());
    store.list([service("web", "web"), broken.clone()]);
    assert_eq!(
        store.backends(),
        backends(&[("web", &["192.0.2.1"])]),
        "over a list too"
    );
    // Another process, which has only what was saved.
    let saved: Vec<Entry> = store.entries.into_values().collect();
    let mut store = DerivedStore::listed(saved);
    assert_eq!(
        store.backends(),
        backends(&[("web", &["192.0.2.1"])]),
        "over a restart too"
    );
    store.change(vec![Change::Delete { key: vm.key }]);
    assert_eq!(store.backends(), backends(&[]));
}

#[test]
fn slices_of_earlier_run_are_replaced_and_do_not_add_up() {
    let first = DerivedStore::listed([service("web", "web"), workload("vm-1", "web", "192.0.2.1")]);
    let mut entries = first.entries.clone();
    let moved = workload("vm-1", "web", "192.0.2.7");
    entries.insert(moved.key.clone(), moved);
    let second = DerivedStore::listed(entries.into_values());
    assert_eq!(second.backends(), backends(&[("web", &["192.0.2.7"])]));
    assert_eq!(second.entries.len(), first.entries.len());
}

#[test]
fn slices_without_workloads_stay_as_they_are() {
    let store = DerivedStore::listed([service("web", "web"), workload("vm-1", "web", "192.0.2.1")]);
    let mut entries = store.entries;
    entries.retain(|key, _| !key.contains("externalworkload"));
    let copied = DerivedStore::listed(entries.into_values());
    assert_eq!(copied.backends(), backends(&[("web", &["192.0.2.1"])]));
}

#[test]
fn unreadable_service_keeps_its_slices() {
    let mut store =
        DerivedStore::listed([service("web", "web"), workload("vm-1", "web", "192.0.2.1")]);
    store.change(vec![Change::Put(unreadable(service("web", "web")))]);
    store.change(vec![Change::Put(workload("vm-2", "web", "192.0.2.2"))]);
    assert_eq!(
        store.backends(),
        backends(&[("web", &["192.0.2.1", "192.0.2.2"])])
    );
    let broken = unreadable(service("web", "web"));
    store.list([broken.clone(), workload("vm-2", "web", "192.0.2.2")]);
    assert_eq!(
        store.backends(),
        backends(&[("web", &["192.0.2.2"])]),
        "over a list too"
    );
    let saved: Vec<Entry> = store.entries.into_values().collect();
    let mut store = DerivedStore::listed(saved);
    assert_eq!(
        store.backends(),
        backends(&[("web", &["192.0.2.2"])]),
        "over a restart too"
    );
    store.change(vec![Change::Put(service("web", "db"))]);
    assert_eq!(store.backends(), backends(&[]));
}

/// One of a few services or workloads: put with one of a few labels and addresses, or deleted.
fn any_change() -> impl Strategy<Value = Change> {
    let apps = prop::sample::select(vec!["a", "b"]);
    (any::<bool>(), any::<bool>(), 0..3_u8, apps, 1..4_u8).prop_map(
        |(is_service, is_put, number, app, ip)| {
            let entry = if is_service {
                service(&format!("s{number}"), app)
            } else {
                workload(&format!("w{number}"), app, &format!("192.0.2.{ip}"))
            };
            if is_put {
                Change::Put(entry)
            } else {
                Change::Delete { key: entry.key }
            }
        },
    )
}

proptest! {
    /// Changes lead to what a list of the result would.
    #[test]
    fn derived_changes_equal_a_list_of_the_result(
        changes in prop::collection::vec(prop::collection::vec(any_change(), 1..4), 0..12),
    ) {
        let first = workload("first", "a", "192.0.2.9");
        let mut store = DerivedStore::listed([first.clone()]);
        let mut source = BTreeMap::from([(first.key.clone(), first)]);
        for batch in changes {
            for change in &batch {
                match change {
                    Change::Put(entry) => drop(source.insert(entry.key.clone(), entry.clone())),
                    Change::Delete { key } => drop(source.remove(key)),
                }
            }
            store.change(batch);
            let listed = DerivedStore::listed(source.values().cloned());
            prop_assert_eq!(store.backends(), listed.backends());
        }
    }
}
