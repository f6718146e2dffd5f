use std::sync::Arc;

use contiv_store::{Batch, Change, Entry, Snapshot};
use tokio::sync::watch;

use super::*;
use crate::{
    resource::{Event, Index, Object, ResourceType},
    test_support::{labels, texts},
};

fn entry(key: &str, value: &str, revision: i64) -> Entry {
    Entry {
        key: key.to_owned(),
        value: value.to_owned().into(),
        create_revision: revision,
        mod_revision: revision,
    }
}

/// Objects with these keys and texts, and one index of each sort.
fn cache_of(objects: &[(&str, &str)]) -> (watch::Sender<Contents<String>>, Cache<String>) {
    let indexes = vec![
        Index::single("first", |object: &Object<String>| {
            object.split(',').next().map(str::to_owned)
        }),
        Index::multi("all", |object: &Object<String>| {
            object.split(',').map(str::to_owned).collect()
        }),
        Index::labels("labels", |object: &Object<String>| labels(object)),
        Index::selectors("selectors", |object: &Object<String>| Some(labels(object))),
    ];
    let texts = indexes
        .into_iter()
        .fold(texts("t"), ResourceType::with_index);
    let (sender, cache) = Cache::new(texts);
    let entries = objects
        .iter()
        .map(|(key, value)| entry(key, value, 1))
        .collect();
    sender.send_modify(|contents| {
        contents.replace(Snapshot {
            revision: 1,
            entries,
            problems: vec![],
        });
    });
    (sender, cache)
}

fn keys(objects: Result<Vec<Arc<Object<String>>>, CacheError>) -> Vec<String> {
    objects
        .unwrap()
        .iter()
        .map(|object| object.key.to_string())
        .collect()
}

#[test]
fn objects_are_found_by_key_and_by_index() {
    let (_sender, cache) = cache_of(&[("/t/1", "a,b"), ("/t/2", "b"), ("/t/3", "ba,a")]);
    assert_eq!(cache.get("/t/2").unwrap().value, "b");
    assert_eq!(cache.get("/t/4"), None);
    assert_eq!(keys(cache.by_index("first", "b")), ["/t/2"]);
    assert_eq!(keys(cache.by_index("all", "b")), ["/t/1", "/t/2"]);
    assert_eq!(keys(cache.by_index("all", "")), Vec::<String>::new());
}

#[test]
fn selectors_and_labels_find_each_other() {
    let (_sender, cache) = cache_of(&[
        ("/t/1", "app=web,zone=a"),
        ("/t/2", "app=web"),
        ("/t/3", "app=webs"),
    ]);
    let view = cache.view();
    assert_eq!(
        keys(view.selected("labels", &labels("app=web"))),
        ["/t/1", "/t/2"]
    );
    assert_eq!(
        keys(view.selected("labels", &labels("zone=a,app=web"))),
        ["/t/1"]
    );
    assert_eq!(
        keys(view.selected("labels", &labels("zone=a,app=webs"))),
        Vec::<String>::new()
    );
    assert_eq!(
        keys(view.selected("labels", &labels(""))),
        Vec::<String>::new(),
        "an empty selector selects nothing"
    );

    assert_eq!(
        keys(view.selecting("selectors", &labels("app=web,zone=a,tier=1"))),
        ["/t/1", "/t/2"]
    );
    assert_eq!(
        keys(view.selecting("selectors", &labels("app=web,zone=b"))),
        ["/t/2"]
    );
    assert_eq!(
        keys(view.selecting("selectors", &labels("zone=a"))),
        Vec::<String>::new()
    );
}

#[test]
fn indexes_are_updated_by_every_change() {
    let (sender, cache) = cache_of(&[("/t/1", "a,b"), ("/t/2", "b")]);
    let changes = vec![
        Change::Put(Entry {
            create_revision: 1,
            ..entry("/t/1", "c", 2)
        }),
        Change::Delete {
            key: "/t/2".to_owned(),
        },
        Change::Put(entry("/t/3", "b", 2)),
    ];
    sender.send_modify(|contents| {
        drop(contents.apply(Batch {
            revision: 2,
            changes,
        }));
    });
    assert_eq!(keys(cache.by_index("all", "a")), Vec::<String>::new());
    assert_eq!(keys(cache.by_index("all", "b")), ["/t/3"]);
    assert_eq!(keys(cache.by_index("all", "c")), ["/t/1"]);
}

