//! Requests to a running agent over its debug HTTP.

use std::{
    fmt, io,
    net::{IpAddr, Ipv6Addr, UdpSocket},
    pin::pin,
    str::FromStr,
    time::Duration,
};

use anyhow::{Context, anyhow};
use axum::{
    body::{Body, to_bytes},
    http::{
        Method, Request, Uri, header,
        uri::{PathAndQuery, Scheme},
    },
};
use futures::StreamExt;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};

use super::{agent_absence, listener_process::stopped_listener};

/// The timeout of an agent. It answers within 3 s, if only to report that it is busy; long lists take a little more.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// The default port of agents.
const DEFAULT_PORT: u16 = 9999;
/// How long an agent may be silent before the state of its process is looked at.
const SILENCE_LIMIT: Duration = Duration::from_secs(1);
/// The limit of an answer.
const SIZE_LIMIT: usize = 256 << 20;

/// The address of an agent, as in `http://127.0.0.1:9999`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    host: String,
    port: u16,
}

impl FromStr for Server {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, Self::Err> {
        let example = "as in http://127.0.0.1:9999";
        // Without a scheme it is an address, as in curl, with the default port of agents.
        let (url, default_port) = if url.contains("://") {
            (url.to_owned(), 80)
        } else {
            (format!("http://{url}"), DEFAULT_PORT)
        };
        let uri: Uri = url.parse().map_err(|error| format!("{error}; {example}"))?;
        if uri.scheme() != Some(&Scheme::HTTP) {
            return Err(format!("the agent serves http only; {example}"));
        }
        if !matches!(
            uri.path_and_query().map(PathAndQuery::as_str),
            None | Some("/")
        ) {
            return Err(format!("give the address only, without a path; {example}"));
        }
        let host = uri
            .host()
            .filter(|host| !host.is_empty())
            .ok_or(format!("no host; {example}"))?;
        // An IPv6 address has brackets in a URL, but not for the resolver; it may have a zone.
        let is_ipv6 = |ip: &&str| {
            ip.split('%')
                .next()
                .is_some_and(|ip| ip.parse::<Ipv6Addr>().is_ok())
        };
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').filter(is_ipv6),
            None => Some(host).filter(|name| !name.contains(['[', ']'])),
        };
        let name = name.ok_or_else(|| {
            format!("the host {host:?} is neither a name nor an address; {example}")
        })?;
        Ok(Self {
            host: name.to_owned(),
            port: uri.port_u16().unwrap_or(default_port),
        })
    }
}

impl Server {
    /// True if it is on this machine.
    pub(crate) fn is_local(&self) -> bool {
        // Only to an own address a socket can be bound.
        let is_own = |address: IpAddr| UdpSocket::bind((address, 0)).is_ok();
        self.host == "localhost" || self.host.parse().is_ok_and(is_own)
    }

    /// Its TCP port.
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }
}

/// Nothing listens at the address of an agent.
#[derive(Debug, Error)]
#[error("no agent at {server} ({source}): is the agent running? --agent sets its address")]
struct NoAgent {
    server: Server,
    source: io::Error,
}

/// Something listens at the address of the agent, and does not answer.
#[derive(Debug, Error)]
#[error("{0}")]
struct NoAnswer(String);

/// An agent answered, and not with success.
#[derive(Debug, Error)]
#[error("{0}")]
struct ErrorAnswer(String);

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') {
            write!(f, "http://[{host}]:{port}")
        } else {
            write!(f, "http://{host}:{port}")
        }
    }
}

/// The body of the answer to a GET.
///
/// # Errors
/// When there is no answer in time, or one without success. The error contains the agent's text.
pub(crate) fn get(server: &Server, path: &str) -> anyhow::Result<String> {
    send_request(server, Method::GET, path, TIME_LIMIT).map_err(|error| explained(server, error))
}

