use contiv_model::{NodeName, Object, ProcessorConfig, ServiceId};
use contiv_store_testing::stored::{node, service};

use contiv_store::Entry;

use super::*;
use crate::decode::ListDecoder;

const CONFIG: GuardConfig = GuardConfig {
    percent: 50,
    wait: Duration::from_secs(60),
};

fn now() -> Now {
    Now {
        instant: Instant::now(),
        time: Timestamp::UNIX_EPOCH,
        random: 0.0,
    }
}

fn decoded(entries: Vec<Entry>) -> Vec<Object> {
    let mut list = ListDecoder::default();
    list.add(entries);
    list.finish(1, Vec::new()).resync.objects
}

fn services(count: usize) -> Vec<Object> {
    let entries = (0..count)
        .map(|number| service(&format!("s{number}"), 1))
        .collect();
    decoded(entries)
}

fn list(count: usize) -> Resync {
    Resync {
        objects: services(count),
        ..Resync::default()
    }
}

fn processor(count: usize) -> Processor {
    let mut processor = Processor::new(ProcessorConfig::new(NodeName::new("n1")));
    processor.resync(list(count));
    processor
}

fn deletions(count: usize) -> Vec<Event> {
    let key = |number| ObjectKey::Service(ServiceId::new("default", format!("s{number}")));
    (0..count)
        .map(|number| Event::Delete(key(number)))
        .collect()
}

#[test]
fn list_without_most_services_is_held() {
    let mut guard = DeletionGuard::new(CONFIG);
    let mut processor = processor(40);
    let mut wiped = list(5);
    assert_eq!(
        guard.check_list(&processor, &mut wiped, now()),
        DeletionDecision::HeldNow
    );
    processor.resync(wiped);
    assert_eq!(processor.count(ObjectKind::Service), 40);
    assert_eq!(guard.held().unwrap().objects, 35);
    assert_eq!(
        guard.check_list(&processor, &mut list(5), now()),
        DeletionDecision::StillHeld
    );
    assert_eq!(
        guard.check_list(&processor, &mut list(40), now()),
        DeletionDecision::Pass,
        "they are back"
    );
    assert_eq!((guard.held(), guard.deadline()), (None, None));
}

#[test]
fn half_or_fewer_than_ten_are_never_held() {
    for (known, left) in [(40, 20), (9, 0), (15, 6), (0, 0)] {
        let mut guard = DeletionGuard::new(CONFIG);
        assert_eq!(
            guard.check_list(&processor(known), &mut list(left), now()),
            DeletionDecision::Pass,
            "{known} {left}"
        );
        let mut events = deletions(known - left);
        assert_eq!(
            guard.check_changes(&processor(known), &mut events, now()),
            DeletionDecision::Pass
        );
        assert_eq!(events.len(), known - left);
    }
    let mut off = DeletionGuard::new(GuardConfig {
        percent: 0,
        ..CONFIG
    });
    assert_eq!(
        off.check_list(&processor(40), &mut list(0), now()),
        DeletionDecision::Pass
    );
}

#[test]
fn batch_of_most_services_and_later_deletions_are_held() {
    let mut guard = DeletionGuard::new(CONFIG);
    let processor = processor(40);
    let mut events = deletions(24);
    events.extend(services(3).into_iter().map(Event::Put));
    assert_eq!(
        guard.check_changes(&processor, &mut events, now()),
        DeletionDecision::HeldNow
    );
    assert_eq!(events.len(), 3, "changes other than deletions are applied");
    let mut one = deletions(1);
    assert_eq!(
        guard.check_changes(&processor, &mut one, now()),
        DeletionDecision::StillHeld
    );
    assert_eq!(one, []);
}

#[test]
fn deleted_and_put_again_in_one_batch_is_not_gone() {
    let mut guard = DeletionGuard::new(CONFIG);
    let mut events = deletions(40);
    events.extend(services(35).into_iter().map(Event::Put));
    assert_eq!(
        guard.check_changes(&processor(40), &mut events, now()),
        DeletionDecision::Pass
    );
    assert_eq!(events.len(), 75, "in the order in which it happened");
}

#[test]
fn deletions_of_what_was_created_in_the_same_batch_do_not_count() {
    let mut guard = DeletionGuard::new(CONFIG);
    let processor = processor(5);
    let mut events: Vec<Event> = services(40).into_iter().map(Event::Put).collect();
    events.extend(deletions(40).split_off(5));
    let all = events.clone();
    assert_eq!(
        guard.check_changes(&processor, &mut events, now()),
        DeletionDecision::Pass
    );
    assert_eq!(events, all);
}

