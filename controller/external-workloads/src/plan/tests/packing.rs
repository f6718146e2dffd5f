//! The distribution of endpoints over slices, and the number of writes.

use crate::{
    family::Family,
    plan::SliceWrite,
    service::Target,
    slice::{HEADLESS_LABEL, MANAGED_BY_LABEL, SERVICE_NAME_LABEL},
    test_support::{Slices, port, service, target, workload, workload_port, workloads},
};

#[test]
fn no_slice_has_more_than_100_endpoints() {
    let mut slices = Slices::default();
    assert_eq!(slices.sync(&service(), &workloads(250)), [3, 0, 0]);
    assert_eq!(slices.sizes(), [100, 100, 50]);
    assert_eq!(slices.sync(&service(), &workloads(250)), [0, 0, 0]);
}

#[test]
fn named_port_resolved_differently_splits_slices() {
    let mut workloads = workloads(300);
    for (i, workload) in (0..).zip(&mut workloads) {
        workload.ports = vec![workload_port("http", 8080 + i % 5)];
    }
    let mut slices = Slices::default();
    assert_eq!(slices.sync(&service(), &workloads), [5, 0, 0]);
    assert_eq!(slices.sizes(), [60; 5]);
    let mut ports: Vec<_> = slices
        .0
        .values()
        .filter_map(|slice| slice.ports[0].port)
        .collect();
    ports.sort_unstable();
    assert_eq!(ports, [8080, 8081, 8082, 8083, 8084]);
}

#[test]
fn new_endpoints_fill_the_fullest_changed_slice_first() {
    let mut slices = Slices::default();
    // Two slices with 62 and 61 of the 250, each with something to change.
    let all = workloads(250);
    slices.sync(&service(), &all[..62]);
    let first = slices.only().name.clone();
    let mut second = slices.only().clone();
    let mut others = Slices::default();
    others.sync(&service(), &all[62..123]);
    second.endpoints = others.only().endpoints.clone();
    "second".clone_into(&mut second.name);
    slices.0.insert(second.name.clone(), second);
    for slice in slices.0.values_mut() {
        slice.endpoints[0].zone = "elsewhere".to_owned();
    }
    let writes = slices.plan(&service(), &all);
    assert!(
        matches!(&writes[0], SliceWrite::Create(slice) if slice.endpoints.len() == 50),
        "creates come first"
    );
    slices.apply(&writes);
    assert_eq!((writes.len(), slices.sizes()), (3, vec![100, 100, 50]));
    assert_eq!(slices.0[&first].endpoints.len(), 100);
}

#[test]
fn remainder_goes_whole_into_the_slice_it_fills_best() {
    let all = workloads(300);
    let mut slices = Slices::default();
    for (name, range) in [("a", 0..90), ("b", 90..150), ("c", 150..245)] {
        let mut part = Slices::default();
        part.sync(&service(), &all[range]);
        let mut slice = part.only().clone();
        name.clone_into(&mut slice.name);
        slices.0.insert(slice.name.clone(), slice);
    }
    // 8 more: they fit into a (90) and b (60), and not into c (95).
    assert_eq!(slices.sync(&service(), &all[..253]), [0, 1, 0]);
    assert_eq!(slices.0["a"].endpoints.len(), 98);
    // 41 more fit into no slice whole, so none is touched.
    assert_eq!(slices.sync(&service(), &all[..294]), [1, 0, 0]);
}

#[test]
fn endpoints_are_added_to_slice_that_is_there() {
    for family in Family::ALL {
        let mut service = service();
        service.families = vec![family];
        let one = workload("one", &["192.0.2.1", "2001:db8::1"]);
        let two = workload("two", &["192.0.2.2", "2001:db8::2"]);
        let mut slices = Slices::default();
        slices.sync(&service, std::slice::from_ref(&one));
        assert_eq!(slices.sync(&service, &[one, two]), [0, 1, 0]);
        assert_eq!(slices.sizes(), [2]);
    }
    let mut service = service();
    service.families = Family::ALL.to_vec();
    let both = workload("both", &["192.0.2.1", "2001:db8::1"]);
    let mut slices = Slices::default();
    slices.sync(&service, std::slice::from_ref(&both));
    let more = [
        both,
        workload("v4", &["192.0.2.2"]),
        workload("v6", &["2001:db8::2"]),
    ];
    assert_eq!(slices.sync(&service, &more), [0, 2, 0]);
    assert_eq!(slices.sizes(), [2, 2]);
}

