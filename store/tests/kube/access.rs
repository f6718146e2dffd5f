use std::{fs, time::Duration};

use contiv_store::StoreError;
use contiv_store_testing::{Authority, Proxy};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn tls_and_token_list_and_watch_everything() {
    let server = ApiServer::start_with_tls(Authority::new().unwrap()).unwrap();
    server.require_token("secret").unwrap();
    server.put(service("web", "None")).unwrap();
    let mut events = start_feed(open(&server).await);
    assert_eq!(keys(&snapshot(&mut events).await), [key("web")]);
    server.delete("services", "default", "web");
    assert_eq!(
        change(&mut events).await,
        Change::Delete { key: key("web") }
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn untrusted_server_gets_no_request() {
    let server = ApiServer::start_with_tls(Authority::new().unwrap()).unwrap();
    let path = server.kubeconfig().unwrap();
    let other = Authority::new().unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let from = text.find("certificate-authority: ").unwrap();
    let to = from + text[from..].find('}').unwrap();
    let text = format!(
        "{}certificate-authority: {}{}",
        &text[..from],
        other.file("ca.pem").display(),
        &text[to..]
    );
    let forged = path.with_extension("other");
    fs::write(&forged, text).unwrap();
    let url = format!("kube:{}", forged.display()).parse().unwrap();
    let store = contiv_store::open(&url, EtcdAccess::default())
        .await
        .unwrap();
    let error = store.list(ROOT).await.unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
    assert_eq!(server.take_requests(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn token_that_is_renewed_is_read_again_after_it_was_refused() {
    let server = ApiServer::start().unwrap();
    server.require_token("first").unwrap();
    let store = open(&server).await;
    store.list(ROOT).await.unwrap();
    server.accept_token("second");
    let error = store.list(ROOT).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Refused { reason, .. } if reason.contains("token")),
        "{error}"
    );
    server.require_token("second").unwrap();
    store.list(ROOT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_permission_is_named_with_the_rule_needed() {
    let server = ApiServer::start().unwrap();
    server.fail_next(1, 403);
    let error = open(&server)
        .await
        .list(&Key::prefix(Kind::Service))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("read services") && error.contains("verbs list and watch"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn request_to_overloaded_server_is_retried() {
    let server = ApiServer::start().unwrap();
    server.put(service("web", "None")).unwrap();
    server.fail_next(2, 429);
    let mut events = start_feed(open(&server).await);
    assert!(
        matches!(next(&mut events).await, FeedEvent::Down { reason } if reason.contains("429"))
    );
    assert_eq!(keys(&snapshot(&mut events).await), [key("web")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn kubeconfig_that_is_missing_counts_as_soon_as_it_is_there() {
    let server = ApiServer::start().unwrap();
    let path = server.kubeconfig().unwrap();
    let later = path.with_extension("later");
    let url = format!("kube:{}", later.display()).parse().unwrap();
    let mut events = start_feed(
        contiv_store::open(&url, EtcdAccess::default())
            .await
            .unwrap(),
    );
    let FeedEvent::Down { reason } = next(&mut events).await else {
        panic!("expected an outage")
    };
    assert!(reason.contains(&later.display().to_string()), "{reason}");
    fs::rename(path, later).unwrap();
    snapshot(&mut events).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_certificate_of_x509_version_1_is_refused_by_name() {
    let authority = Authority::new().unwrap();
    authority.use_version_1().unwrap();
    let server = ApiServer::start_with_tls(authority).unwrap();
    let url = format!(
        "kube:{}",
        server.kubeconfig_with_certificate().unwrap().display()
    );
    let store = contiv_store::open(&url.parse().unwrap(), EtcdAccess::default())
        .await
        .unwrap();
    let error = store.list(ROOT).await.unwrap_err().to_string();
    assert!(
        error.contains("the client's certificate is of X.509 version 1"),
        "{error}"
    );
    assert!(!error.contains("private key"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn context_that_kubeconfig_does_not_have_is_named() {
    let server = ApiServer::start().unwrap();
    let url = format!("{}?context=elsewhere", server.url().unwrap())
        .parse()
        .unwrap();
    let store = contiv_store::open(&url, EtcdAccess::default())
        .await
        .unwrap();
    let error = store.list(ROOT).await.unwrap_err().to_string();
    assert!(error.contains("elsewhere"), "{error}");
    let url = format!("{}?context=here", server.url().unwrap())
        .parse()
        .unwrap();
    contiv_store::open(&url, EtcdAccess::default())
        .await
        .unwrap()
        .list(ROOT)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn server_disconnected_is_watched_again_when_reachable() {
    let server = ApiServer::start_with_tls(Authority::new().unwrap()).unwrap();
    let mut wire = Proxy::start(&server.endpoint()).await.unwrap();
    let address = KubeAddress {
        kubeconfig: Some(server.kubeconfig_for(&wire.endpoint()).unwrap()),
        ..KubeAddress::default()
    };
    let mut events = start_feed(Arc::new(KubeStore::new(address, &Scope::cluster())));
    snapshot(&mut events).await;
    wire.cut().await;
    assert!(matches!(next(&mut events).await, FeedEvent::Down { .. }));
    server.put(service("web", "None")).unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    wire.reconnect().await.unwrap();
    assert_eq!(after_outage(&mut events).await, FeedEvent::Up);
    assert!(matches!(change(&mut events).await, Change::Put(entry) if entry.key == key("web")));
}
