use std::{fs, io::Read as _, net::SocketAddr, path::Path, time::Duration};

use contiv_store::kube::{KubeAddress, TokenReviewer};
use contiv_store_testing::{ApiServer, Authority};
use flate2::read::GzDecoder;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use super::*;
use crate::{
    metrics::Metrics,
    test_support::{Harness, service, slice, snapshot},
};

/// Serves the metrics of this agent.
async fn serve(
    harness: &Harness,
    scrape_guard: ScrapeGuard,
    certificate: Option<ServerCertificate>,
) -> SocketAddr {
    serve_api(harness.api(), scrape_guard, certificate).await
}

async fn serve_api(
    api: Api,
    scrape_guard: ScrapeGuard,
    certificate: Option<ServerCertificate>,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve_metrics(
        listener,
        api,
        scrape_guard,
        certificate,
        CancellationToken::new(),
    ));
    address
}

struct Answer {
    status: u16,
    /// In lower case.
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    path: &str,
    headers: &str,
) -> Answer {
    let request = format!("GET {path} HTTP/1.0\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let end = answer
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap();
    let head = String::from_utf8(answer[..end].to_vec())
        .unwrap()
        .to_lowercase();
    Answer {
        status: head[9..12].parse().unwrap(),
        head,
        body: answer[end + 4..].to_vec(),
    }
}

async fn scrape(address: SocketAddr, headers: &str) -> Answer {
    exchange(
        TcpStream::connect(address).await.unwrap(),
        "/metrics",
        headers,
    )
    .await
}

async fn scrape_with_token(address: SocketAddr, token: &str) -> u16 {
    scrape(address, &format!("Authorization: Bearer {token}\r\n"))
        .await
        .status
}

/// Over TLS; none if this authority has not signed the server's certificate.
async fn scrape_over_tls(address: SocketAddr, authority: &Path) -> Option<Answer> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(authority).unwrap() {
        roots.add(certificate.unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = "127.0.0.1".try_into().unwrap();
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .ok()?;
    Some(exchange(stream, "/metrics", "").await)
}

/// The answer to GET.
async fn get(address: SocketAddr, path: &str) -> Answer {
    exchange(TcpStream::connect(address).await.unwrap(), path, "").await
}

async fn ready() -> Harness {
    let harness = Harness::start(
        vec![],
        vec![snapshot(7, vec![slice("web", 1), service("web", 1)])],
    );
    harness.renderer("dry-run", |view| view.ready).await;
    harness
}

#[tokio::test]
async fn metrics_have_the_requested_format_and_other_pages_do_not() {
    let harness = ready().await;
    let address = serve(&harness, ScrapeGuard::default(), None).await;
    let plain = scrape(address, "").await;
    assert_eq!(plain.status, 200);
    assert!(
        plain
            .head
            .contains("content-type: text/plain; version=0.0.4; charset=utf-8"),
        "{}",
        plain.head
    );
    assert!(plain.text().contains("\ncontiv_services 1\n") && !plain.text().contains("# EOF"));
    let open = scrape(
        address,
        "Accept: application/openmetrics-text;version=1.0.0\r\n",
    )
    .await;
    assert!(
        open.head
            .contains("content-type: application/openmetrics-text; version=1.0.0"),
        "{}",
        open.head
    );
    assert!(open.text().ends_with("# EOF\n"));
    let compressed = scrape(address, "Accept-Encoding: gzip\r\n").await;
    assert!(
        compressed.head.contains("content-encoding: gzip"),
        "{}",
        compressed.head
    );
    let mut text = String::new();
    GzDecoder::new(&compressed.body[..])
        .read_to_string(&mut text)
        .unwrap();
    assert!(text.contains("\ncontiv_services 1\n") && compressed.body.len() < plain.body.len() / 2);
    for path in ["/", "/services", "/config"] {
        let stream = TcpStream::connect(address).await.unwrap();
        assert_eq!(exchange(stream, path, "").await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn mode_is_answered_where_kube_proxy_does() {
    let harness = ready().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    fs::write(&file, "first").unwrap();
    // With the metrics of kube-proxy for this renderer.
    let api = |renderer: &str| Api {
        metrics: Arc::new(Metrics::new(0).with_kube_proxy(renderer)),
        ..harness.api()
    };
    for (renderer, tokens) in [
        ("nftables", None),
        ("nftables", Some(file)),
        ("route", None),
    ] {
        let has_tokens = tokens.is_some();
        let address = serve_api(api(renderer), ScrapeGuard::new(tokens, None), None).await;
        for (path, expected) in [("/proxyMode", renderer), ("/healthz", "ok")] {
            let answer = get(address, path).await;
            assert_eq!((answer.status, answer.text()), (200, expected), "{path}");
            for header in [
                "content-type: text/plain; charset=utf-8",
                "x-content-type-options: nosniff",
            ] {
                assert!(
                    answer.head.contains(header),
                    "{header} is not in {}",
                    answer.head
                );
            }
        }
        let scraped = get(address, "/metrics").await;
        assert_eq!(scraped.status, if has_tokens { 401 } else { 200 });
        assert_eq!(
            get(address, "/services").await.status,
            if has_tokens { 401 } else { 404 }
        );
    }
    let without = Api {
        metrics: Arc::new(Metrics::new(0)),
        ..harness.api()
    };
    let address = serve_api(without, ScrapeGuard::default(), None).await;
    assert_eq!(
        get(address, "/proxyMode").await.status,
        404,
        "nobody asked for what kube-proxy has"
    );
}

#[tokio::test]
async fn token_of_a_file_is_needed_and_a_new_one_counts_at_once() {
    let harness = ready().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    fs::write(&file, "first\n\nsecond\n").unwrap();
    let address = serve(&harness, ScrapeGuard::new(Some(file.clone()), None), None).await;
    let none = scrape(address, "").await;
    assert_eq!(none.status, 401);
    assert!(
        none.head.contains("www-authenticate: bearer") && !none.text().contains("contiv_services")
    );
    for (token, expected) in [("first", 200), ("second", 200), ("third", 401), ("", 401)] {
        assert_eq!(scrape_with_token(address, token).await, expected, "{token}");
    }
    fs::write(&file, "third").unwrap();
    assert_eq!(
        [
            scrape_with_token(address, "third").await,
            scrape_with_token(address, "first").await
        ],
        [200, 401]
    );
    fs::remove_file(&file).unwrap();
    assert_eq!(
        scrape_with_token(address, "third").await,
        503,
        "nobody gets in without the file"
    );
}

#[tokio::test]
async fn token_reviews_of_scrapes_are_cached() {
    let harness = ready().await;
    let server = ApiServer::start().unwrap();
    server.add_user_token("scraper", "prometheus", &["/metrics"]);
    server.add_user_token("stranger", "somebody", &["/version"]);
    let kubeconfig = Some(server.kubeconfig().unwrap());
    let reviewer = TokenReviewer::new(KubeAddress {
        kubeconfig,
        ..KubeAddress::default()
    });
    let address = serve(&harness, ScrapeGuard::new(None, Some(reviewer)), None).await;
    assert_eq!(scrape(address, "").await.status, 401);
    assert_eq!(
        server.take_requests(),
        [""; 0],
        "without a token there is nothing to ask"
    );
    let stranger = scrape(address, "Authorization: Bearer stranger\r\n").await;
    assert_eq!(stranger.status, 403);
    assert!(
        stranger.text().contains("somebody may not read /metrics"),
        "{}",
        stranger.text()
    );
    assert_eq!(scrape_with_token(address, "other").await, 401);
    server.take_requests();
    for _ in 0..5 {
        assert_eq!(scrape_with_token(address, "scraper").await, 200);
    }
    assert_eq!(
        server.take_requests().len(),
        2,
        "one review of the token, one of its rights"
    );
    server.remove_user_token("scraper");
    assert_eq!(
        scrape_with_token(address, "scraper").await,
        200,
        "what was said counts for a while"
    );
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(11)).await;
    tokio::time::resume();
    assert_eq!(scrape_with_token(address, "scraper").await, 401);
    server.cut();
    assert_eq!(scrape_with_token(address, "new").await, 503);
}

#[tokio::test]
async fn renewed_certificate_is_used_without_a_restart() {
    let harness = ready().await;
    let (authority, old) = (Authority::new().unwrap(), Authority::new().unwrap());
    let [certificate, key] = ["server.pem", "server-key.pem"].map(|name| authority.file(name));
    let served = ServerCertificate::read(&certificate, &key).unwrap();
    let address = serve(&harness, ScrapeGuard::default(), Some(served)).await;
    let answer = scrape_over_tls(address, &authority.file("ca.pem"))
        .await
        .unwrap();
    assert!(answer.status == 200 && answer.text().contains("\ncontiv_services 1\n"));
    assert!(
        scrape_over_tls(address, &old.file("ca.pem"))
            .await
            .is_none(),
        "another authority"
    );

    fs::copy(authority.file("ca.pem"), old.file("ca.pem")).unwrap();
    let pair = [fs::read(&certificate).unwrap(), fs::read(&key).unwrap()];
    fs::write(&certificate, "no certificate").unwrap();
    assert!(
        scrape_over_tls(address, &old.file("ca.pem"))
            .await
            .is_some(),
        "the one before stays in use"
    );
    fs::write(&certificate, &pair[0]).unwrap();
    authority.renew().unwrap();
    assert!(
        scrape_over_tls(address, &old.file("ca.pem"))
            .await
            .is_none(),
        "the certificate is another"
    );
    assert!(
        scrape_over_tls(address, &authority.file("ca.pem"))
            .await
            .is_some()
    );
    fs::write(&key, &pair[1]).unwrap();
    assert!(
        scrape_over_tls(address, &authority.file("ca.pem"))
            .await
            .is_some(),
        "a key that does not fit"
    );
}

#[test]
fn certificate_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (Authority::new().unwrap(), Authority::new().unwrap());
    let file = folder.path().join("empty.pem");
    let error = ServerCertificate::read(&file, &one.file("server-key.pem"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("empty.pem") && error.contains("PEM"),
        "{error}"
    );
    fs::write(&file, "").unwrap();
    assert!(ServerCertificate::read(&file, &one.file("server-key.pem")).is_err());
    let pair = ServerCertificate::read(&one.file("server.pem"), &other.file("server-key.pem"));
    assert!(pair.unwrap_err().to_string().contains("server-key.pem"));
}
