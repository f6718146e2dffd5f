//! From what the store delivers to what the processor takes: decoding, with nothing lost on a bad value. Pure.

mod list;

use std::collections::BTreeSet;

use contiv_model::{
    Event, ObjectKey,
    wire::{self, Decoded, FieldError},
};
use contiv_proto::Key;
use contiv_store::{Change, Entry};
use jiff::Timestamp;

pub(super) use list::{Ahead, snapshot};

/// Larger than any object of Kubernetes, whose requests end at 3 MiB, and etcd's, which end at 1.5 MiB by default.
const LARGEST_VALUE: usize = 4 << 20;

/// A value that cannot be used. It is never taken for a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BadValue {
    /// The full key.
    pub(super) key: String,
    /// The object, where the key names one.
    pub(super) object: Option<ObjectKey>,
    /// What is wrong.
    pub(super) reason: String,
    /// The value is used all the same, but for what is wrong.
    pub(super) is_used: bool,
}

/// What one entry or change comes to.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// And when it was triggered, if it says so; and what of it is not used as it is written, if anything.
    Good(Event, Option<String>, Option<Box<BadValue>>),
    /// Of no consequence to the processor.
    Ignored,
    Bad(BadValue),
}

/// What changes come to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Intake {
    /// For the processor, in order.
    pub(super) events: Vec<Event>,
    /// Whether each value can be used, in order.
    pub(super) verdicts: Vec<Verdict>,
    /// When the first of them was triggered, of those that say so.
    pub(super) triggered: Option<Timestamp>,
}

/// Whether a value can be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The value of this key is good, or gone.
    Good(String),
    /// But for a part of it.
    Partly(BadValue),
    Bad(BadValue),
    /// A later value of the same key is good, so this one was not read.
    Superseded,
}

/// Decodes changes. Of a key that changed many times only what counts: its last good value, and the bad ones after that.
/// What was triggered before `start`, when the agent began, tells nothing of how long the agent took.
pub(super) fn changes(changes: &[Change], start: Timestamp) -> Intake {
    let mut intake = Intake::default();
    let mut settled = BTreeSet::new();
    for change in changes.iter().rev() {
        if settled.contains(change.key()) {
            intake.verdicts.push(Verdict::Superseded);
            continue;
        }
        let (key, decoded) = match change {
            Change::Put(entry) => (&entry.key, decode(entry)),
            Change::Delete { key } => (key, decode_deletion(key)),
        };
        match decoded {
            Outcome::Good(event, triggered, partly) => {
                // Most changes come alone, and have nothing before them.
                if changes.len() > 1 {
                    settled.insert(change.key());
                }
                // Whoever writes something else there is not measured.
                let triggered = triggered.and_then(|time| time.parse().ok()).filter(|time| *time >= start);
                intake.triggered = intake.triggered.into_iter().chain(triggered).min();
                intake.events.push(event);
                intake
                    .verdicts
                    .push(partly.map_or_else(|| Verdict::Good(key.clone()), |bad| Verdict::Partly(*bad)));
            }
            Outcome::Ignored => intake.verdicts.push(Verdict::Good(key.clone())),
            Outcome::Bad(bad) => intake.verdicts.push(Verdict::Bad(bad)),
        }
    }
    intake.events.reverse();
    intake.verdicts.reverse();
    intake
}

fn decode(entry: &Entry) -> Outcome {
    let bad = |object, reason: String| {
        Outcome::Bad(BadValue { key: entry.key.clone(), object, reason, is_used: false })
    };
    let key = match Key::parse(&entry.key) {
        Ok(Some(key)) => key,
        Ok(None) => return Outcome::Ignored,
        Err(error) => return bad(None, error.problem),
    };
    if entry.value.len() > LARGEST_VALUE {
        let size = entry.value.len();
        let reason = format!("the value has {size} bytes; at most {LARGEST_VALUE} are read");
        return bad(wire::object_key(&key), reason);
    }
    match wire::decode_all(&key, &entry.value, entry.create_revision) {
        Ok(Decoded { object: Some(object), warnings, triggered }) => {
            let partly = (!warnings.is_empty()).then(|| {
                Box::new(BadValue {
                    key: entry.key.clone(),
                    object: Some(object.key()),
                    reason: join(&key, &warnings),
                    is_used: true,
                })
            });
            Outcome::Good(Event::Put(object), triggered, partly)
        }
        Ok(Decoded { object: None, .. }) => Outcome::Ignored,
        Err(error) => bad(wire::object_key(&key), error.to_string()),
    }
}

fn join(key: &Key, warnings: &[FieldError]) -> String {
    let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    format!("{key}: {}", warnings.join("; "))
}

/// A key that names no object held none, so its end changes nothing.
fn decode_deletion(key: &str) -> Outcome {
    let object = Key::parse(key).ok().flatten().and_then(|key| wire::object_key(&key));
    object.map_or(Outcome::Ignored, |object| Outcome::Good(Event::Delete(object), None, None))
}

#[cfg(test)]
mod tests {
    use contiv_model::ServiceId;
    use contiv_proto::Kind;
    use contiv_store::Snapshot;

    use super::*;

