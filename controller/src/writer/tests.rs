use super::*;
use crate::test_support::{delete, put, texts};
use contiv_store_testing::MemoryStore;

async fn object(store: &MemoryStore, key: &str) -> Object<String> {
    let [entry] = store.list(key).await.unwrap().entries.try_into().unwrap();
    texts("t").decode(entry).unwrap()
}

#[tokio::test]
async fn concurrent_changes_are_not_overwritten() {
    let store = MemoryStore::new();
    put(&store, "/t/1", "a").await;
    let writer = Writer::new(store.shared(), None);
    let read = object(&store, "/t/1").await;
    put(&store, "/t/1", "b").await;
    for write in [
        Write::update(&read, "c"),
        Write::delete(&read),
        Write::create("/t/1", "c"),
    ] {
        let error = writer
            .commit(vec![Write::create("/t/2", "x"), write])
            .await
            .unwrap_err();
        assert!(
            matches!(&error, WriteError::Conflict { key } if key == "/t/1"),
            "{error:?}"
        );
    }
    assert_eq!(store.list("/").await.unwrap().entries.len(), 1);
    writer
        .update(&object(&store, "/t/1").await, "c")
        .await
        .unwrap();
    writer
        .commit(vec![Write::delete(&object(&store, "/t/1").await)])
        .await
        .unwrap();
    assert_eq!(store.list("/").await.unwrap().entries, []);
}

#[tokio::test]
async fn writer_fails_after_its_lease_is_lost_and_won_again() {
    let store = MemoryStore::new();
    let create_revision = put(&store, "/lease", "me").await;
    let fence = Fence {
        key: "/lease".to_owned(),
        create_revision,
    };
    let writer = Writer::new(store.shared(), Some(fence));
    put(&store, "/lease", "still me").await;
    writer
        .commit(vec![Write::create("/t/1", "a")])
        .await
        .unwrap();
    delete(&store, "/lease").await;
    for _ in 0..2 {
        let error = writer
            .commit(vec![Write::create("/t/2", "a")])
            .await
            .unwrap_err();
        assert!(
            matches!(&error, WriteError::LeaseLost { key } if key == "/lease"),
            "{error:?}"
        );
        put(&store, "/lease", "me, in another term").await;
    }
    assert_eq!(store.list("/t/").await.unwrap().entries.len(), 1);
}

#[tokio::test]
async fn batch_is_split_at_transaction_limits() {
    let creations = |count: usize, size: usize| -> Vec<Write> {
        (0..count)
            .map(|i| Write::create(&format!("/t/{i:03}"), vec![0; size]))
            .collect()
    };
    let fence = Fence {
        key: "/lease".to_owned(),
        create_revision: 2,
    };
    for (fence, count, size, expected) in [
        (None, 0, 1, vec![]),
        (None, 128, 1, vec![128]),
        (None, 129, 1, vec![128, 1]),
        (Some(fence.clone()), 128, 1, vec![127, 1]),
        (None, 5, 400 << 10, vec![2, 2, 1]),
        (None, 2, 2 << 20, vec![1, 1]),
    ] {
        let store = MemoryStore::new();
        put(&store, "/lease", "me").await;
        let writer = Writer::new(store.shared(), fence);
        let transactions = writer.transactions(creations(count, size));
        let operations: Vec<_> = transactions.iter().map(|it| it.operations.len()).collect();
        assert_eq!(operations, expected);
        let revision = writer.commit(creations(count, size)).await.unwrap();
        assert_eq!(revision, (count > 0).then(|| store.revision()));
        assert_eq!(store.list("/t/").await.unwrap().entries.len(), count);
    }
}

#[tokio::test]
async fn batch_with_the_same_key_twice_is_rejected() {
    let writer = Writer::new(MemoryStore::new().shared(), None);
    let twice = vec![Write::create("/t/1", "a"), Write::create("/t/1", "b")];
    let error = writer.commit(twice).await.unwrap_err().to_string();
    assert_eq!(error, "/t/1 is written twice in one batch; write it once");
}
