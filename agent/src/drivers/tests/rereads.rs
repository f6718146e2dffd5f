//! An agent that is given a value which was altered on its way: the store has a good one.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use contiv_store::{
    Entry, Operation, Store,
    etcd::{EtcdAccess, EtcdStore},
};
use contiv_store_testing::{Etcd, LyingEtcd};

use crate::{
    drivers::Request,
    test_support::{Harness, bad_service, service},
};

fn client(endpoint: String) -> Arc<dyn Store> {
    Arc::new(EtcdStore::new(&[endpoint], EtcdAccess::default()).unwrap())
}

async fn write(etcd: &Etcd, entry: Entry) {
    let Entry { key, value, .. } = entry;
    let put = vec![Operation::Put { key, value }];
    client(etcd.endpoint()).commit(put).await.unwrap();
}

/// Alters the value of the service `web`.
fn alter(key: &[u8], value: &mut Vec<u8>) -> bool {
    let is_web = String::from_utf8_lossy(key).contains("/web/");
    if is_web {
        *value = b"{".to_vec();
    }
    is_web
}

/// Waits until there are so many events of changes, and returns how many values cannot be used.
async fn quarantined_after(harness: &Harness, changes: usize) -> usize {
    harness
        .history(|records| {
            let kinds = records.iter().map(|record| record.kind);
            kinds.filter(|kind| *kind == "change").count() >= changes
        })
        .await;
    harness.status().await.quarantined
}

#[tokio::test(flavor = "multi_thread")]
async fn value_altered_on_its_way_is_read_again() {
    let etcd = Etcd::start().await.unwrap();
    let liar = LyingEtcd::start(&etcd.endpoint()).await.unwrap();
    write(&etcd, service("web", 1)).await;
    // The values of the last keys are compared when the watch begins.
    for number in 0..5 {
        write(&etcd, service(&format!("s{number}"), 1)).await;
    }
    let mut is_told = false;
    liar.rewrite_pages(move |page| {
        for pair in &mut page.kvs {
            is_told = is_told || alter(&pair.key.clone(), &mut pair.value);
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let harness = Harness::start_on_etcd(client(liar.endpoint()), folder.path(), true);
    assert_eq!(quarantined_after(&harness, 1).await, 0, "of a list");

    let mut is_told = false;
    liar.rewrite_watches(move |response| {
        for pair in response
            .events
            .iter_mut()
            .filter_map(|event| event.kv.as_mut())
        {
            is_told = is_told || alter(&pair.key.clone(), &mut pair.value);
        }
        true
    });
    write(&etcd, service("web", 2)).await;
    assert_eq!(quarantined_after(&harness, 3).await, 0, "of a watch");

    // One that is stored so is read again once, and stays in the quarantine.
    write(&etcd, bad_service("web")).await;
    assert_eq!(quarantined_after(&harness, 5).await, 1);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        assert_eq!(harness.status().await.quarantined, 1);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let records = harness.history(|_| true).await;
    let changes = records.iter().filter(|record| record.kind == "change");
    assert_eq!(changes.count(), 5, "{records:#?}");
    harness.requests.send(Request::Shutdown).await.unwrap();
    harness.task.await.unwrap().unwrap();
}