    fn entry(name: &str, value: &str) -> Entry {
        let key = Key::new(Kind::Service, "default", name).unwrap().to_path();
        Entry { key, value: value.to_owned().into(), create_revision: 1, mod_revision: 1 }
    }

    fn web() -> ObjectKey {
        ObjectKey::Service(ServiceId::new("default", "web"))
    }

    #[test]
    fn a_bad_value_is_neither_an_object_nor_a_deletion() {
        let intake = changes(&[Change::Put(entry("web", "{oops"))], Timestamp::MIN);
        assert_eq!(intake.events, []);
        let [Verdict::Bad(bad)] = intake.verdicts.as_slice() else { panic!("{:?}", intake.verdicts) };
        assert_eq!(bad.object, Some(web()));
        assert!(bad.reason.contains("service default/web"), "{}", bad.reason);
    }

    #[test]
    fn changes_were_triggered_when_the_first_of_them_was_that_the_agent_can_have_been_quick_about() {
        let slice = |name: &str, time: &str| {
            let key = Key::new(Kind::EndpointSlice, "default", name).unwrap().to_path();
            let value = format!(
                r#"{{"address_type":"IPv4","annotations":{{"endpoints.kubernetes.io/last-change-trigger-time":"{time}"}}}}"#
            );
            Change::Put(Entry { key, value: value.into(), create_revision: 1, mod_revision: 1 })
        };
        let all = [
            slice("before", "2026-01-02T03:04:04Z"),
            slice("later", "2026-01-02T03:04:07Z"),
            slice("first", "2026-01-02T04:04:06.5+01:00"),
            slice("broken", "yesterday"),
            Change::Put(entry("web", r#"{"cluster_ip":"None"}"#)),
        ];
        let start = "2026-01-02T03:04:05Z".parse().unwrap();
        let intake = changes(&all, start);
        assert_eq!(intake.triggered, Some("2026-01-02T03:04:06.5Z".parse().unwrap()));
        assert_eq!(intake.events.len(), all.len(), "{:?}", intake.verdicts);
        assert_eq!(changes(&all[3..], start).triggered, None);
    }

    #[test]
    fn of_a_key_that_changed_many_times_the_last_good_value_counts_and_what_came_before_is_not_read() {
        let put = |value: &str| Change::Put(entry("web", value));
        let (first, second) = (put(r#"{"cluster_ip":"10.96.0.1"}"#), put(r#"{"cluster_ip":"10.96.0.2"}"#));
        let delete = Change::Delete { key: entry("web", "").key };
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
        let intake = changes(&all, Timestamp::MIN);
        assert_eq!(intake.events, alone(&second), "what is bad leaves the last good one in force");
        let superseded =
            intake.verdicts.iter().take_while(|verdict| **verdict == Verdict::Superseded).count();
        assert_eq!((superseded, intake.verdicts.len()), (4, all.len()));
        assert!(matches!(&intake.verdicts[4..], [Verdict::Good(_), Verdict::Bad(_), Verdict::Bad(_)]));
        assert_eq!(changes(&[first, delete.clone()], Timestamp::MIN).events, alone(&delete));
        assert_eq!(changes(&[delete, second.clone()], Timestamp::MIN).events, alone(&second));
    }

    #[test]
    fn value_with_an_unknown_word_is_used_and_reported() {
        let value = r#"{"cluster_ip":"10.96.0.041","external_traffic_policy":"Near"}"#;
        let entry = entry("web", value);
        let intake = changes(&[Change::Put(entry.clone())], Timestamp::MIN);
        assert!(matches!(&intake.events[..], [Event::Put(object)] if object.key() == web()));
        let [Verdict::Partly(partly)] = intake.verdicts.as_slice() else { panic!("{:?}", intake.verdicts) };
        assert!(partly.is_used && partly.object == Some(web()));
        for part in ["cluster_ip: \"10.96.0.041\"", "10.96.0.41", "external_traffic_policy: \"Near\""] {
            assert!(partly.reason.contains(part), "{}", partly.reason);
        }
        let list = Snapshot { entries: vec![entry], ..Snapshot::default() };
        let (resync, reported) = snapshot(&list, &mut Ahead::default());
        assert_eq!((resync.objects.len(), resync.undecodable.len()), (1, 0));
        assert_eq!(reported, std::slice::from_ref(partly));
    }

    #[test]
    fn a_value_that_is_too_large_is_refused_by_name_and_not_read() {
        let huge = " ".repeat(LARGEST_VALUE) + "{}";
        let entries = vec![entry("web", &huge), entry("web2", "{}")];
        let (resync, bad) = snapshot(&Snapshot { entries, ..Snapshot::default() }, &mut Ahead::default());
        assert_eq!(resync.undecodable.into_iter().collect::<Vec<_>>(), [web()]);
        assert!(bad[0].key.contains("web") && bad[0].reason.contains("4194306 bytes"), "{bad:?}");
        assert_eq!(bad.len(), 1, "the other one is read");
    }

    #[test]
    fn a_deletion_is_good_news_of_its_key() {
        let key = entry("web", "").key;
        let intake = changes(&[Change::Delete { key: key.clone() }], Timestamp::MIN);
        assert_eq!((intake.events, intake.verdicts), (vec![Event::Delete(web())], vec![Verdict::Good(key)]));
    }
}
