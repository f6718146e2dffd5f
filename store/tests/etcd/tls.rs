//! The etcd backend with certificates, against a real etcd that requires them.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails"
)]

use std::{fs, sync::Arc, time::Duration};

use contiv_store::{
    Change, Feed, FeedEvent, Operation, Store, StoreError,
    etcd::{EtcdAccess, EtcdStore},
};
use contiv_store_testing::{
    Authority, Etcd, EtcdOptions,
    deliveries::{after_outage, down, next},
};
use tokio::time::timeout;

async fn start(authority: &Authority) -> Etcd {
    Etcd::start_with(EtcdOptions {
        authority: Some(authority),
        flags: &[],
    })
    .await
    .unwrap()
}

fn store(etcd: &Etcd, access: EtcdAccess) -> EtcdStore {
    EtcdStore::new(&[etcd.endpoint()], access).unwrap()
}

async fn why_unavailable(store: &EtcdStore) -> String {
    let error = timeout(Duration::from_secs(60), store.list("/"))
        .await
        .expect("the call did not end")
        .unwrap_err();
    match error {
        StoreError::Unavailable { reason, .. } => reason,
        other => panic!("expected an etcd that cannot be reached: {other}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_with_certificates_is_written_listed_and_watched() {
    let authority = Authority::new().unwrap();
    let etcd = start(&authority).await;
    let url = etcd.url().parse().unwrap();
    assert!(etcd.url().starts_with("etcds://"));
    // The scheme of the URL enables TLS, independent of the other settings.
    let store = contiv_store::open(
        &url,
        EtcdAccess {
            tls: false,
            ..authority.access()
        },
    )
    .await
    .unwrap();
    let put = Operation::Put {
        key: "/a".to_owned(),
        value: "1".into(),
    };
    let revision = store.commit(vec![put.clone()]).await.unwrap();
    assert_eq!(store.list("/").await.unwrap().entries.len(), 1);
    let (mut events, _handle) = Feed::start(Arc::clone(&store), "/");
    assert!(matches!(next(&mut events).await, FeedEvent::Snapshot(s) if s.revision == revision));
    store.commit(vec![put]).await.unwrap();
    let FeedEvent::Changed(batch) = next(&mut events).await else {
        panic!("expected a change")
    };
    assert!(
        matches!(batch.changes.as_slice(), [Change::Put(entry)] if entry.mod_revision == revision + 1)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn untrusted_server_is_refused_with_the_reason() {
    let authority = Authority::new().unwrap();
    let stranger = Authority::new().unwrap();
    let etcd = start(&authority).await;

    let wrong_authority = EtcdAccess {
        ca_file: Some(stranger.file("ca.pem")),
        ..authority.access()
    };
    let reason = why_unavailable(&store(&etcd, wrong_authority)).await;
    assert!(reason.contains("invalid peer certificate"), "{reason}");

    // A leaf in place of its authority.
    let leaf = EtcdAccess {
        ca_file: Some(authority.file("server.pem")),
        ..authority.access()
    };
    let reason = why_unavailable(&store(&etcd, leaf)).await;
    assert!(
        reason.contains("must have the certificate of the authority"),
        "{reason}"
    );

    let system_authorities = EtcdAccess {
        ca_file: None,
        ..authority.access()
    };
    let reason = why_unavailable(&store(&etcd, system_authorities)).await;
    assert!(
        reason.contains("invalid peer certificate: UnknownIssuer"),
        "{reason}"
    );

    let no_certificate = EtcdAccess {
        cert_file: None,
        key_file: None,
        ..authority.access()
    };
    let reason = why_unavailable(&store(&etcd, no_certificate)).await;
    assert!(
        reason.ends_with("(it may not accept this client's certificate)"),
        "{reason}"
    );

    let wrong_certificate = EtcdAccess {
        cert_file: Some(stranger.file("client.pem")),
        key_file: Some(stranger.file("client-key.pem")),
        ..authority.access()
    };
    let reason = why_unavailable(&store(&etcd, wrong_certificate)).await;
    assert!(
        reason.ends_with("(it may not accept this client's certificate)"),
        "{reason}"
    );

    let without_tls = why_unavailable(&store(&etcd, EtcdAccess::default())).await;
    assert!(
        without_tls.ends_with("(it may require TLS)"),
        "{without_tls}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn client_certificate_of_x509_version_1_is_refused_by_name() {
    let authority = Authority::new().unwrap();
    let etcd = start(&authority).await;
    authority.use_version_1().unwrap();
    let error = store(&etcd, authority.access())
        .list("/")
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("the client's certificate is of X.509 version 1"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_that_were_all_replaced_count_without_restart() {
    let authority = Authority::new().unwrap();
    let mut etcd = start(&authority).await;
    let (mut events, _handle) = Feed::start(Arc::new(store(&etcd, authority.access())), "/");
    assert!(matches!(next(&mut events).await, FeedEvent::Snapshot(_)));
    for round in 0..3 {
        etcd.kill().await.unwrap();
        down(&mut events).await;
        authority.renew().unwrap();
        etcd.start_again().await.unwrap();
        etcd.ctl(&["put", &format!("/{round}"), "1"]).await.unwrap();
        assert_eq!(after_outage(&mut events).await, FeedEvent::Up);
        let FeedEvent::Changed(batch) = next(&mut events).await else {
            panic!("expected a change")
        };
        assert!(
            matches!(batch.changes.as_slice(), [Change::Put(entry)] if entry.key == format!("/{round}"))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_certificate_file_is_reported_and_a_corrected_one_used() {
    let authority = Authority::new().unwrap();
    let etcd = start(&authority).await;
    let key = authority.file("client-key.pem");
    let good = fs::read(&key).unwrap();
    let store = store(&etcd, authority.access());
    fs::write(&key, &good[..good.len() / 2]).unwrap();
    let error = store.list("/").await.unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "failed to use {}: it holds no PRIVATE KEY in PEM form",
            key.display()
        )
    );
    // The file has the right format and invalid content.
    fs::write(
        &key,
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
    )
    .unwrap();
    let error = store.list("/").await.unwrap_err().to_string();
    assert!(
        error.contains(&key.display().to_string()) && error.contains("private key"),
        "{error}"
    );
    fs::remove_file(&key).unwrap();
    let error = store.list("/").await.unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("failed to read {}", key.display())),
        "{error}"
    );
    fs::write(&key, good).unwrap();
    store.list("/").await.unwrap();
}
