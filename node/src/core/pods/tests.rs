use std::time::Duration;

use jiff::Timestamp;

use super::*;
use crate::{
    core::history::{EventRange, Timestamps},
    message::Now,
};

fn addition(event: u64, renderers: &[&str], now: Instant) -> PodAddition {
    PodAddition {
        pod: PodId::new("default", "pod"),
        interface: InterfaceName::new("veth1"),
        previous: None,
        event,
        renderers: renderers.iter().map(|&name| name.into()).collect(),
        deadline: now + Duration::from_secs(1),
        request: RequestId(event),
    }
}

fn failure(renderer: &str, first: u64, last: u64, instant: Instant) -> RendererReport {
    let at = Timestamps::now(Now {
        instant,
        time: Timestamp::UNIX_EPOCH,
        random: 0.0,
    });
    let events = EventRange::one(first, at).union(EventRange::one(last, at));
    let outcome = Outcome::Failed {
        at: Timestamp::UNIX_EPOCH,
        error: "refused".to_owned(),
        duration_ms: 1.0,
    };
    RendererReport {
        renderer: renderer.into(),
        events,
        outcome,
        is_update: true,
    }
}

#[test]
fn report_of_other_events_or_renderer_leaves_addition_waiting() {
    let now = Instant::now();
    let mut additions = PodAdditions::default();
    additions.add(addition(7, &["a", "b"], now));
    for (renderer, first, last) in [("a", 5, 6), ("a", 8, 9), ("c", 6, 8)] {
        let finished = additions.on_report(&failure(renderer, first, last, now));
        assert!(finished.is_empty(), "{renderer} reports {first} to {last}");
    }
    assert_eq!(
        additions
            .last_of_interface(&InterfaceName::new("veth1"))
            .map(|last| last.renderers.len()),
        Some(2)
    );
    assert_eq!(additions.on_report(&failure("a", 7, 7, now)).len(), 1);
    assert_eq!(additions.deadline(), None);
}

#[test]
fn addition_expires_at_its_deadline() {
    let now = Instant::now();
    let mut additions = PodAdditions::default();
    additions.add(addition(7, &["a"], now));
    let deadline = additions.deadline().unwrap();
    assert!(
        additions
            .take_expired(deadline.checked_sub(Duration::from_nanos(1)).unwrap())
            .is_empty()
    );
    assert_eq!(additions.take_expired(deadline).len(), 1);
}
