use contiv_model::{ObjectKey, ServiceId};
use contiv_proto::{Key, Kind};
use contiv_store::Entry;

use super::{value::MAX_VALUE_SIZE, *};

fn entry(name: &str, value: &str) -> Entry {
    let key = Key::new(Kind::Service, "default", name).unwrap().to_path();
    Entry {
        key,
        value: value.to_owned().into(),
        create_revision: 1,
        mod_revision: 1,
    }
}

fn decoded_list(entries: Vec<Entry>) -> DecodedList {
    let mut list = ListDecoder::default();
    list.add(entries);
    list.finish(1, Vec::new())
}

fn web() -> ObjectKey {
    ObjectKey::Service(ServiceId::new("default", "web"))
}

/// A service that selects external workloads, and one of them.
fn with_workload() -> Vec<Entry> {
    let service = r#"{"selector":{"app":"web"},"cluster_ip":"10.96.0.7","port":[{"port":80}]}"#;
    let workload = r#"{"labels":{"app":"web"},"workload_ips":["192.0.2.7"],"ports":[{"port":80}]}"#;
    let key = Key::new(Kind::ExternalWorkload, "default", "vm")
        .unwrap()
        .to_path();
    vec![
        entry("web", service),
        Entry {
            key,
            ..entry("vm", workload)
        },
    ]
}

fn listed(decoder: &mut Decoder, entries: Vec<Entry>) -> DecodedList {
    let snapshot = Snapshot {
        revision: 1,
        entries,
        problems: Vec::new(),
    };
    match decoder.decode(FeedEvent::Snapshot(snapshot)) {
        Some(StoreEvent::Listed(list)) => *list,
        other => panic!("a list is expected: {other:?}"),
    }
}

#[test]
fn slices_of_workloads_are_derived_once_also_after_a_restart() {
    let mut decoder = Decoder::new(Timestamp::MIN).deriving_slices();
    let first = listed(&mut decoder, with_workload());
    assert_eq!((first.resync.objects.len(), first.entries.len()), (2, 3));
    // What an earlier run saved is listed too, as by a folder that cannot be read.
    let mut decoder = Decoder::new(Timestamp::MIN).deriving_slices();
    let saved: Vec<Entry> = first.entries.into_entries().collect();
    let second = listed(&mut decoder, saved.clone());
    assert_eq!(second.resync.objects.len(), 2);
    assert!(second.entries.into_entries().eq(saved));
    assert_eq!(second.unserved, []);
}

#[test]
fn derived_slice_takes_the_place_of_another_with_its_name() {
    let derived = listed(
        &mut Decoder::new(Timestamp::MIN).deriving_slices(),
        with_workload(),
    )
    .entries;
    // The same key with a value that is not of contiv.
    let foreign = r#"{"address_type":"IPv4","service_name":"web"}"#;
    let replace = |mut entry: Entry| {
        if entry.key.contains("/endpointslice/") {
            entry.value = foreign.into();
        }
        entry
    };
    let stored: Vec<Entry> = derived.into_entries().map(replace).collect();
    let list = listed(
        &mut Decoder::new(Timestamp::MIN).deriving_slices(),
        stored.clone(),
    );
    assert_eq!((list.resync.objects.len(), list.bad.len()), (2, 0));
    let entries: Vec<Entry> = list.entries.into_entries().collect();
    assert!(
        entries.is_sorted_by(|one, other| one.key < other.key),
        "each key is there once"
    );
    assert_eq!(entries.len(), stored.len());
    assert_ne!(entries, stored, "the derived one");
}

#[test]
fn derived_slice_takes_only_its_own_place() {
    let deriving = || Decoder::new(Timestamp::MIN).deriving_slices();
    let derived = listed(&mut deriving(), with_workload()).entries;
    let unusable = |mut entry: Entry| {
        if entry.key.contains("/endpointslice/") {
            entry.value = "{".into();
        }
        entry
    };
    let odd = r#"{"cluster_ip":"10.96.0.8","port":[{"port":80}],"loadbalancer_ip":"192.0.2.9"}"#;
    let others = [entry("bad", "{"), entry("odd", odd)];
    let [bad, odd] = others.each_ref().map(|entry| entry.key.clone());
    let stored = derived.into_entries().map(unusable).chain(others);
    let list = listed(&mut deriving(), stored.collect());
    let bad_keys: Vec<String> = list.bad.into_iter().map(|bad| bad.key).collect();
    assert_eq!(bad_keys, [bad], "that of the derived slice is good");
    let sources: Vec<String> = list.warnings.into_iter().map(|it| it.source).collect();
    assert_eq!(sources, [odd]);
}

