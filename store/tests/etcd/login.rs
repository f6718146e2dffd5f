//! The etcd backend as a user with a password, against a real etcd with authentication.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use contiv_store::{
    Change, Feed, FeedEvent, Leases, Operation, Store, StoreError, WatchEvent,
    etcd::{EtcdAccess, EtcdStore},
};
use contiv_store_testing::{
    Authority, Etcd, EtcdOptions, Proxy,
    deliveries::{after_outage, next},
};
use futures::StreamExt;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

const PREFIX: &str = "/vnf-agent/";
const ROOT: &str = "--user=root:top";

/// An etcd with a user `contiv` who may read and write below [`PREFIX`], and the file with the user's password.
struct SecuredEtcd {
    etcd: Etcd,
    folder: TempDir,
}

impl SecuredEtcd {
    async fn start(flags: &[&str]) -> Self {
        Self::start_with(None, flags).await
    }

    async fn start_with(authority: Option<&Authority>, flags: &[&str]) -> Self {
        // A login takes 2 ms instead of 70.
        let flags: Vec<&str> = flags.iter().copied().chain(["--bcrypt-cost=4"]).collect();
        let etcd = Etcd::start_with(EtcdOptions {
            authority,
            flags: &flags,
        })
        .await
        .unwrap();
        let guarded = Self {
            etcd,
            folder: tempfile::tempdir().unwrap(),
        };
        for command in [
            &["user", "add", "root:top"][..],
            &["role", "add", "root"],
            &["user", "grant-role", "root", "root"],
            &["role", "add", "writer"],
            &[
                "role",
                "grant-permission",
                "writer",
                "readwrite",
                PREFIX,
                "--prefix",
            ],
            &["user", "add", "contiv:first"],
            &["user", "grant-role", "contiv", "writer"],
        ] {
            guarded.etcd.ctl(command).await.unwrap();
        }
        guarded.write_password("first");
        guarded
    }

    async fn enabled(flags: &[&str]) -> Self {
        let guarded = Self::start(flags).await;
        guarded.etcd.ctl(&["auth", "enable"]).await.unwrap();
        guarded
    }

    fn password_file(&self) -> PathBuf {
        self.folder.path().join("password")
    }

    fn write_password(&self, password: &str) {
        fs::write(self.password_file(), format!("{password}\n")).unwrap();
    }

    fn store(&self) -> EtcdStore {
        self.store_at(self.etcd.endpoint())
    }

    fn store_at(&self, endpoint: String) -> EtcdStore {
        let access = EtcdAccess {
            user: Some("contiv".to_owned()),
            password_file: Some(self.password_file()),
            ..EtcdAccess::default()
        };
        EtcdStore::new(&[endpoint], access).unwrap()
    }

    async fn put(&self, key: &str) {
        self.etcd.ctl(&[ROOT, "put", key, "1"]).await.unwrap();
    }
}

#[track_caller]
fn expect_put(event: FeedEvent, key: &str) {
    let FeedEvent::Changed(batch) = event else {
        panic!("expected a change: {event:?}")
    };
    assert!(
        matches!(batch.changes.as_slice(), [Change::Put(entry)] if entry.key == key),
        "{batch:?}"
    );
}

fn write() -> Vec<Operation> {
    vec![Operation::Put {
        key: format!("{PREFIX}own"),
        value: "1".into(),
    }]
}

