//! Properties of plans, for any service, any workloads and any slices that former plans or other people left.

use std::collections::BTreeMap;

use proptest::{collection::vec, prelude::*, sample::subsequence};

use super::SliceWrite;
use crate::{
    family::Family,
    service::{Service, Target},
    slice::MAX_ENDPOINTS,
    test_support::{Slices, counts, port, service, target, workload, workload_port},
    workload::Workload,
};

prop_compose! {
    fn services()(families in subsequence(Family::ALL.to_vec(), 1..=2), is_headless in any::<bool>(),
        by_number in any::<bool>(), labels in 0..3_u8, uid in 7..9_i64) -> Service
    {
        let target = if by_number { Target::Number(8080) } else { Target::Name("http".to_owned()) };
        let mut service = service();
        service.labels.insert("version".to_owned(), labels.to_string());
        Service { families, is_headless, uid, ports: vec![port("http", target)], ..service }
    }
}

/// The random properties of a workload.
type Traits = (bool, bool, bool, i32, u8);

fn traits() -> impl Strategy<Value = Traits> {
    (
        prop::bool::weighted(0.9),
        any::<bool>(),
        any::<bool>(),
        0..3,
        0..3_u8,
    )
}

/// Workloads with distinct names, whose addresses may be shared.
fn all_workloads() -> impl Strategy<Value = Vec<Workload>> {
    let many = prop_oneof![3 => vec(traits(), 0..12), 1 => vec(traits(), 90..230)];
    many.prop_map(|many| {
        let named = many.into_iter().enumerate();
        let made = named.map(|(i, (v4, v6, is_ready, port, zone))| {
            let mut ips = Vec::new();
            ips.extend(v4.then(|| format!("192.0.{}.{}", 2 + i / 250, 1 + i % 250)));
            ips.extend(v6.then(|| format!("2001:db8::{}", 1 + i / 2)));
            let mut made = workload(
                &format!("w{i:04}"),
                &ips.iter().map(String::as_str).collect::<Vec<_>>(),
            );
            made.is_ready = is_ready;
            made.ports = vec![workload_port("http", 8080 + port)];
            made.labels
                .insert("topology.kubernetes.io/zone".to_owned(), zone.to_string());
            made
        });
        made.collect()
    })
}

/// The slices after a sequence of plans, some of which another writer then deleted or changed.
fn slices() -> impl Strategy<Value = Slices> {
    let history = vec((services(), all_workloads()), 0..3);
    (history, vec((any::<prop::sample::Index>(), 0..5), 0..3)).prop_map(|(history, damages)| {
        let mut slices = Slices::default();
        for (service, workloads) in history {
            slices.sync(&service, &workloads);
        }
        for (index, damage) in damages {
            let names: Vec<String> = slices.0.keys().cloned().collect();
            if names.is_empty() {
                break;
            }
            let name = index.get(&names);
            let slice = slices.0.get_mut(name).unwrap();
            match damage {
                0 => drop(slices.0.remove(name)),
                1 => slice.endpoints.truncate(1),
                2 => slice.endpoints.extend(slice.endpoints.clone()),
                3 => slice.annotations.clear(),
                _ => slice.endpoints[0].node_name = "foreign".to_owned(),
            }
        }
        slices
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn each_workload_is_there_exactly_once_per_family_and_as_it_is(
        service in services(), workloads in all_workloads(), mut slices in slices(),
    ) {
        slices.sync(&service, &workloads);
        let mut found: BTreeMap<(Family, &str), Vec<(bool, &str)>> = BTreeMap::new();
        for (slice, endpoint) in slices.endpoints() {
            let family = Family::from_word(&slice.address_type).unwrap();
            let is_ready = endpoint.conditions.unwrap().ready.unwrap();
            found.entry((family, target(endpoint))).or_default().push((is_ready, &endpoint.zone));
        }
        let mut expected = BTreeMap::new();
        for workload in &workloads {
            for family in service.families.iter().filter(|f| workload.ips.iter().any(|ip| Family::of(*ip) == **f)) {
                expected.insert((*family, workload.name.as_str()), vec![(workload.is_ready, workload.zone())]);
            }
        }
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn no_slice_is_overfull_or_empty_and_none_is_written_twice(
        service in services(), workloads in all_workloads(), mut slices in slices(),
    ) {
        let writes = slices.plan(&service, &workloads);
        let mut names = std::collections::BTreeSet::new();
        for write in &writes {
            let name = match write {
                SliceWrite::Create(slice) | SliceWrite::Update(slice) => &slice.name,
                SliceWrite::Delete(name) => name,
            };
            prop_assert!(names.insert(name), "{name} is written twice");
        }
        let order = |write: &SliceWrite| match write {
            SliceWrite::Create(_) => 0,
            SliceWrite::Update(_) => 1,
            SliceWrite::Delete(_) => 2,
        };
        prop_assert!(writes.is_sorted_by_key(order), "creates, then updates, then deletes");
        slices.apply(&writes);
        prop_assert!(slices.sizes().into_iter().all(|size| (1..=MAX_ENDPOINTS).contains(&size)));
    }

    #[test]
    fn nothing_is_written_when_nothing_has_changed(
        service in services(), workloads in all_workloads(), mut slices in slices(),
    ) {
        slices.sync(&service, &workloads);
        prop_assert_eq!(slices.plan(&service, &workloads), vec![]);
    }

    #[test]
    fn order_of_input_does_not_matter(
        service in services(), workloads in all_workloads(), slices in slices(), seed in any::<prop::sample::Index>(),
    ) {
        let mut turned = workloads.clone();
        turned.reverse();
        let middle = if turned.is_empty() { 0 } else { seed.index(turned.len()) };
        turned.rotate_left(middle);
        let mut backwards: Vec<_> = slices.0.values().collect();
        backwards.reverse();
        let expected = slices.plan(&service, &workloads);
        let found = super::plan(&super::Input {
            service: &service,
            workloads: &turned.iter().collect::<Vec<_>>(),
            slices: &backwards,
            unreadable: &std::collections::BTreeSet::new(),
            is_taken: &|name| slices.0.contains_key(name),
        });
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn slices_are_written_only_for_endpoints_that_differ(
        service in services(), mut workloads in all_workloads(), mut slices in slices(),
        changed in any::<prop::sample::Index>(),
    ) {
        slices.sync(&service, &workloads);
        prop_assume!(!workloads.is_empty());
        let index = changed.index(workloads.len());
        let per_family = service.families.len();
        workloads[index].is_ready ^= true;
        let [creates, updates, deletes] = counts(&slices.plan(&service, &workloads));
        prop_assert!(creates == 0 && deletes == 0 && updates <= per_family, "readiness");
        workloads[index].is_ready ^= true;
        let gone = workloads.remove(index);
        let writes = slices.plan(&service, &workloads);
        let [creates, updates, deletes] = counts(&writes);
        prop_assert!(creates == 0 && updates + deletes <= per_family, "one is gone");
        slices.apply(&writes);
        workloads.push(gone);
        let [creates, updates, deletes] = counts(&slices.plan(&service, &workloads));
        prop_assert!(deletes == 0 && creates + updates <= per_family, "one is new");
    }
}
