use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// A store that follows etcd's rules.
#[derive(Default)]
struct History {
    revision: i64,
    pairs: BTreeMap<u8, PbKeyValue>,
    events: Vec<PbEvent>,
}

impl History {
    /// Writes a key, or deletes it.
    fn write(&mut self, key: u8, is_deleted: bool) {
        let before = self.pairs.remove(&key);
        if is_deleted && before.is_none() {
            return;
        }
        self.revision += 1;
        let mut pair = PbKeyValue {
            key: vec![b'/', key],
            mod_revision: self.revision,
            ..PbKeyValue::default()
        };
        if !is_deleted {
            pair.version = before.as_ref().map_or(1, |before| before.version + 1);
            pair.create_revision = before.map_or(self.revision, |before| before.create_revision);
            self.pairs.insert(key, pair.clone());
        }
        self.events.push(PbEvent {
            r#type: DELETE * i32::from(is_deleted),
            kv: Some(pair),
            prev_kv: None,
        });
    }

    fn of(writes: &[(u8, bool)]) -> Self {
        let mut history = Self {
            revision: 1,
            ..Self::default()
        };
        for (key, is_deleted) in writes {
            history.write(*key, *is_deleted);
        }
        history
    }

    /// Lists all keys.
    fn list(&self, known: &KnownPrefixes) -> Result<(), StoreError> {
        let mut list = known.begin_list("/");
        let count = self.pairs.len();
        let keys = i64::try_from(count).unwrap();
        let page = ListPage {
            from: b"/",
            limit: keys.max(1),
            count: keys,
            revision: self.revision,
            has_more: false,
            begins_range: true,
        };
        list.read_page(page, self.pairs.values())?;
        known.end_list("/", list)
    }
}

/// Gives the events to a reader, each as a message.
fn deliver(keys: &mut KnownKeys, events: &[PbEvent]) -> Result<(), StoreError> {
    for event in events {
        keys.check_order(std::slice::from_ref(event), None)?;
        keys.follow(event)?;
        keys.advance(event.kv.as_ref().map_or(0, |pair| pair.mod_revision));
    }
    Ok(())
}

/// What is said of the last of some events, after a list before the first.
fn said_of(writes: &[(u8, bool)], change: impl Fn(&mut Vec<PbEvent>)) -> Option<Inconsistency> {
    let (known, before) = (
        KnownPrefixes::default(),
        History::of(&[(1, false), (2, false), (3, false)]),
    );
    before.list(&known).unwrap();
    let all: Vec<(u8, bool)> = [(1, false), (2, false), (3, false)]
        .iter()
        .chain(writes)
        .copied()
        .collect();
    let mut events = History::of(&all).events.split_off(3);
    change(&mut events);
    match deliver(&mut known.take("/", before.revision), &events) {
        Err(StoreError::Inconsistent { inconsistency, .. }) => Some(inconsistency),
        Err(other) => panic!("{other}"),
        Ok(()) => None,
    }
}

const PUT: bool = false;
const DELETED: bool = true;