#[tokio::test(flavor = "multi_thread")]
async fn user_with_minimal_rights_can_list_watch_and_write() {
    let guarded = SecuredEtcd::enabled(&[]).await;
    let store = guarded.store();
    let revision = store.commit(write()).await.unwrap();
    assert_eq!(store.list(PREFIX).await.unwrap().entries.len(), 1);
    let lease = store.grant(Duration::from_secs(60)).await.unwrap();
    assert!(store.keep_alive(lease).await.unwrap());
    let (mut events, _handle) = Feed::start(Arc::new(store.clone()), PREFIX);
    assert!(matches!(next(&mut events).await, FeedEvent::Snapshot(s) if s.revision == revision));
    guarded.put(&format!("{PREFIX}a")).await;
    expect_put(next(&mut events).await, &format!("{PREFIX}a"));
    let error = store.list("/elsewhere/").await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Refused { reason, .. } if reason.contains("permission denied"))
    );
    let mut watch = store.watch("/elsewhere/", 0).await;
    assert!(
        matches!(&mut watch, Err(StoreError::Refused { reason, .. }) if reason.contains("permission denied"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn token_that_has_expired_is_renewed_for_every_kind_of_request() {
    // Signed tokens expire, used or not.
    let secret = tempfile::NamedTempFile::new().unwrap();
    fs::write(&secret, "the secret that tokens are signed with").unwrap();
    let flag = format!(
        "--auth-token=jwt,priv-key={},sign-method=HS256,ttl=3s",
        secret.path().display()
    );
    let guarded = SecuredEtcd::enabled(&[&flag]).await;
    // Each gets its own token now.
    let stores: Vec<EtcdStore> = std::iter::repeat_with(|| guarded.store()).take(6).collect();
    let lease = stores[0].grant(Duration::from_secs(60)).await.unwrap();
    let mut revision = 0;
    for store in &stores {
        revision = store.list(PREFIX).await.unwrap().revision;
    }
    // Expiry has a resolution of whole seconds.
    sleep(Duration::from_secs(5)).await;
    assert!(stores[0].keep_alive(lease).await.unwrap());
    stores[1].list(PREFIX).await.unwrap();
    let mut watch = stores[2].watch(PREFIX, revision).await.unwrap();
    stores[3].commit(write()).await.unwrap();
    assert!(
        matches!(watch.next().await, Some(Ok(WatchEvent::Changed(batch))) if batch.changes.len() == 1)
    );
    stores[4].grant(Duration::from_secs(60)).await.unwrap();
    stores[5].revoke(lease).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn feed_survives_expired_and_forgotten_tokens() {
    let mut guarded = SecuredEtcd::enabled(&["--auth-token-ttl=1"]).await;
    let mut wire = Proxy::start(&guarded.etcd.endpoint()).await.unwrap();
    let (mut events, _handle) = Feed::start(Arc::new(guarded.store_at(wire.endpoint())), PREFIX);
    assert!(matches!(next(&mut events).await, FeedEvent::Snapshot(_)));
    for round in 0..2 {
        // The watch outlives its token; the next one needs another.
        sleep(Duration::from_secs(3)).await;
        wire.cut().await;
        assert!(matches!(next(&mut events).await, FeedEvent::Down { .. }));
        let key = format!("{PREFIX}{round}");
        guarded.put(&key).await;
        wire.reconnect().await.unwrap();
        assert_eq!(after_outage(&mut events).await, FeedEvent::Up);
        expect_put(next(&mut events).await, &key);
    }
    guarded.etcd.kill().await.unwrap();
    assert!(matches!(next(&mut events).await, FeedEvent::Down { .. }));
    guarded.etcd.start_again().await.unwrap();
    guarded.put(&format!("{PREFIX}z")).await;
    assert_eq!(after_outage(&mut events).await, FeedEvent::Up);
    expect_put(next(&mut events).await, &format!("{PREFIX}z"));
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_password_is_reported_and_a_corrected_one_is_used() {
    let guarded = SecuredEtcd::enabled(&[]).await;
    guarded.write_password("not-that-one");
    let store = guarded.store();
    let error = store.list(PREFIX).await.unwrap_err();
    let expected = format!(
        "the store refused to log in as user \"contiv\" with the password in {}: etcdserver: authentication failed, \
         invalid user ID or password",
        guarded.password_file().display()
    );
    assert_eq!(error.to_string(), expected);
    assert!(!format!("{error:?}").contains("not-that-one"));
    guarded.write_password("first");
    store.list(PREFIX).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn password_that_was_changed_counts_without_restart() {
    let guarded = SecuredEtcd::enabled(&[]).await;
    let store = guarded.store();
    let (mut events, _handle) = Feed::start(Arc::new(store.clone()), PREFIX);
    assert!(matches!(next(&mut events).await, FeedEvent::Snapshot(_)));
    for command in [
        &["user", "delete", "contiv"][..],
        &["user", "add", "contiv:second"],
        &["user", "grant-role", "contiv", "writer"],
    ] {
        guarded
            .etcd
            .ctl(&[&[ROOT], command].concat())
            .await
            .unwrap();
    }
    let error = store.list(PREFIX).await.unwrap_err().to_string();
    assert!(error.contains("authentication failed"), "{error}");
    guarded.write_password("second");
    store.commit(write()).await.unwrap();
    // Whatever happened to the watch meanwhile, its next event is that write.
    loop {
        match next(&mut events).await {
            FeedEvent::Down { .. } | FeedEvent::Up => {}
            event => return expect_put(event, &format!("{PREFIX}own")),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_authentication_can_be_enabled_while_in_use() {
    let guarded = SecuredEtcd::start(&[]).await;
    let (store, nobody) = (
        guarded.store(),
        EtcdStore::new(&[guarded.etcd.endpoint()], EtcdAccess::default()).unwrap(),
    );
    store.commit(write()).await.unwrap();
    nobody.commit(write()).await.unwrap();
    guarded.etcd.ctl(&["auth", "enable"]).await.unwrap();
    store.commit(write()).await.unwrap();
    store.list(PREFIX).await.unwrap();
    let error = nobody.commit(write()).await.unwrap_err().to_string();
    assert!(error.contains("user name is empty"), "{error}");
    let nobody = EtcdStore::new(&[guarded.etcd.endpoint()], EtcdAccess::default()).unwrap();
    let error = nobody.list(PREFIX).await.unwrap_err().to_string();
    assert!(
        error.ends_with("user name is empty; a user and a password are required"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn user_counts_and_not_one_that_certificate_names() {
    let authority = Authority::new().unwrap();
    let guarded = SecuredEtcd::start_with(Some(&authority), &[]).await;
    let access = EtcdAccess {
        user: Some("contiv".to_owned()),
        password_file: Some(guarded.password_file()),
        ..authority.access()
    };
    let store = EtcdStore::new(&[guarded.etcd.endpoint()], access).unwrap();
    store.commit(write()).await.unwrap();
    guarded.etcd.ctl(&["auth", "enable"]).await.unwrap();
    store.commit(write()).await.unwrap();
    store.list(PREFIX).await.unwrap();
    // The user of the certificate has no permissions.
    let nobody = EtcdStore::new(&[guarded.etcd.endpoint()], authority.access()).unwrap();
    let error = nobody.list(PREFIX).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Refused { reason, .. } if reason.contains("permission denied"))
    );
}

/// An etcd whose user `client` may write. Without a user it takes the common name of the connection's certificate for one.
async fn with_users_of_certificates() -> (Authority, SecuredEtcd) {
    let authority = Authority::new().unwrap();
    let guarded = SecuredEtcd::start_with(Some(&authority), &[]).await;
    for command in [
        &["user", "add", "client:any"][..],
        &["user", "grant-role", "client", "writer"],
        &["auth", "enable"],
    ] {
        guarded.etcd.ctl(command).await.unwrap();
    }
    (authority, guarded)
}

#[tokio::test(flavor = "multi_thread")]
async fn renewed_client_certificate_is_used_by_the_next_request() {
    let (authority, guarded) = with_users_of_certificates().await;
    authority.renew_client_as("stranger").unwrap();
    let store = EtcdStore::new(&[guarded.etcd.endpoint()], authority.access()).unwrap();
    let error = store.list(PREFIX).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Refused { reason, .. } if reason.contains("permission denied")),
        "{error}"
    );
    authority.renew_client().unwrap();
    store.list(PREFIX).await.unwrap();
    // Files that cannot be used leave the connection in use.
    fs::write(authority.file("client-key.pem"), "none").unwrap();
    store.list(PREFIX).await.unwrap();
}

/// A renewal while no connection can be opened is not forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn renewed_client_certificate_is_used_once_members_can_be_reached() {
    let (authority, guarded) = with_users_of_certificates().await;
    authority.renew_client_as("stranger").unwrap();
    let proxy = Proxy::start(&guarded.etcd.endpoint()).await.unwrap();
    let store = EtcdStore::new(&[proxy.endpoint()], authority.access()).unwrap();
    let is_stranger = async || {
        let listed = store.list(PREFIX).await;
        matches!(&listed, Err(StoreError::Refused { reason, .. }) if reason.contains("permission denied"))
    };
    assert!(is_stranger().await);
    proxy.accept_connections(false);
    authority.renew_client().unwrap();
    assert!(is_stranger().await, "the open connection stays in use");
    proxy.accept_connections(true);
    let start = Instant::now();
    while is_stranger().await {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "the new certificate is never used"
        );
        sleep(Duration::from_millis(100)).await;
    }
    store.list(PREFIX).await.unwrap();
}