#[test]
fn missing_index_error_says_how_to_add_it() {
    let (_sender, cache) = cache_of(&[]);
    let view = cache.view();
    for result in [
        cache.by_index("owner", "x"),
        view.selected("owner", &labels("a=b")),
        view.selecting("owner", &labels("a=b")),
    ] {
        let error = result.unwrap_err().to_string();
        assert_eq!(
            error,
            "t has no index \"owner\"; give its type one with ResourceType::with_index"
        );
    }
}

#[test]
fn unwatched_type_is_an_error_by_name() {
    assert_eq!(
        Caches::default().of(&texts("c")).unwrap_err().to_string(),
        "the controller does not watch c; add a watch of it with with_watch"
    );
}

/// Deletes the first, a middle and the last object with one value, and one that does not exist.
#[test]
fn deleted_objects_are_removed_from_indexes() {
    let all: Vec<String> = (1..=5).map(|n| format!("/t/{n}")).collect();
    let (sender, cache) = cache_of(
        &all.iter()
            .map(|key| (key.as_str(), "/a"))
            .collect::<Vec<_>>(),
    );
    let mut events = Vec::new();
    let delete = |key: &str| Change::Delete {
        key: key.to_owned(),
    };
    let changes = ["/t/1", "/t/3", "/t/5", "/t/9"].map(delete).to_vec();
    sender.send_modify(|contents| {
        events = contents.apply(Batch {
            revision: 2,
            changes,
        });
    });
    assert_eq!(events.len(), 3, "a missing object causes no event");
    assert_eq!(cache.get("/t/1"), None);
    for found in [cache.by_index("first", "/a"), cache.by_index("all", "/a")] {
        assert_eq!(keys(found), ["/t/2", "/t/4"]);
    }
}

#[test]
fn object_created_again_is_a_deletion_and_an_addition() {
    let (sender, _cache) = cache_of(&[("/t/1", "old")]);
    let mut events = Vec::new();
    sender.send_modify(|contents| {
        let entries = vec![entry("/t/1", "new", 5)];
        events = contents.replace(Snapshot {
            revision: 9,
            entries,
            problems: vec![],
        });
    });
    let [Event::Deleted(old), Event::Added(new)] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!((old.value.as_str(), new.value.as_str()), ("old", "new"));
}

#[test]
fn unreadable_object_keeps_its_state_until_corrected_or_deleted() {
    let (sender, cache) = cache_of(&[("/t/1", "good")]);
    let mut events = Vec::new();
    let problems = || {
        cache
            .view()
            .problems()
            .map(|(key, why)| format!("{key}: {why}"))
            .collect::<Vec<_>>()
    };
    sender.send_modify(|contents| {
        let changes = vec![
            Change::Put(entry("/t/1", "!bad", 2)),
            Change::Put(entry("/t/2", "!worse", 2)),
        ];
        events = contents.apply(Batch {
            revision: 2,
            changes,
        });
    });
    assert_eq!(events, []);
    assert_eq!(cache.get("/t/1").unwrap().value, "good");
    assert_eq!(
        problems(),
        ["/t/1: !bad is no text", "/t/2: !worse is no text"]
    );

    sender.send_modify(|contents| {
        let entries = vec![entry("/t/1", "!bad", 2)];
        events = contents.replace(Snapshot {
            revision: 3,
            entries,
            problems: vec![],
        });
    });
    assert_eq!(events, []);
    assert_eq!(
        cache.get("/t/1").unwrap().value,
        "good",
        "a list with it is no deletion either"
    );
    assert_eq!(problems(), ["/t/1: !bad is no text"]);

    sender.send_modify(|contents| {
        let changes = vec![Change::Delete {
            key: "/t/1".to_owned(),
        }];
        events = contents.apply(Batch {
            revision: 4,
            changes,
        });
    });
    assert!(matches!(events.as_slice(), [Event::Deleted(old)] if old.value == "good"));
    assert_eq!(problems(), Vec::<String>::new());
}
