//! Port-forwards of pods, each over a WebSocket. Every pod is on the network of this machine, as with `hostNetwork`.

use std::io;

use futures::{SinkExt, StreamExt};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{self, Message, handshake::derive_accept_key, protocol::Role},
};

use super::{
    resource::Resource,
    response::{Body, json_answer, status},
    shared::Shared,
};

/// The resource in rules of access.
pub(super) const PORT_FORWARD: &str = "pods/portforward";
const PROTOCOL: &str = "v4.channel.k8s.io";
/// The channels of the first port.
const DATA: u8 = 0;
const ERROR: u8 = 1;

/// Namespace and name of the pod, if this is the path of a port-forward.
pub(super) fn pod(path: &str) -> Option<(String, String)> {
    let path = path
        .strip_prefix("/api/v1/namespaces/")?
        .strip_suffix("/portforward")?;
    let (namespace, name) = path.split_once("/pods/")?;
    Some((namespace.to_owned(), name.to_owned()))
}

/// Switches to a WebSocket and forwards, as the real one: with a channel for data and one for errors, each of which begins with
/// the number of the port.
pub(super) fn answer<B>(
    shared: &Shared,
    request: Request<B>,
    (namespace, name): (String, String),
) -> Response<Body>
where
    B: Send + 'static,
{
    let pods = shared.cluster.borrow().objects(Resource::PODS);
    if !pods.contains_key(&(namespace, name.clone())) {
        return status(404, "NotFound", &format!("pods \"{name}\" not found"));
    }
    let query = request.uri().query().unwrap_or_default();
    let port = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("ports="));
    let Some(port) = port.and_then(|port| port.parse::<u16>().ok()) else {
        return status(400, "BadRequest", "query parameter \"ports\" is required");
    };
    let Some(key) = key(request.headers()) else {
        return status(400, "BadRequest", "Upgrade request required");
    };
    let mut response = json_answer(String::new());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.clear();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(
        header::SEC_WEBSOCKET_PROTOCOL,
        HeaderValue::from_static(PROTOCOL),
    );
    if let Ok(accepted) = HeaderValue::from_str(&derive_accept_key(key.as_bytes())) {
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accepted);
    }
    tokio::spawn(async move {
        // A client that disconnects is not an error.
        if let Ok(upgraded) = hyper::upgrade::on(request).await {
            let _ = forward(TokioIo::new(upgraded), port, &name).await;
        }
    });
    response
}

/// The client's key, if it asks for a WebSocket with the protocol.
fn key(headers: &HeaderMap) -> Option<HeaderValue> {
    let has = |name, value: &str| {
        let given = headers.get(name).and_then(|given| given.to_str().ok());
        given.is_some_and(|given| {
            given
                .split(',')
                .any(|one| one.trim().eq_ignore_ascii_case(value))
        })
    };
    let is_websocket =
        has(header::UPGRADE, "websocket") && has(header::SEC_WEBSOCKET_PROTOCOL, PROTOCOL);
    headers
        .get(header::SEC_WEBSOCKET_KEY)
        .filter(|_| is_websocket)
        .cloned()
}

async fn forward(io: TokioIo<Upgraded>, port: u16, name: &str) -> tungstenite::Result<()> {
    let mut socket = WebSocketStream::from_raw_socket(io, Role::Server, None).await;
    for channel in [DATA, ERROR] {
        socket.send(message(channel, &port.to_le_bytes())).await?;
    }
    match TcpStream::connect(("localhost", port)).await {
        Ok(connection) => copy(&mut socket, connection).await?,
        Err(error) => {
            // The words of a kubelet.
            let words = format!("error forwarding port {port} to pod {name}, uid : {error}");
            socket.send(message(ERROR, words.as_bytes())).await?;
        }
    }
    socket.close(None).await?;
    // A connection that ends with something unread is reset, and the client loses what it has not read yet.
    while socket.next().await.transpose()?.is_some() {}
    Ok(())
}

/// Copies in both directions until one side ends.
async fn copy(
    socket: &mut WebSocketStream<TokioIo<Upgraded>>,
    mut connection: TcpStream,
) -> tungstenite::Result<()> {
    let (mut from_pod, mut to_pod) = connection.split();
    let mut buffer = vec![0; 16 << 10];
    loop {
        tokio::select! {
            read = from_pod.read(&mut buffer) => match read? {
                0 => return Ok(()),
                size => socket.send(message(DATA, &buffer[..size])).await?,
            },
            received = socket.next() => match received.transpose()? {
                Some(Message::Binary(bytes)) => match bytes.split_first() {
                    Some((&DATA, data)) => to_pod.write_all(data).await?,
                    _ => return Err(io::Error::from(io::ErrorKind::InvalidData).into()),
                },
                Some(Message::Close(_)) | None => return Ok(()),
                Some(_) => {}
            },
        }
    }
}

fn message(channel: u8, data: &[u8]) -> Message {
    Message::binary([&[channel], data].concat())
}
