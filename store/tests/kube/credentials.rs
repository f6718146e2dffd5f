//! Credentials as people write them, unusable ones, and those that are renewed on disk.

use std::{fs, path::PathBuf, time::Duration};

use contiv_store::{
    StoreError,
    kube::{KubeCluster, Review, TokenReviewer},
};
use contiv_store_testing::Authority;
use tokio::time::{sleep, timeout};

use super::*;

/// A kubeconfig of a server, with these fields of the user in the place of the token file. It is replaced at once.
fn kubeconfig(server: &ApiServer, user: &str) -> PathBuf {
    let path = server.kubeconfig().unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once("{tokenFile: ").unwrap();
    let (_, after) = rest.split_once('}').unwrap();
    let (new, path) = (path.with_extension("new"), path.with_extension("user"));
    fs::write(&new, format!("{before}{{{user}}}{after}")).unwrap();
    fs::rename(&new, &path).unwrap();
    path
}

/// The token file that the kubeconfig of a server names.
fn token_file(server: &ApiServer) -> PathBuf {
    let text = fs::read_to_string(server.kubeconfig().unwrap()).unwrap();
    text.split_once("{tokenFile: ")
        .unwrap()
        .1
        .split_once('}')
        .unwrap()
        .0
        .into()
}

fn address(kubeconfig: PathBuf) -> KubeAddress {
    KubeAddress {
        kubeconfig: Some(kubeconfig),
        ..KubeAddress::default()
    }
}