#[test]
fn change_that_does_not_continue_its_key_is_found() {
    use Inconsistency::{Order, Version};
    type Change = fn(&mut Vec<PbEvent>);
    type Writes<'a> = &'a [(u8, bool)];
    fn pair(events: &mut [PbEvent]) -> &mut PbKeyValue {
        events[0].kv.as_mut().unwrap()
    }
    let lost: Change = |events| drop(events.remove(0));
    let swapped: Change = |events| events.swap(0, 1);
    let twice: Change = |events| events.extend_from_within(0..1);
    let cases: [(Writes<'_>, Change, Option<Inconsistency>); 14] = [
        (&[(1, PUT), (1, PUT)], |_| (), None),
        (&[(1, PUT), (1, PUT)], lost, Some(Version)),
        (&[(1, DELETED), (1, PUT)], lost, Some(Version)),
        (&[(1, DELETED), (2, PUT)], lost, None),
        (&[(4, PUT), (4, PUT)], lost, Some(Version)),
        (&[(4, PUT), (4, DELETED)], lost, Some(Version)),
        (
            &[(1, DELETED), (1, PUT), (1, PUT)],
            |events| drop(events.drain(..2)),
            Some(Version),
        ),
        (&[(1, PUT), (2, PUT)], swapped, Some(Order)),
        (&[(1, PUT), (2, PUT)], twice, Some(Order)),
        (&[(1, PUT)], twice, Some(Order)),
        (&[(1, DELETED)], twice, Some(Order)),
        (
            &[(1, PUT)],
            |events| pair(events).version = 1,
            Some(Version),
        ),
        (
            &[(1, PUT)],
            |events| pair(events).create_revision = 9,
            Some(Version),
        ),
        (
            &[(1, PUT)],
            |events| pair(events).mod_revision = 3,
            Some(Order),
        ),
    ];
    for (number, (writes, change, expected)) in cases.into_iter().enumerate() {
        assert_eq!(said_of(writes, change), expected, "case {number}");
    }
}

#[test]
fn change_not_after_reported_progress_is_found() {
    let known = KnownPrefixes::default();
    History::of(&[(1, PUT)]).list(&known).unwrap();
    let mut keys = known.take("/", 2);
    keys.advance(4);
    let events = History::of(&[(1, PUT), (1, PUT)]).events.split_off(1);
    assert!(keys.check_order(&events, None).is_err());
    // The first may be of the revision at which the watch began.
    let events = History::of(&[(1, PUT), (2, PUT), (3, PUT)])
        .events
        .split_off(2);
    assert!(keys.check_order(&events, None).is_ok());
}

#[test]
fn change_newer_than_its_message_is_found() {
    let events = History::of(&[(1, PUT), (2, PUT)]).events;
    for (newest, is_consistent) in [(Some(2), false), (Some(3), true), (None, true)] {
        let mut keys = KnownPrefixes::default().take("/", 1);
        let checked = keys.check_order(&events, newest);
        assert_eq!(checked.is_ok(), is_consistent, "{newest:?}");
    }
}

#[test]
fn list_below_what_was_known_is_refused_once() {
    let (known, old) = (KnownPrefixes::default(), History::of(&[(1, PUT)]));
    let new = History::of(&[(1, PUT), (1, PUT)]);
    new.list(&known).unwrap();
    let is_old = |listed: Result<(), StoreError>| {
        matches!(
            listed,
            Err(StoreError::Inconsistent {
                inconsistency: Inconsistency::OldList,
                ..
            })
        )
    };
    // Its key is older than it was, whatever the list says of itself.
    assert!(is_old(
        History {
            revision: 9,
            ..History::of(&[(1, PUT)])
        }
        .list(&known)
    ));
    assert!(is_old(old.list(&known)));
    assert!(matches!(
        old.list(&known),
        Err(StoreError::Rewound {
            requested: 3,
            newest: 2
        })
    ));
    old.list(&known).expect("it was restored");
    new.list(&known).unwrap();
    assert!(is_old(old.list(&known)));
    new.list(&known).expect("it is as new as before");
    assert!(is_old(old.list(&known)), "it is refused anew");
    known.forget("/");
    old.list(&known).expect("nothing is known");
}

#[test]
fn page_with_other_keys_than_it_says_is_found() {
    let page = |from: &'static [u8], limit, count, has_more| ListPage {
        from,
        limit,
        count,
        revision: 9,
        has_more,
        begins_range: from != b"/c",
    };
    for (said, keys, is_consistent) in [
        (page(b"/", 5, 3, false), 3, true),
        (page(b"/", 3, 3, false), 3, true),
        (page(b"/", 2, 3, true), 2, true),
        (page(b"/", 2, 3, false), 2, false),
        (page(b"/", 5, 3, true), 3, false),
        (page(b"/", 5, 3, false), 2, false),
        (page(b"/", 2, 3, true), 3, false),
    ] {
        let mut list = KnownPrefixes::default().begin_list("/");
        assert_eq!(
            list.begin_page(said, keys).is_ok(),
            is_consistent,
            "{said:?} {keys}"
        );
    }
    // Two pages with a key between them that neither has.
    let (known, mut list) = (
        KnownPrefixes::default(),
        KnownPrefixes::default().begin_list("/"),
    );
    list.begin_page(page(b"/", 2, 5, true), 2).unwrap();
    list.begin_page(page(b"/c", 5, 2, false), 2).unwrap();
    assert!(known.end_list("/", list).is_err());
    // Two ranges.
    let mut list = known.begin_list("/");
    list.begin_page(page(b"/", 5, 3, false), 3).unwrap();
    list.begin_page(page(b"/d", 5, 2, false), 2).unwrap();
    assert_eq!(list.announced(), 5);
    known.end_list("/", list).unwrap();
}

