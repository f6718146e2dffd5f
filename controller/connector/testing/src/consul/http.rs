//! The HTTP side of the server.

use std::{
    collections::BTreeMap, convert::Infallible, io, path::Path, pin::pin, sync::Arc, time::Duration,
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

use super::{Fault, shared::Shared};

/// Consul's default and maximum wait time.
const MAX_WAIT: Duration = Duration::from_secs(300);

pub(super) fn acceptor(certificate: &Path, key: &Path) -> io::Result<TlsAcceptor> {
    let certificates = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(
            certificates.map_err(io::Error::other)?,
            PrivateKeyDer::from_pem_file(key).map_err(io::Error::other)?,
        );
    Ok(TlsAcceptor::from(Arc::new(
        config.map_err(io::Error::other)?,
    )))
}

pub(super) async fn serve(
    listener: std::net::TcpListener,
    tls: Option<TlsAcceptor>,
    shared: Arc<Shared>,
) {
    let Ok(listener) = TcpListener::from_std(listener) else {
        return;
    };
    let mut connection_epoch = shared.connection_epoch.subscribe();
    loop {
        let stream = tokio::select! {
            Ok((stream, _)) = listener.accept() => stream,
            _ = connection_epoch.wait_for(Option::is_none) => return,
        };
        if shared.state.lock().fault == Some(Fault::Down) {
            continue;
        }
        let (tls, shared) = (tls.clone(), Arc::clone(&shared));
        tokio::spawn(async move {
            match tls {
                None => connection(stream, shared).await,
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        connection(stream, shared).await;
                    }
                }
            }
        });
    }
}

async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin + 'static, shared: Arc<Shared>) {
    let mut connection_epoch = shared.connection_epoch.subscribe();
    connection_epoch.mark_unchanged();
    let answering = service_fn(|request| answer(request, Arc::clone(&shared)));
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), answering);
    tokio::select! {
        _ = pin!(connection) => {}
        _ = connection_epoch.changed() => {}
    }
}

async fn answer(
    request: Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (fault, token) = {
        let mut state = shared.state.lock();
        state.requests += 1;
        (state.fault, state.token.clone())
    };
    if let Some(Fault::Slow(by)) = fault {
        sleep(by).await;
    }
    let given = request
        .headers()
        .get("x-consul-token")
        .and_then(|token| token.to_str().ok());
    if token.is_some() && given != token.as_deref() {
        return Ok(error(
            403,
            "Permission denied: token lacks permission 'service:read'",
        ));
    }
    let path = request.uri().path().to_owned();
    let service = path.strip_prefix("/v1/health/service/");
    let fails =
        fault == Some(Fault::NoLeader) || (fault == Some(Fault::NoHealth) && service.is_some());
    if fails {
        return Ok(error(500, "No cluster leader"));
    }
    let query = Query::of(&request);
    let read = || {
        let state = shared.state.lock();
        match service {
            None if path == "/v1/catalog/services" => Some(state.catalog()),
            None => None,
            Some(name) => {
                Some(state.health(&percent_decode_str(name).decode_utf8_lossy(), query.passing))
            }
        }
    };
    if query.index > 0 {
        let mut changed = shared.changed.subscribe();
        shared.state.lock().waiting += 1;
        let newer = changed.wait_for(|_| read().is_none_or(|(_, index)| index > query.index));
        // A timeout is not an error: the current content is returned.
        let _ = timeout(query.wait, newer).await;
        shared.state.lock().waiting -= 1;
    }
    let Some((value, index)) = read() else {
        return Ok(error(404, "no such page"));
    };
    let mut body = value.to_string();
    if fault == Some(Fault::Truncated) {
        body.truncate(body.len() / 2);
    }
    let mut response = Response::builder().header("content-type", "application/json");
    if fault != Some(Fault::NoIndex) {
        response = response
            .header("x-consul-index", index)
            .header("x-consul-knownleader", "true");
    }
    Ok(response.body(Full::from(body)).unwrap_or_default())
}

fn error(status: u16, text: &str) -> Response<Full<Bytes>> {
    Response::builder()
        .status(status)
        .body(Full::from(text.to_owned()))
        .unwrap_or_default()
}

struct Query {
    index: u64,
    wait: Duration,
    passing: bool,
}

impl Query {
    fn of(request: &Request<Incoming>) -> Self {
        let pairs = request.uri().query().unwrap_or_default().split('&');
        let values: BTreeMap<&str, &str> = pairs
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .collect();
        let wait = values
            .get("wait")
            .and_then(|wait| humantime::parse_duration(wait).ok());
        Self {
            index: values
                .get("index")
                .and_then(|index| index.parse().ok())
                .unwrap_or_default(),
            wait: wait.unwrap_or(MAX_WAIT).min(2 * MAX_WAIT),
            passing: values.contains_key("passing"),
        }
    }
}