async fn list(kubeconfig: PathBuf) -> Result<Snapshot, StoreError> {
    KubeStore::new(address(kubeconfig), &Scope::cluster())
        .list(ROOT)
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn white_space_at_the_ends_of_token_is_not_sent() {
    let server = ApiServer::start().unwrap();
    server.accept_token("tok1");
    let plugin = |token: &str| {
        let script =
            format!(r#"printf %s '{{"status": {{"token": "{token}"}}}}'"#).replace('"', r#"\""#);
        format!(
            r#"exec: {{apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, args: ["-c", "{script}"]}}"#
        )
    };
    for user in [
        r#"token: "tok1\n""#,
        r#"token: "tok1\r\n""#,
        r#"token: " tok1""#,
        &plugin(r"tok1\\n"),
    ] {
        let file = kubeconfig(&server, user);
        list(file.clone())
            .await
            .unwrap_or_else(|error| panic!("{user}: {error}"));
        let cluster = KubeCluster::open(&address(file)).await.unwrap();
        assert_eq!(
            cluster.pods(None, "app=contiv").await.unwrap().len(),
            0,
            "{user}"
        );
    }
    // What `kubectl create token > f` writes.
    let file = token_file(&server);
    fs::write(&file, "tok1\n").unwrap();
    list(server.kubeconfig().unwrap()).await.unwrap();
    let reviewer = TokenReviewer::new(address(server.kubeconfig().unwrap()));
    assert_eq!(
        reviewer.may_read("stranger", "/metrics").await.unwrap(),
        Review::Unknown
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_credential_is_an_outage_that_names_it() {
    let server = ApiServer::start().unwrap();
    server.accept_token("good");
    let plugin = |printed: &str| {
        format!(r#"exec: {{command: /bin/sh, args: ["-c", "printf %s '{printed}'"]}}"#)
    };
    let cases = [
        (
            r#"token: "a\x7fb""#.to_owned(),
            r#"the user "me": token: its character 2 is U+007F"#,
        ),
        (
            r#"token: "a\nb""#.to_owned(),
            r#"the user "me": token: its character 2 is U+000A"#,
        ),
        (
            r#"token: "\n""#.to_owned(),
            r#"the user "me": token: it is empty"#,
        ),
        (
            r#"as: "a\nb", token: good"#.to_owned(),
            r#"the user "me": as: its character 2 is U+000A"#,
        ),
        (
            plugin(r#"{\"status\": {\"token\": \"a\\u007fb\"}}"#),
            "exec: the plugin /bin/sh: token: its character 2",
        ),
        (
            plugin("nothing"),
            "exec: the plugin /bin/sh: what it prints is no ExecCredential",
        ),
        (
            "auth-provider: {name: gcp}".to_owned(),
            "auth-provider \"gcp\" is not supported",
        ),
    ];
    for (user, expected) in cases {
        let file = kubeconfig(&server, &user);
        let mut events = start_feed(Arc::new(KubeStore::new(
            address(file.clone()),
            &Scope::cluster(),
        )));
        let reason = down(&mut events).await;
        assert!(
            reason.contains(&file.display().to_string()) && reason.contains(expected),
            "{user}: {reason}"
        );
        kubeconfig(&server, "token: good");
        snapshot(&mut events).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_token_file_is_named_and_a_later_one_uses_the_last_token() {
    let server = ApiServer::start().unwrap();
    let file = token_file(&server);
    for (content, expected) in [
        ("", "it is empty"),
        ("\n", "it is empty"),
        ("a\0b\n", "U+0000"),
    ] {
        fs::write(&file, content).unwrap();
        let error = list(server.kubeconfig().unwrap())
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(&format!("{}: ", file.display())) && error.contains(expected),
            "{error}"
        );
    }
    server.require_token("good").unwrap();
    server.limit_watches(Duration::from_millis(1200));
    let mut events = start_feed(open(&server).await);
    snapshot(&mut events).await;
    for content in ["", "a\0b"] {
        fs::write(&file, content).unwrap();
        server.take_requests();
        sleep(Duration::from_secs(3)).await;
        assert!(
            !server.take_requests().is_empty(),
            "watches go on with the last token"
        );
    }
    fs::write(&file, "next\n").unwrap();
    server.accept_token("next");
    server.put(service("web", "None")).unwrap();
    loop {
        match next(&mut events).await {
            FeedEvent::Changed(_) => break,
            // A request between the two lines above.
            FeedEvent::Down { .. } | FeedEvent::Up => {}
            other => panic!("expected the service: {other:?}"),
        }
    }
}

/// With short-lived certificates each end of a watch would otherwise be an outage.
#[tokio::test(flavor = "multi_thread")]
async fn renewed_client_certificate_is_used_before_the_old_one_is_refused() {
    let server = ApiServer::start_with_tls(Authority::new().unwrap()).unwrap();
    let authority = server.authority().unwrap();
    server.limit_watches(Duration::from_millis(1200));
    server.put(service("web", "None")).unwrap();
    let kubeconfig = server.kubeconfig_with_certificate().unwrap();
    let mut events = start_feed(Arc::new(KubeStore::new(
        address(kubeconfig),
        &Scope::cluster(),
    )));
    snapshot(&mut events).await;
    for round in 0..3 {
        server.accept_certificate(None);
        // The certificate first, then its key: meanwhile the old ones stay in use.
        let key_file = authority.file("client-key.pem");
        let old_key = fs::read(&key_file).unwrap();
        authority.renew_client().unwrap();
        let new_key = fs::read(&key_file).unwrap();
        fs::write(&key_file, old_key).unwrap();
        sleep(Duration::from_millis(1500)).await;
        fs::write(&key_file, new_key).unwrap();
        sleep(Duration::from_secs(1)).await;
        let new = authority.client_certificate().unwrap();
        server.accept_certificate(Some(new.clone()));
        server.take_exchanges();
        sleep(Duration::from_secs(3)).await;
        let exchanges = server.take_exchanges();
        assert!(!exchanges.is_empty(), "watches are opened again");
        for exchange in exchanges {
            assert_eq!(
                exchange.client_certificate.as_ref(),
                Some(&new),
                "round {round}: {}",
                exchange.path
            );
        }
        // No outage was reported meanwhile.
        server
            .put(service("web", &format!("10.96.0.{}", round + 1)))
            .unwrap();
        assert!(matches!(change(&mut events).await, Change::Put(entry) if entry.key == key("web")));
    }
    assert!(
        server.connections() <= 8,
        "a new connection for each certificate: {}",
        server.connections()
    );
}

/// A watch that was open when the certificate was renewed goes on.
#[tokio::test(flavor = "multi_thread")]
async fn running_watch_outlives_the_certificate_it_was_opened_with() {
    let server = ApiServer::start_with_tls(Authority::new().unwrap()).unwrap();
    let authority = server.authority().unwrap();
    server.put(service("web", "None")).unwrap();
    let kubeconfig = server.kubeconfig_with_certificate().unwrap();
    let store = KubeStore::new(address(kubeconfig), &Scope::cluster());
    let listed = store.list(ROOT).await.unwrap();
    let mut watch = store.watch(ROOT, listed.revision).await.unwrap();
    authority.renew_client().unwrap();
    store.list(ROOT).await.unwrap();
    assert_eq!(
        server.connections(),
        2,
        "the list came over a new connection"
    );
    server.put(service("web", "10.96.0.1")).unwrap();
    let event = timeout(
        Duration::from_secs(30),
        futures::StreamExt::next(&mut watch),
    )
    .await
    .unwrap();
    assert!(event.unwrap().is_ok());
}

/// A kubeconfig that holds the certificate itself, as kubeadm writes it.
#[tokio::test(flavor = "multi_thread")]
async fn kubeconfig_that_was_rewritten_counts_for_the_next_request() {
    let server = ApiServer::start().unwrap();
    server.accept_token("first");
    let store = KubeStore::new(
        address(kubeconfig(&server, "token: first")),
        &Scope::cluster(),
    );
    store.list(ROOT).await.unwrap();
    kubeconfig(&server, "token: second");
    server.accept_token("second");
    store.list(ROOT).await.unwrap();
    // One that cannot be used leaves the one before in use.
    kubeconfig(&server, r#"token: "a\nb""#);
    store.list(ROOT).await.unwrap();
}