#[test]
fn listed_key_that_cannot_be_there_is_found() {
    use Inconsistency::{Order, Version};
    let pair = |key: &str, version, create_revision, mod_revision| PbKeyValue {
        key: key.into(),
        version,
        create_revision,
        mod_revision,
        ..PbKeyValue::default()
    };
    let cases = [
        ([pair("/a", 1, 2, 2), pair("/b", 2, 3, 9)], None),
        ([pair("/b", 1, 2, 2), pair("/a", 2, 3, 9)], Some(Order)),
        ([pair("/a", 1, 2, 2), pair("/a", 1, 2, 2)], Some(Order)),
        ([pair("/a", 1, 2, 2), pair("/b", 2, 3, 10)], Some(Version)),
        ([pair("/a", 0, 2, 3), pair("/b", 2, 3, 9)], Some(Version)),
        ([pair("/a", 1, 2, 3), pair("/b", 2, 3, 9)], Some(Version)),
        ([pair("/a", 2, 2, 2), pair("/b", 2, 3, 9)], Some(Version)),
        ([pair("/a", 2, 4, 3), pair("/b", 2, 3, 9)], Some(Version)),
    ];
    for (pairs, expected) in cases {
        let page = ListPage {
            from: b"/",
            limit: 5,
            count: 2,
            revision: 9,
            has_more: false,
            begins_range: true,
        };
        let mut list = KnownPrefixes::default().begin_list("/");
        let found = match list.read_page(page, pairs.iter()) {
            Err(StoreError::Inconsistent { inconsistency, .. }) => Some(inconsistency),
            _ => None,
        };
        assert_eq!(found, expected, "{pairs:?}");
    }
}

/// A watch that was lied to knows what is not true.
#[test]
fn keys_of_a_suspect_watch_are_no_evidence() {
    let known = KnownPrefixes::default();
    History::of(&[(1, PUT), (2, PUT)]).list(&known).unwrap();
    let mut keys = known.take("/", 3);
    let invented = History::of(&[(1, PUT), (2, PUT), (1, PUT)]).events;
    keys.follow(&invented[2]).unwrap();
    keys.set_suspect();
    known.put_back("/", keys);
    let truth = History::of(&[(1, PUT), (2, PUT), (2, PUT)]);
    truth
        .list(&known)
        .expect("its keys are not older than what is known");
}

#[test]
fn keys_beyond_the_limit_are_not_known() {
    let known = KnownPrefixes::default();
    let mut keys = known.take("/", 1);
    keys.is_complete = true;
    for number in 0..=i64::try_from(MAX_KEYS).unwrap() {
        let key = number.to_string().into_bytes();
        let kv = PbKeyValue {
            key,
            mod_revision: number + 2,
            create_revision: number + 2,
            version: 1,
            ..PbKeyValue::default()
        };
        keys.follow(&PbEvent {
            r#type: 0,
            kv: Some(kv),
            prev_kv: None,
        })
        .unwrap();
    }
    assert_eq!((keys.states.len(), keys.is_complete), (1, false));
}

proptest! {
    #[test]
    fn truthful_store_is_never_suspect(
        writes in prop::collection::vec((0_u8..4, any::<bool>()), 0..40),
        lists in prop::collection::vec(0_usize..40, 1..4),
    ) {
        let known = KnownPrefixes::default();
        let mut lists: Vec<usize> = lists.into_iter().map(|at| at.min(writes.len())).collect();
        lists.sort_unstable();
        for at in lists {
            let listed = History::of(&writes[..at]);
            listed.list(&known).unwrap();
            let all = History::of(&writes);
            let later = all.events.iter().filter(|event| {
                event.kv.as_ref().is_some_and(|pair| pair.mod_revision > listed.revision)
            });
            let events: Vec<PbEvent> = later.cloned().collect();
            let half = events.len() / 2;
            let mut keys = known.take("/", listed.revision);
            deliver(&mut keys, &events[..half]).unwrap();
            let reached = keys.revision;
            known.put_back("/", keys);
            let mut keys = known.take("/", reached);
            deliver(&mut keys, &events[half..]).unwrap();
            known.forget("/");
        }
    }
}