/// The unserved workloads after a batch; none if they are as before.
fn unserved_after(decoder: &mut Decoder, changes: Vec<Change>) -> Option<Vec<String>> {
    let batch = Batch {
        revision: 2,
        changes,
    };
    let Some(StoreEvent::Changed(_, changes)) = decoder.decode(FeedEvent::Changed(batch)) else {
        panic!()
    };
    let objects = |all: Vec<Problem>| {
        all.into_iter()
            .filter_map(|warning| warning.object)
            .collect()
    };
    changes.unserved.map(objects)
}

#[test]
fn workload_without_written_slice_is_unserved_in_a_list() {
    let mut decoder = Decoder::new(Timestamp::MIN);
    let list = listed(&mut decoder, with_workload());
    let [warning] = list.unserved.as_slice() else {
        panic!("{:?}", list.unserved)
    };
    assert_eq!(
        warning.object.as_deref(),
        Some("externalworkload default/vm")
    );
    assert!(
        warning.is_warning && warning.reason.contains("--enable external-workloads"),
        "{warning}"
    );
    let written = listed(
        &mut Decoder::new(Timestamp::MIN).deriving_slices(),
        with_workload(),
    )
    .entries;
    let mut written: Vec<Entry> = written.into_entries().collect();
    assert_eq!(listed(&mut decoder, written.clone()).unserved, []);
    // Also where it has served another service.
    for entry in with_workload() {
        let value = String::from_utf8(entry.value.to_vec())
            .unwrap()
            .replace("\"web\"", "\"db\"");
        let key = entry.key.replace("/web/", "/db/").replace("/vm/", "/vm-2/");
        written.push(Entry {
            key,
            value: value.into(),
            ..entry
        });
    }
    let unserved: Vec<_> = listed(&mut decoder, written)
        .unserved
        .into_iter()
        .filter_map(|it| it.object)
        .collect();
    assert_eq!(unserved, ["externalworkload default/vm-2"]);
}

#[test]
fn workload_that_is_applied_is_unserved_until_its_slice_is_written() {
    let mut decoder = Decoder::new(Timestamp::MIN);
    let [service, workload] = &with_workload()[..] else {
        panic!()
    };
    let put = |entry: &Entry| Change::Put(entry.clone());
    // The services of a list are known only if it has a workload.
    assert_eq!(listed(&mut decoder, vec![service.clone()]).unserved, []);
    assert_eq!(unserved_after(&mut decoder, vec![put(workload)]), None);
    assert!(decoder.needs_list());
    let vm = || vec!["externalworkload default/vm".to_owned()];
    assert_eq!(listed(&mut decoder, with_workload()).unserved.len(), 1);

    let derived = listed(
        &mut Decoder::new(Timestamp::MIN).deriving_slices(),
        with_workload(),
    )
    .entries;
    let slice = derived
        .into_entries()
        .find(|entry| entry.key.contains("/endpointslice/"))
        .unwrap();
    assert_eq!(
        unserved_after(&mut decoder, vec![put(&slice)]),
        Some(vec![])
    );
    assert_eq!(
        unserved_after(
            &mut decoder,
            vec![Change::Delete {
                key: slice.key.clone()
            }]
        ),
        Some(vm())
    );
    assert_eq!(
        unserved_after(
            &mut decoder,
            vec![Change::Delete {
                key: service.key.clone()
            }]
        ),
        Some(vec![])
    );
    assert_eq!(unserved_after(&mut decoder, vec![put(service)]), Some(vm()));
    assert_eq!(
        unserved_after(
            &mut decoder,
            vec![Change::Delete {
                key: workload.key.clone()
            }]
        ),
        Some(vec![])
    );
    // Workloads are as before, so they apply without another list.
    assert_eq!(
        unserved_after(&mut decoder, vec![put(workload)]),
        Some(vm())
    );
    assert!(!decoder.needs_list());
}

/// As in a list.
#[test]
fn derived_slice_is_not_replaced_by_a_change_of_the_store() {
    let mut decoder = Decoder::new(Timestamp::MIN).deriving_slices();
    let list = listed(&mut decoder, with_workload());
    let slice = list
        .entries
        .into_entries()
        .find(|entry| entry.key.contains("/endpointslice/"))
        .unwrap();
    let foreign = Entry {
        value: r#"{"address_type":"IPv4","service_name":"web"}"#.into(),
        ..slice.clone()
    };
    for change in [Change::Put(foreign), Change::Delete { key: slice.key }] {
        let batch = Batch {
            revision: 2,
            changes: vec![change],
        };
        let Some(StoreEvent::Changed(batch, changes)) = decoder.decode(FeedEvent::Changed(batch))
        else {
            panic!()
        };
        assert_eq!((batch.changes, changes.events), (vec![], vec![]));
    }
}

#[test]
fn bad_value_is_neither_object_nor_deletion() {
    let decoded = changes(&[Change::Put(entry("web", "{oops"))], Timestamp::MIN);
    assert_eq!(decoded.events, []);
    let [ValueStatus::Bad(bad)] = decoded.statuses.as_slice() else {
        panic!("{:?}", decoded.statuses)
    };
    assert_eq!(bad.object, Some(web()));
    assert!(bad.reason.contains("service default/web"), "{}", bad.reason);
}

