//! Defects of linkerd's controller that are fixed here, and situations that cannot occur with an API server.

use crate::{
    family::Family,
    test_support::{Slices, service, target, workload, workloads},
};

/// linkerd only checks that the slice has the labels of the service, not that the service has those of the slice.
#[test]
fn label_removed_from_service_is_removed_from_slices() {
    let mut slices = Slices::default();
    let mut labelled = service();
    labelled.labels.insert("a".to_owned(), "b".to_owned());
    slices.sync(&labelled, &workloads(1));
    assert_eq!(slices.sync(&service(), &workloads(1)), [0, 1, 0]);
    assert!(!slices.only().labels.contains_key("a"));
}

/// linkerd deletes slices of a family that the service no longer has without telling the tracker.
#[test]
fn slices_of_a_dropped_family_go_with_the_other_writes() {
    let mut dual = service();
    dual.families = Family::ALL.to_vec();
    let vm = [workload("w", &["192.0.2.1", "2001:db8::1"])];
    let mut slices = Slices::default();
    slices.sync(&dual, &vm);
    assert_eq!(slices.sync(&service(), &vm), [0, 0, 1]);
    assert_eq!(slices.only().address_type, "IPv4");
}

/// The slices of a former service of that name are not garbage-collected.
#[test]
fn slices_of_former_service_of_same_name_are_replaced() {
    let mut slices = Slices::default();
    slices.sync(&service(), &workloads(1));
    let former = slices.only().name.clone();
    let mut again = service();
    again.uid = 8;
    assert_eq!(slices.sync(&again, &workloads(1)), [1, 0, 1]);
    assert_ne!(slices.only().name, former);
    slices.only();
}

/// A value that cannot be read is not a deletion.
#[test]
fn endpoints_of_workload_that_cannot_be_read_stay_as_they_are() {
    let mut slices = Slices::default();
    let all = workloads(150);
    slices.sync(&service(), &all);
    let (known, unreadable) = (&all[1..], [all[0].name.as_str()]);
    assert_eq!(slices.plan_with(&service(), known, &unreadable), []);
    let writes = slices.plan_with(&service(), &known[..10], &unreadable);
    slices.apply(&writes);
    let names: Vec<_> = slices
        .endpoints()
        .map(|(_, endpoint)| target(endpoint))
        .collect();
    assert!(
        names.len() == 11 && names.contains(&unreadable[0]),
        "{names:?}"
    );
    assert_eq!(
        slices.sync(&service(), &known[..10]),
        [0, 1, 0],
        "a deleted workload has no endpoint"
    );
}

/// A slice with the same name, even of another owner or unreadable, prevents the name from being used again.
#[test]
fn name_that_is_taken_is_not_given() {
    let mut slices = Slices::default();
    slices.sync(&service(), &workloads(1));
    let name = slices.only().name.clone();
    let service = service();
    let workloads = workloads(1);
    let writes = crate::plan(&crate::plan::Input {
        service: &service,
        workloads: &workloads.iter().collect::<Vec<_>>(),
        slices: &[],
        unreadable: &std::collections::BTreeSet::new(),
        is_taken: &|taken| taken == name,
    });
    let [crate::SliceWrite::Create(slice)] = writes.as_slice() else {
        panic!("{writes:?}")
    };
    assert_ne!(slice.name, name);
}

#[test]
fn long_name_of_service_makes_name_that_is_allowed() {
    let mut long = service();
    long.name = "x".repeat(253);
    let mut slices = Slices::default();
    slices.sync(&long, &workloads(101));
    assert_eq!(slices.sizes(), [100, 1]);
    assert!(
        slices
            .0
            .keys()
            .all(|name| name.len() <= 253 && !name.ends_with('-'))
    );
}