#[test]
fn workload_change_is_one_write_and_moves_no_other() {
    let mut workloads = workloads(250);
    let mut slices = Slices::default();
    slices.sync(&service(), &workloads);
    let places = |slices: &Slices| -> Vec<(String, String)> {
        slices
            .endpoints()
            .map(|(s, e)| (s.name.clone(), target(e).to_owned()))
            .collect()
    };
    let before = places(&slices);
    workloads[120].is_ready = false;
    assert_eq!(slices.sync(&service(), &workloads), [0, 1, 0]);
    assert_eq!(places(&slices), before);
    let gone = workloads.remove(7);
    assert_eq!(slices.sync(&service(), &workloads), [0, 1, 0]);
    let stayed: Vec<_> = before
        .into_iter()
        .filter(|(_, name)| *name != gone.name)
        .collect();
    assert_eq!(places(&slices), stayed, "nothing is balanced");
    workloads.insert(7, gone);
    assert_eq!(slices.sync(&service(), &workloads), [0, 1, 0]);
}

#[test]
fn changed_target_port_updates_slices_in_place() {
    let mut workloads = workloads(250);
    for workload in &mut workloads {
        workload.ports.push(workload_port("alt", 9090));
    }
    let mut slices = Slices::default();
    slices.sync(&service(), &workloads);
    let mut service = service();
    service.ports = vec![port("http", Target::Number(9090))];
    assert_eq!(slices.sync(&service, &workloads), [0, 3, 0]);
    assert!(
        slices
            .0
            .values()
            .all(|slice| slice.ports[0].port == Some(9090))
    );
}

#[test]
fn changed_labels_of_service_update_all_its_slices() {
    let mut slices = Slices::default();
    slices.sync(&service(), &workloads(250));
    let mut service = service();
    service.labels.insert("a".to_owned(), "b".to_owned());
    assert_eq!(slices.sync(&service, &workloads(250)), [0, 3, 0]);
    assert!(slices.0.values().all(|slice| slice.labels["a"] == "b"));
}

#[test]
fn reserved_labels_of_service_change_no_slice() {
    let mut slices = Slices::default();
    slices.sync(&service(), &workloads(250));
    let mut service = service();
    for reserved in [SERVICE_NAME_LABEL, MANAGED_BY_LABEL, HEADLESS_LABEL] {
        service
            .labels
            .insert(reserved.to_owned(), "other".to_owned());
    }
    assert_eq!(slices.sync(&service, &workloads(250)), [0, 0, 0]);
}

#[test]
fn many_small_slices_are_repacked_when_their_ports_change() {
    let all = workloads(300);
    let mut slices = Slices::default();
    for (i, part) in all.chunks(30).enumerate() {
        let mut small = Slices::default();
        small.sync(&service(), part);
        let mut slice = small.only().clone();
        slice.name = format!("slice-{i}");
        slices.0.insert(slice.name.clone(), slice);
    }
    assert_eq!(
        slices.sync(&service(), &all),
        [0, 0, 0],
        "as long as they are right they stay"
    );
    let mut changed = all.clone();
    for workload in &mut changed {
        workload.ports = vec![workload_port("http", 9090)];
    }
    assert_eq!(slices.sync(&service(), &changed), [0, 3, 7]);
    assert_eq!(slices.sizes(), [100; 3]);
}

#[test]
fn overfilled_slice_gives_back_the_excess() {
    let all = workloads(150);
    let mut slices = Slices::default();
    slices.sync(&service(), &all);
    let names: Vec<String> = slices.0.keys().cloned().collect();
    let moved = slices.0.remove(&names[1]).unwrap().endpoints;
    slices.0.get_mut(&names[0]).unwrap().endpoints.extend(moved);
    slices.sync(&service(), &all);
    assert_eq!(slices.sizes(), [100, 50]);
}