#[test]
fn trigger_time_is_the_first_after_the_start() {
    let slice = |name: &str, time: &str| {
        let key = Key::new(Kind::EndpointSlice, "default", name)
            .unwrap()
            .to_path();
        let value = format!(
            r#"{{"address_type":"IPv4","annotations":{{"endpoints.kubernetes.io/last-change-trigger-time":"{time}"}}}}"#
        );
        Change::Put(Entry {
            key,
            value: value.into(),
            create_revision: 1,
            mod_revision: 1,
        })
    };
    let all = [
        slice("before", "2026-01-02T03:04:04Z"),
        slice("later", "2026-01-02T03:04:07Z"),
        slice("first", "2026-01-02T04:04:06.5+01:00"),
        slice("broken", "yesterday"),
        Change::Put(entry("web", r#"{"cluster_ip":"None"}"#)),
    ];
    let start = "2026-01-02T03:04:05Z".parse().unwrap();
    let decoded = changes(&all, start);
    assert_eq!(
        decoded.triggered,
        Some("2026-01-02T03:04:06.5Z".parse().unwrap())
    );
    assert_eq!(decoded.events.len(), all.len(), "{:?}", decoded.statuses);
    assert_eq!(changes(&all[3..], start).triggered, None);
}

#[test]
fn key_changed_often_counts_by_its_last_good_value() {
    let put = |value: &str| Change::Put(entry("web", value));
    let (first, second) = (
        put(r#"{"cluster_ip":"10.96.0.1"}"#),
        put(r#"{"cluster_ip":"10.96.0.2"}"#),
    );
    let delete = Change::Delete {
        key: entry("web", "").key,
    };
    let alone = |change: &Change| changes(std::slice::from_ref(change), Timestamp::MIN).events;
    let all = [
        first.clone(),
        put("{bad"),
        delete.clone(),
        put("{bad"),
        second.clone(),
        put("{bad"),
        put("{bad"),
    ];
    let decoded = changes(&all, Timestamp::MIN);
    assert_eq!(
        decoded.events,
        alone(&second),
        "a bad value keeps the last good one"
    );
    let superseded = decoded
        .statuses
        .iter()
        .take_while(|verdict| **verdict == ValueStatus::Superseded)
        .count();
    assert_eq!((superseded, decoded.statuses.len()), (4, all.len()));
    assert!(matches!(
        &decoded.statuses[4..],
        [
            ValueStatus::Good(_),
            ValueStatus::Bad(_),
            ValueStatus::Bad(_)
        ]
    ));
    assert_eq!(
        changes(&[first, delete.clone()], Timestamp::MIN).events,
        alone(&delete)
    );
    assert_eq!(
        changes(&[delete, second.clone()], Timestamp::MIN).events,
        alone(&second)
    );
}

#[test]
fn value_with_an_unknown_word_is_used_and_reported() {
    let value = r#"{"cluster_ip":"10.96.0.041","external_traffic_policy":"Near"}"#;
    let entry = entry("web", value);
    let decoded = changes(&[Change::Put(entry.clone())], Timestamp::MIN);
    assert!(matches!(&decoded.events[..], [Event::Put(object)] if object.key() == web()));
    let [ValueStatus::Partly(partly)] = decoded.statuses.as_slice() else {
        panic!("{:?}", decoded.statuses)
    };
    assert!(partly.is_used && partly.object == Some(web()));
    for part in [
        "spec.clusterIP: \"10.96.0.041\"",
        "10.96.0.41",
        "spec.externalTrafficPolicy: \"Near\"",
    ] {
        assert!(partly.reason.contains(part), "{}", partly.reason);
    }
    let list = decoded_list(vec![entry]);
    assert_eq!(
        (list.resync.objects.len(), list.resync.undecodable.len()),
        (1, 0)
    );
    assert_eq!(list.bad, std::slice::from_ref(partly));
}

#[test]
fn value_too_large_is_refused_by_name() {
    let huge = " ".repeat(MAX_VALUE_SIZE) + "{}";
    let entries = vec![entry("web", &huge), entry("web2", "{}")];
    let DecodedList { resync, bad, .. } = decoded_list(entries);
    assert_eq!(resync.undecodable.into_iter().collect::<Vec<_>>(), [web()]);
    assert!(
        bad[0].key.contains("web") && bad[0].reason.contains("4194306 bytes"),
        "{bad:?}"
    );
    assert_eq!(bad.len(), 1, "the other one is read");
}

#[test]
fn deletion_is_a_good_status_of_its_key() {
    let key = entry("web", "").key;
    let decoded = changes(&[Change::Delete { key: key.clone() }], Timestamp::MIN);
    assert_eq!(
        (decoded.events, decoded.statuses),
        (vec![Event::Delete(web())], vec![ValueStatus::Good(key)])
    );
}
