use contiv_model::{NodeName, Object, ProcessorConfig, ServiceId};
use contiv_store::Snapshot;

use super::*;
use crate::{
    event_loop::intake,
    test_support::{node, service},
};

const CONFIG: GuardConfig = GuardConfig { percent: 50, wait: Duration::from_secs(60) };

fn services(count: usize) -> Vec<Object> {
    let entries = (0..count).map(|number| service(&format!("s{number}"), 1)).collect();
    intake::snapshot(&Snapshot { entries, ..Snapshot::default() }, &mut intake::Ahead::default()).0.objects
}

fn list(count: usize) -> Resync {
    Resync { objects: services(count), ..Resync::default() }
}

fn processor(count: usize) -> Processor {
    let mut processor = Processor::new(ProcessorConfig::new(NodeName::new("n1")));
    processor.resync(list(count));
    processor
}

fn deletions(count: usize) -> Vec<Event> {
    let key = |number| ObjectKey::Service(ServiceId::new("default", format!("s{number}")));
    (0..count).map(|number| Event::Delete(key(number))).collect()
}

#[tokio::test]
async fn a_list_without_most_services_is_held_and_they_stay_in_force() {
    let mut guard = DeletionGuard::new(CONFIG);
    let mut processor = processor(40);
    let mut wiped = list(5);
    assert_eq!(guard.judge_list(&processor, &mut wiped), Judgement::HeldNow);
    processor.resync(wiped);
    assert_eq!(processor.count(ObjectKind::Service), 40);
    assert_eq!(guard.held().unwrap().objects, 35);
    assert_eq!(guard.judge_list(&processor, &mut list(5)), Judgement::StillHeld);
    assert_eq!(guard.judge_list(&processor, &mut list(40)), Judgement::Pass, "they are back");
    assert_eq!((guard.held(), guard.deadline()), (None, None));
}

#[tokio::test]
async fn half_of_them_or_fewer_than_ten_are_never_too_many() {
    for (known, left) in [(40, 20), (9, 0), (15, 6), (0, 0)] {
        let mut guard = DeletionGuard::new(CONFIG);
        assert_eq!(guard.judge_list(&processor(known), &mut list(left)), Judgement::Pass, "{known} {left}");
        let mut events = deletions(known - left);
        assert_eq!(guard.judge_changes(&processor(known), &mut events), Judgement::Pass);
        assert_eq!(events.len(), known - left);
    }
    let mut off = DeletionGuard::new(GuardConfig { percent: 0, ..CONFIG });
    assert_eq!(off.judge_list(&processor(40), &mut list(0)), Judgement::Pass);
}

#[tokio::test]
async fn a_batch_that_deletes_most_services_is_held_and_so_are_all_deletions_after_it() {
    let mut guard = DeletionGuard::new(CONFIG);
    let processor = processor(40);
    let mut events = deletions(24);
    events.extend(services(3).into_iter().map(Event::Put));
    assert_eq!(guard.judge_changes(&processor, &mut events), Judgement::HeldNow);
    assert_eq!(events.len(), 3, "what is put is taken in");
    let mut one = deletions(1);
    assert_eq!(guard.judge_changes(&processor, &mut one), Judgement::StillHeld);
    assert_eq!(one, []);
}

#[tokio::test]
async fn what_was_deleted_and_came_back_in_the_same_batch_is_not_gone() {
    let mut guard = DeletionGuard::new(CONFIG);
    let mut events = deletions(40);
    events.extend(services(35).into_iter().map(Event::Put));
    assert_eq!(guard.judge_changes(&processor(40), &mut events), Judgement::Pass);
    assert_eq!(events.len(), 75, "in the order in which it happened");
}

#[tokio::test]
async fn what_went_with_too_many_services_is_held_with_them() {
    let mut guard = DeletionGuard::new(CONFIG);
    let mut known = list(40);
    let entries = vec![node("10.0.0.1".parse().unwrap())];
    let node =
        intake::snapshot(&Snapshot { entries, ..Snapshot::default() }, &mut intake::Ahead::default()).0;
    known.objects.extend(node.objects.clone());
    let mut processor = processor(0);
    processor.resync(known);
    let mut wiped = list(0);
    assert_eq!(guard.judge_list(&processor, &mut wiped), Judgement::HeldNow);
    processor.resync(wiped);
    assert_eq!((processor.count(ObjectKind::Service), processor.count(ObjectKind::Node)), (40, 1));
    let mut deleted: Vec<Event> = node.objects.iter().map(|node| Event::Delete(node.key())).collect();
    assert_eq!(guard.judge_changes(&processor, &mut deleted), Judgement::StillHeld);
    assert_eq!(deleted, []);
}

#[tokio::test]
async fn after_confirmation_the_next_list_counts_whatever_it_says() {
    let mut guard = DeletionGuard::new(CONFIG);
    let processor = processor(40);
    assert!(!guard.confirm(), "nothing is held");
    guard.judge_list(&processor, &mut list(0));
    assert!(guard.deadline().is_some());
    assert!(guard.confirm());
    assert_eq!(guard.deadline(), None, "it is confirmed already");
    let mut wiped = list(0);
    assert_eq!(guard.judge_list(&processor, &mut wiped), Judgement::Pass);
    assert!(wiped.undecodable.is_empty());
    assert_eq!(guard.judge_list(&processor, &mut list(0)), Judgement::HeldNow, "only that one");
}