#[test]
fn node_deleted_with_most_services_is_held_too() {
    let mut guard = DeletionGuard::new(CONFIG);
    let mut known = list(40);
    let entries = vec![node("10.0.0.1".parse().unwrap())];
    let nodes = decoded(entries);
    known.objects.extend(nodes.clone());
    let mut processor = processor(0);
    processor.resync(known);
    let mut wiped = list(0);
    assert_eq!(
        guard.check_list(&processor, &mut wiped, now()),
        DeletionDecision::HeldNow
    );
    processor.resync(wiped);
    assert_eq!(
        (
            processor.count(ObjectKind::Service),
            processor.count(ObjectKind::Node)
        ),
        (40, 1)
    );
    let mut deleted: Vec<Event> = nodes.iter().map(|node| Event::Delete(node.key())).collect();
    assert_eq!(
        guard.check_changes(&processor, &mut deleted, now()),
        DeletionDecision::StillHeld
    );
    assert_eq!(deleted, []);
}

#[test]
fn next_list_after_confirmation_counts() {
    let mut guard = DeletionGuard::new(CONFIG);
    let processor = processor(40);
    assert!(!guard.confirm(), "nothing is held");
    guard.check_list(&processor, &mut list(0), now());
    assert!(guard.deadline().is_some());
    assert!(
        guard.confirm() && guard.confirm(),
        "whoever confirms again is told the same"
    );
    assert_eq!(guard.deadline(), None, "it is confirmed already");
    let mut wiped = list(0);
    assert_eq!(
        guard.check_list(&processor, &mut wiped, now()),
        DeletionDecision::Pass
    );
    assert!(wiped.undecodable.is_empty());
    assert_eq!(
        guard.check_list(&processor, &mut list(0), now()),
        DeletionDecision::HeldNow,
        "only that one"
    );
}

#[test]
fn confirmation_is_used_up_by_a_list_that_needs_none() {
    let mut guard = DeletionGuard::new(CONFIG);
    let processor = processor(40);
    guard.check_list(&processor, &mut list(0), now());
    assert!(guard.confirm());
    assert_eq!(
        guard.check_list(&processor, &mut list(40), now()),
        DeletionDecision::Pass,
        "all are back"
    );
    let mut wiped = list(0);
    assert_eq!(
        guard.check_list(&processor, &mut wiped, now()),
        DeletionDecision::HeldNow,
        "others than confirmed"
    );
    assert_eq!(wiped.undecodable.len(), 40);
    assert!(guard.deadline().is_some());
}

#[test]
fn deletions_after_confirmation_are_held_until_its_list() {
    let mut guard = DeletionGuard::new(CONFIG);
    let processor = processor(40);
    guard.check_list(&processor, &mut list(0), now());
    assert!(guard.confirm());
    for count in [1, 30] {
        let mut events = deletions(count);
        assert_eq!(
            guard.check_changes(&processor, &mut events, now()),
            DeletionDecision::StillHeld
        );
        assert_eq!(events, []);
    }
    assert_eq!(
        guard.check_list(&processor, &mut list(0), now()),
        DeletionDecision::Pass
    );
    assert_eq!(
        guard.check_changes(&processor, &mut deletions(1), now()),
        DeletionDecision::Pass,
        "nothing is held"
    );
    assert_eq!(
        guard.check_changes(&processor, &mut deletions(30), now()),
        DeletionDecision::HeldNow
    );
}

#[test]
fn deadline_is_that_of_first_held_deletion_and_begins_anew() {
    let mut guard = DeletionGuard::new(CONFIG);
    let processor = processor(40);
    let begin = now();
    let after = |seconds| Now {
        instant: begin.instant + Duration::from_secs(seconds),
        ..begin
    };
    let deadline = |seconds| Some(after(seconds).instant + CONFIG.wait);
    guard.check_list(&processor, &mut list(0), after(0));
    guard.check_list(&processor, &mut list(0), after(20));
    guard.check_changes(&processor, &mut deletions(30), after(40));
    assert_eq!(
        guard.deadline(),
        deadline(0),
        "later deletions do not extend it"
    );
    guard.check_list(&processor, &mut list(40), after(50));
    guard.check_list(&processor, &mut list(0), after(55));
    assert_eq!(guard.deadline(), deadline(55), "these are others");
}
