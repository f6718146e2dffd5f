use std::{collections::BTreeMap, time::Duration};

use contiv_store::{Operation, Store};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::*;
use crate::{
    resource::{Index, Object},
    test_support::{delete, ms, put, texts},
};
use contiv_store_testing::{Faults, MemoryStore};

fn start(store: &MemoryStore) -> (Reflector<String>, Cache<String>) {
    let index = Index::single("text", |object: &Object<String>| Some(object.value.clone()));
    Reflector::start(store.shared(), &texts("t").with_index(index))
}

/// Events as text: `+ new`, `~ old new`, `- old`.
fn describe(events: &[Event<String>]) -> Vec<String> {
    let describe = |event: &Event<String>| match event {
        Event::Added(new) => format!("+ {}", new.value),
        Event::Modified { old, new } => format!("~ {} {}", old.value, new.value),
        Event::Deleted(old) => format!("- {}", old.value),
    };
    events.iter().map(describe).collect()
}

#[tokio::test(start_paused = true)]
async fn nothing_is_synced_before_first_list_and_everything_after_it() {
    let store = MemoryStore::new();
    put(&store, "/t/1", "a").await;
    let revision = put(&store, "/other/1", "x").await;
    let (mut reflector, cache) = start(&store);
    assert!(!cache.has_synced() && cache.last_sync_revision().is_none());
    let waiting = tokio::spawn({
        let cache = cache.clone();
        async move { cache.wait_for_revision(revision).await }
    });
    assert_eq!(describe(&reflector.next().await.unwrap()), ["+ a"]);
    assert!(cache.has_synced());
    assert_eq!(cache.last_sync_revision(), Some(revision));
    assert_eq!(waiting.await.unwrap(), Ok(()));
    drop(reflector);
    assert!(matches!(
        cache.wait_for_revision(revision + 1).await,
        Err(crate::CacheError::Ended { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn empty_list_is_list() {
    let (mut reflector, cache) = start(&MemoryStore::new());
    assert_eq!(reflector.next().await.unwrap(), []);
    assert!(cache.has_synced());
}

#[tokio::test(start_paused = true)]
async fn changes_carry_old_and_new_object_after_the_cache_update() {
    let store = MemoryStore::new();
    put(&store, "/t/1", "a").await;
    let (mut reflector, cache) = start(&store);
    reflector.next().await;
    let revision = put(&store, "/t/1", "b").await;
    let events = reflector.next().await.unwrap();
    assert_eq!(describe(&events), ["~ a b"]);
    let cached = cache.get("/t/1").unwrap();
    assert_eq!(cached.mod_revision, revision);
    assert!(
        Arc::ptr_eq(&cached, events[0].after().unwrap()),
        "the object is not copied"
    );
    assert_eq!(cache.wait_for_revision(revision).await, Ok(()));
    delete(&store, "/t/1").await;
    assert_eq!(describe(&reflector.next().await.unwrap()), ["- b"]);
    assert_eq!(cache.get("/t/1"), None);
    assert_eq!(cache.by_index("text", "b").unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn deletion_is_not_lost_over_compaction() {
    let store = MemoryStore::new();
    for (key, value) in [
        ("/t/1", "stays"),
        ("/t/2", "goes"),
        ("/t/3", "changes"),
        ("/t/4", "anew"),
    ] {
        put(&store, key, value).await;
    }
    let (mut reflector, cache) = start(&store);
    reflector.next().await;
    // The watch must be open before it can be broken.
    tokio::time::sleep(ms(1)).await;
    store.cut();
    tokio::time::sleep(ms(1)).await;
    let other = store.another_client();
    delete(&other, "/t/2").await;
    put(&other, "/t/3", "changed").await;
    delete(&other, "/t/4").await;
    put(&other, "/t/4", "again").await;
    other.compact();
    put(&other, "/t/5", "new").await;
    store.reconnect();
    let events = reflector.next().await.unwrap();
    assert_eq!(
        describe(&events),
        ["- goes", "~ changes changed", "- anew", "+ again", "+ new"]
    );
    assert!(cache.view().down().is_none());
}

#[tokio::test(start_paused = true)]
async fn outage_is_reported_and_cache_stays() {
    let store = MemoryStore::new();
    put(&store, "/t/1", "a").await;
    let (mut reflector, cache) = start(&store);
    reflector.next().await;
    store.cut();
    assert!(
        tokio::time::timeout(ms(500), reflector.next())
            .await
            .is_err()
    );
    assert!(cache.view().down().unwrap().contains("the wire is cut"));
    assert_eq!(cache.get("/t/1").unwrap().value, "a");
    store.reconnect();
    assert!(
        tokio::time::timeout(Duration::from_secs(10), reflector.next())
            .await
            .is_err()
    );
    assert_eq!(cache.view().down(), None);
}

#[tokio::test(start_paused = true)]
async fn resync_that_finds_nothing_new_has_no_events() {
    let store = MemoryStore::new();
    put(&store, "/t/1", "a").await;
    let (mut reflector, _cache) = start(&store);
    reflector.next().await;
    reflector.request_resync();
    assert_eq!(reflector.next().await.unwrap(), []);
}

/// Despite all faults the events, applied one after the other, lead from nothing to the content of the store.
#[tokio::test(start_paused = true)]
async fn events_fold_to_the_store_despite_faults() {
    for seed in 0..30 {
        let store = MemoryStore::with_faults(Faults::seeded(seed));
        let mut random = StdRng::seed_from_u64(seed);
        let (mut reflector, cache) = start(&store);
        let mut folded: BTreeMap<_, Arc<Object<String>>> = BTreeMap::new();
        let mut fold = |events: Vec<Event<String>>| {
            for event in events {
                assert_eq!(
                    event.before(),
                    folded.get(event.key()),
                    "seed {seed}: {event:?}"
                );
                match event.after() {
                    Some(new) => drop(folded.insert(Arc::clone(event.key()), Arc::clone(new))),
                    None => drop(folded.remove(event.key())),
                }
            }
            folded.values().cloned().collect::<Vec<_>>()
        };
        for step in 0..200 {
            let key = format!("/t/{}", random.random_range(0..8));
            let operation = if random.random_bool(0.4) {
                Operation::Delete { key }
            } else {
                Operation::Put {
                    key,
                    value: format!("{step}").into(),
                }
            };
            // Whether the answer is lost does not matter here.
            let _ = store.commit(vec![operation]).await;
            if random.random_bool(0.5)
                && let Ok(events) = tokio::time::timeout(ms(50), reflector.next()).await
            {
                fold(events.unwrap());
            }
        }
        store.stop_faults();
        while let Ok(events) = tokio::time::timeout(Duration::from_secs(30), reflector.next()).await
        {
            fold(events.unwrap());
        }
        let expected: Vec<_> = store
            .list("/t/")
            .await
            .unwrap()
            .entries
            .into_iter()
            .map(|entry| Arc::new(texts("t").decode(entry).unwrap()))
            .collect();
        assert_eq!(fold(vec![]), expected, "seed {seed}");
        assert_eq!(cache.list(), expected, "seed {seed}");
        for object in &expected {
            assert!(
                cache
                    .by_index("text", &object.value)
                    .unwrap()
                    .contains(object)
            );
        }
    }
}
