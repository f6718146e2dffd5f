//! Complete content from the store, and batches.

use contiv_model::{Event, NodeName, ObjectKey, Resync, Snapshot};

use crate::builders::*;

fn content() -> Vec<contiv_model::Object> {
    vec![
        mk_node(MASTER, &["192.168.1.1"], &["10.1.1.0/24"]).object(),
        mk_service("default/web", &["10.96.0.1"], &["http:80/tcp"]).object(),
        mk_slice(
            "default/web-1",
            "web",
            &[ready(of_pod("default/p1", "10.1.1.3"))],
            &["http:8080/tcp"],
        )
        .object(),
    ]
}

#[test]
fn same_content_again_changes_nothing_and_shares_memory() {
    let mut processor = mk_processor();
    assert!(!processor.resync(mk_resync(content())).is_empty());
    let before = processor.snapshot();
    assert!(processor.resync(mk_resync(content())).is_empty());
    let id = service_id("default/web");
    assert!(std::sync::Arc::ptr_eq(
        &before.services[&id],
        processor.service(&id).unwrap()
    ));
}

#[test]
fn resync_text_lists_its_objects() {
    let mut resync = mk_resync(content());
    resync
        .undecodable
        .insert(ObjectKey::Node(NodeName::new("worker")));
    assert_eq!(
        resync.to_string(),
        "objects: [node master, service default/web, endpointslice default/web-1], unreadable: [node worker]"
    );
    assert_eq!(Resync::default().to_string(), "objects: [], unreadable: []");
}

#[test]
fn many_services_at_once_come_to_same_as_one_after_other() {
    let of_service = |number: usize| {
        let (name, address) = (
            format!("web-{number}"),
            format!("10.2.{}.{}", number / 256, number % 256),
        );
        let service = mk_service(
            &format!("default/{name}"),
            &[&address.replace("10.2", "10.96")],
            &["http:80/tcp"],
        );
        let slice = mk_slice(
            &format!("default/{name}-1"),
            &name,
            &[ready(at(&address))],
            &["http:8080/tcp"],
        );
        [service.object(), slice.object()]
    };
    let objects: Vec<_> = (0..700).flat_map(of_service).collect();
    let mut one_by_one = mk_processor();
    for object in objects.clone() {
        one_by_one.apply([Event::Put(object)]);
    }
    let mut at_once = mk_processor();
    let changes = at_once.resync(mk_resync(objects));
    assert_eq!(changed(&changes).len(), 700);
    assert_eq!(at_once.snapshot(), one_by_one.snapshot());
}

#[test]
fn update_without_effect_keeps_the_value_in_memory() {
    let slice = |addresses: [&str; 2]| {
        let endpoints = addresses.map(|address| ready(at(address)));
        put(mk_slice(
            "default/web-1",
            "web",
            &endpoints,
            &["http:8080/tcp"],
        ))
    };
    let mut processor = mk_processor_with(content().into_iter().map(Event::Put));
    processor.apply([slice(["10.2.0.1", "10.2.0.2"])]);
    let id = service_id("default/web");
    let before = processor.service(&id).unwrap().clone();
    assert!(
        processor
            .apply([slice(["10.2.0.2", "10.2.0.1"])])
            .is_empty()
    );
    assert!(std::sync::Arc::ptr_eq(
        &before,
        processor.service(&id).unwrap()
    ));
}

#[test]
fn object_missing_in_the_content_is_gone() {
    let mut processor = mk_processor_with(content().into_iter().map(Event::Put));
    let changes = processor.resync(Resync::default());
    assert_eq!(changed(&changes), ["default/web"]);
    assert_eq!(processor.snapshot(), Snapshot::default());
}

#[test]
fn pods_stay_attached_over_resync() {
    let mut processor = mk_processor_with([add_pod("default/p1", "tap1")]);
    let changes = processor.resync(mk_resync(content()));
    assert!(changes.frontend_interfaces.is_none());
    assert_eq!(
        interfaces(&processor),
        (vec!["tap1".into()], vec!["tap1".into()])
    );
}

#[test]
fn object_that_cannot_be_read_keeps_its_last_good_state() {
    let mut processor = mk_processor();
    processor.resync(mk_resync(content()));
    let before = processor.snapshot();
    let mut readable = content();
    let unreadable = readable.remove(1);
    let changes = processor.resync(Resync {
        objects: readable,
        undecodable: [
            unreadable.key(),
            ObjectKey::Node(NodeName::new("never-seen")),
        ]
        .into(),
    });
    assert!(changes.is_empty());
    assert_eq!(processor.snapshot(), before);
}

#[test]
fn every_type_of_object_keeps_its_last_good_state() {
    let mut objects = content();
    objects.extend([
        mk_endpoints(
            "default/db",
            &[mk_subset(&[at("10.2.0.1")], &["sql:5432/tcp"])],
        )
        .object(),
        mk_service("default/db", &["10.96.0.3"], &["sql:5432/tcp"]).object(),
        mk_pod("default/p1", &["10.1.1.3"]).object(),
        mk_vpp_node(1, MASTER, &["192.168.16.1"]).object(),
        mk_allocation(
            "default/p1",
            &[mk_service_endpoint("eth1", "default", "10.5.0.1")],
        )
        .object(),
    ]);
    let mut processor = mk_processor();
    processor.resync(mk_resync(objects.clone()));
    let before = processor.snapshot();
    let undecodable = objects.iter().map(contiv_model::Object::key).collect();
    assert!(
        processor
            .resync(Resync {
                objects: vec![],
                undecodable
            })
            .is_empty()
    );
    assert_eq!(processor.snapshot(), before);
}

#[test]
fn readable_object_wins_over_its_kept_state() {
    let mut processor = mk_processor_with(content().into_iter().map(Event::Put));
    let changed_service = mk_service("default/web", &["10.96.0.9"], &["http:80/tcp"]).object();
    let undecodable = [changed_service.key()].into();
    processor.resync(Resync {
        objects: vec![changed_service],
        undecodable,
    });
    assert_eq!(
        processor
            .service(&service_id("default/web"))
            .unwrap()
            .cluster_ips,
        ips(&["10.96.0.9"])
    );
}

#[test]
fn events_of_batch_are_one_change() {
    let service = |ip| put(mk_service("default/web", &[ip], &["http:80/tcp"]));
    let mut processor = mk_processor_with([service("10.96.0.1")]);
    let changes = processor.apply([
        service("10.96.0.2"),
        delete_service("default/web"),
        service("10.96.0.3"),
    ]);
    let change = &changes.services[&service_id("default/web")];
    assert_eq!(
        change.old.as_ref().unwrap().cluster_ips,
        ips(&["10.96.0.1"])
    );
    assert_eq!(
        change.new.as_ref().unwrap().cluster_ips,
        ips(&["10.96.0.3"])
    );
}

#[test]
fn batch_that_ends_where_it_began_changes_nothing() {
    let mut processor = mk_processor_with(content().into_iter().map(Event::Put));
    let events = [
        delete_service("default/web"),
        add_pod("default/p1", "tap1"),
        Event::Delete(ObjectKey::Node(NodeName::new(MASTER))),
        delete_pod("default/p1"),
    ];
    assert!(
        processor
            .apply(
                events
                    .into_iter()
                    .chain(content().into_iter().map(Event::Put))
            )
            .is_empty()
    );
}

#[test]
fn deleting_a_missing_object_changes_nothing() {
    let mut processor = mk_processor();
    for object in content() {
        assert!(processor.apply([Event::Delete(object.key())]).is_empty());
    }
    assert!(processor.apply([delete_pod("default/p1")]).is_empty());
}