/// [`get`] without advice where no agent runs, so that the error tells why there is no answer.
///
/// # Errors
/// As [`get`].
pub(crate) fn get_plain(server: &Server, path: &str) -> anyhow::Result<String> {
    send_request(server, Method::GET, path, TIME_LIMIT)
}

/// [`get`] with another timeout, and without advice where no agent runs.
///
/// # Errors
/// As [`get`].
pub(crate) fn get_within(server: &Server, path: &str, limit: Duration) -> anyhow::Result<String> {
    send_request(server, Method::GET, path, limit)
}

/// The body of the answer to a POST without a body.
///
/// # Errors
/// As [`get`].
pub(crate) fn post(server: &Server, path: &str) -> anyhow::Result<String> {
    send_request(server, Method::POST, path, TIME_LIMIT).map_err(|error| explained(server, error))
}

/// Passes on the lines of an answer as they arrive, in pieces of whole lines, until the agent ends it, which is an error.
///
/// # Errors
/// As [`get`], and the error of `take`.
pub(crate) fn follow(
    server: &Server,
    path: &str,
    mut take: impl FnMut(&str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let runtime = runtime()?;
    runtime.block_on(async {
        let open = async { connect(server).await?.open_answer(Method::GET, path).await };
        let opened = timeout(TIME_LIMIT, open).await;
        let opened = opened.unwrap_or_else(|_| Err(too_late(server, TIME_LIMIT)));
        let mut pieces = opened
            .map_err(|error| explained(server, error))?
            .into_data_stream();
        let mut received = Vec::new();
        while let Some(piece) = pieces.next().await {
            let piece = piece.with_context(|| format!("{server} has ended the answer"))?;
            received.extend_from_slice(&piece);
            let whole = received
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |end| end + 1);
            take(&String::from_utf8_lossy(&received[..whole]))?;
            received.drain(..whole);
        }
        Err(NoAnswer(format!(
            "{server} has ended the answer: the agent stops, or see its log"
        ))
        .into())
    })
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to start the runtime")
}

fn too_late(server: &Server, limit: Duration) -> anyhow::Error {
    let limit = limit.as_secs();
    NoAnswer(format!(
        "{server} has not answered within {limit} s; see its log"
    ))
    .into()
}

/// True if nothing listens at the address of the agent.
pub(crate) fn is_absence(error: &anyhow::Error) -> bool {
    error.is::<NoAgent>()
}

/// True if an agent answered, and not with success.
pub(crate) fn is_error_answer(error: &anyhow::Error) -> bool {
    error.is::<ErrorAnswer>()
}

/// True if something listens at the address of the agent, and does not answer.
pub(crate) fn is_silence(error: &anyhow::Error) -> bool {
    error.is::<NoAnswer>()
}

/// Adds what the kernel of this machine does if no agent runs on it.
fn explained(server: &Server, error: anyhow::Error) -> anyhow::Error {
    if !is_absence(&error) || !server.is_local() {
        return error;
    }
    match agent_absence::advice() {
        advice if advice.is_empty() => error,
        advice => anyhow!("{error}\n{advice}"),
    }
}

fn send_request(
    server: &Server,
    method: Method,
    path: &str,
    limit: Duration,
) -> anyhow::Result<String> {
    let runtime = runtime()?;
    runtime.block_on(async {
        let mut exchange = pin!(async { connect(server).await?.request(method, path).await });
        let silence = limit.min(SILENCE_LIMIT);
        if let Ok(answer) = timeout(silence, &mut exchange).await {
            return answer;
        }
        // A stopped process never answers: its connections are accepted by the kernel.
        if let Some(pid) = stopped_listener(server.port).filter(|_| server.is_local()) {
            return Err(NoAnswer(format!(
                "the agent at {server} is stopped (state T), its process {pid}, by a signal or a debugger: `kill -CONT {pid}` lets it \
                 go on\nMeanwhile the rules in the kernel serve as last programmed, without later changes."
            ))
            .into());
        }
        timeout(limit.saturating_sub(silence), exchange)
            .await
            .unwrap_or_else(|_| Err(too_late(server, limit)))
    })
}

async fn connect(server: &Server) -> anyhow::Result<Connection> {
    let stream = TcpStream::connect((server.host.as_str(), server.port))
        .await
        .map_err(|source| NoAgent {
            server: server.clone(),
            source,
        })?;
    let name = server.to_string();
    let host = name.replace("http://", "");
    Connection::open(stream, name, host).await
}

/// A connection to an agent, for one request after the other.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: SendRequest<Body>,
    /// The agent in errors.
    agent: String,
    host: String,
}

impl Connection {
    /// Speaks HTTP with the agent at the other end of a stream. `host` is what the agent is called by: an address or localhost,
    /// with the port.
    ///
    /// # Errors
    /// When the other end does not speak HTTP.
    pub(crate) async fn open(
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        agent: String,
        host: String,
    ) -> anyhow::Result<Self> {
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.with_context(|| is_no_agent(&agent))?;
        // It ends with the sender; its error becomes that of the answer.
        tokio::spawn(connection);
        Ok(Self {
            sender,
            agent,
            host,
        })
    }

    /// The body of the answer.
    ///
    /// # Errors
    /// When there is no answer, or one without success. The error contains the agent's text.
    pub(crate) async fn request(&mut self, method: Method, path: &str) -> anyhow::Result<String> {
        let body = self.open_answer(method, path).await?;
        text(body, &self.agent).await
    }

    /// The body of the answer before it has arrived.
    ///
    /// # Errors
    /// As [`Self::request`].
    async fn open_answer(&mut self, method: Method, path: &str) -> anyhow::Result<Body> {
        let agent = &self.agent;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.host);
        let request = request.body(Body::empty())?;
        self.sender
            .ready()
            .await
            .with_context(|| is_no_agent(agent))?;
        let response = self
            .sender
            .send_request(request)
            .await
            .with_context(|| is_no_agent(agent))?;
        let status = response.status();
        let body = Body::new(response.into_body());
        if status.is_success() {
            return Ok(body);
        }
        let body = text(body, agent).await?;
        let json: Option<Value> = serde_json::from_str(&body).ok();
        match json.as_ref().and_then(|json| json["error"].as_str()) {
            Some(error) => Err(ErrorAnswer(format!(
                "{agent} answers {}: {error}",
                status.as_u16()
            ))),
            None => Err(ErrorAnswer(format!(
                "{agent} answers {status}: is that an agent of this version?"
            ))),
        }?
    }
}

async fn text(body: Body, agent: &str) -> anyhow::Result<String> {
    let body = to_bytes(body, SIZE_LIMIT).await;
    Ok(String::from_utf8_lossy(&body.with_context(|| is_no_agent(agent))?).into_owned())
}

fn is_no_agent(agent: &str) -> String {
    format!("{agent} does not answer as an agent does")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_is_host_and_port_by_http() {
        for (url, expected) in [
            ("http://127.0.0.1:9999", "http://127.0.0.1:9999"),
            ("http://[::1]:9999/", "http://[::1]:9999"),
            ("http://node1", "http://node1:80"),
            ("127.0.0.1:9999", "http://127.0.0.1:9999"),
            ("[::1]:1", "http://[::1]:1"),
            ("node1", "http://node1:9999"),
        ] {
            assert_eq!(url.parse::<Server>().unwrap().to_string(), expected);
        }
        for wrong in [
            "127.0.0.1:9999/services",
            "https://node1:9999",
            "http://node1/services",
            "http://",
            "",
            "http://a[::1]b",
            "http://[a]",
        ] {
            let error = wrong.parse::<Server>().unwrap_err();
            assert!(error.contains("as in http://"), "{wrong}: {error}");
        }
    }
}
