//! A proxy before a real etcd that changes what it says.

use std::{
    convert::Infallible,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{BufMut, Bytes, BytesMut};
use etcd_client::proto::{PbRangeResponse, PbWatchResponse};
use http::{Request, Response, uri::Authority};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::{
    body::{Body, Frame, Incoming},
    client, server,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use prost::Message;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::reserved_port::ReservedPort;

const WATCH: &str = "/etcdserverpb.Watch/Watch";
const RANGE: &str = "/etcdserverpb.KV/Range";
/// The tag of `RangeRequest.revision`: field 4, a varint.
const REVISION_TAG: u8 = 4 << 3;
/// The bytes before each message of gRPC: a flag, and the size.
const HEADER_BYTES: usize = 5;

/// Changes a message. False: it is lost.
type Rewrite<T> = Box<dyn FnMut(&mut T) -> bool + Send>;

/// Forwards gRPC from a loopback port to an etcd, and changes answers on the way.
pub struct LyingEtcd {
    port: ReservedPort,
    lies: Arc<Lies>,
    /// Dropped with this, which closes all connections.
    _task: JoinSet<()>,
}

#[derive(Default)]
struct Lies {
    watches: Mutex<Option<Rewrite<PbWatchResponse>>>,
    ranges: Mutex<Option<Rewrite<PbRangeResponse>>>,
    /// The revision at which the next range is read, whatever is requested.
    revision: Mutex<Option<u64>>,
}

impl LyingEtcd {
    /// Starts to forward to `server`, the `HOST:PORT` of an etcd without TLS. It is truthful until told otherwise.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn start(server: &str) -> io::Result<Self> {
        let port = ReservedPort::new()?;
        let listener = TcpListener::bind(port.address()).await?;
        let (lies, mut task) = (Arc::<Lies>::default(), JoinSet::new());
        task.spawn(accept(listener, server.to_owned(), Arc::clone(&lies)));
        Ok(Self {
            port,
            lies,
            _task: task,
        })
    }

    /// The address that clients connect to.
    pub fn endpoint(&self) -> String {
        self.port.address().to_string()
    }

    /// Changes each later message of a watch so. It is lost if `rewrite` returns false.
    pub fn rewrite_watches(
        &self,
        rewrite: impl FnMut(&mut PbWatchResponse) -> bool + Send + 'static,
    ) {
        *self.lies.watches.lock() = Some(Box::new(rewrite));
    }

    /// Changes each later page of a list so.
    pub fn rewrite_pages(&self, mut rewrite: impl FnMut(&mut PbRangeResponse) + Send + 'static) {
        *self.lies.ranges.lock() = Some(Box::new(move |page| {
            rewrite(page);
            true
        }));
    }

    /// Reads the next page at this revision, whatever is requested.
    pub fn read_next_at(&self, revision: u64) {
        *self.lies.revision.lock() = Some(revision);
    }
}

async fn accept(listener: TcpListener, server: String, lies: Arc<Lies>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(connection(stream, server.clone(), Arc::clone(&lies)));
    }
}

/// Forwards one connection by another one, until one of them is closed.
async fn connection(stream: TcpStream, server: String, lies: Arc<Lies>) {
    let Ok(upstream) = TcpStream::connect(&server).await else {
        return;
    };
    let Ok((sender, upstream)) =
        client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(upstream)).await
    else {
        return;
    };
    let service = service_fn(move |request| {
        let (sender, server, lies) = (sender.clone(), server.clone(), Arc::clone(&lies));
        async move { forward(sender, request, &server, &lies).await }
    });
    let downstream = server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        _ = upstream => {}
        _ = downstream => {}
    }
}

type AnyBody = BoxBody<Bytes, hyper::Error>;

async fn forward(
    mut sender: client::conn::http2::SendRequest<AnyBody>,
    request: Request<Incoming>,
    server: &str,
    lies: &Arc<Lies>,
) -> Result<Response<AnyBody>, hyper::Error> {
    let (mut head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let mut uri = std::mem::take(&mut head.uri).into_parts();
    uri.authority = Authority::try_from(server).ok();
    head.uri = uri.try_into().unwrap_or_default();
    head.headers.remove(http::header::CONTENT_LENGTH);
    let revision = if path == RANGE {
        lies.revision.lock().take()
    } else {
        None
    };
    let body = match revision {
        None => body.boxed(),
        Some(revision) => {
            let message = read_at(&body.collect().await?.to_bytes(), revision);
            Full::new(message)
                .map_err(|never: Infallible| match never {})
                .boxed()
        }
    };
    let (head, body) = sender
        .send_request(Request::from_parts(head, body))
        .await?
        .into_parts();
    let lies = Arc::clone(lies);
    let rewrite: fn(&Lies, Bytes) -> Option<Bytes> = match path.as_str() {
        WATCH => |lies, message| rewritten(&lies.watches, message),
        RANGE => |lies, message| rewritten(&lies.ranges, message),
        _ => return Ok(Response::from_parts(head, body.boxed())),
    };
    let body = RewrittenBody {
        body,
        received: BytesMut::new(),
        lies,
        rewrite,
    };
    Ok(Response::from_parts(head, body.boxed()))
}

/// The message of a range with another revision: of a field that is there twice, the last counts.
fn read_at(framed: &Bytes, revision: u64) -> Bytes {
    let mut message = BytesMut::from(framed.get(HEADER_BYTES..).unwrap_or_default());
    message.put_u8(REVISION_TAG);
    prost::encoding::encode_varint(revision, &mut message);
    with_header(&message)
}

fn rewritten<T: Message + Default>(
    rewrite: &Mutex<Option<Rewrite<T>>>,
    message: Bytes,
) -> Option<Bytes> {
    let mut rewrite = rewrite.lock();
    match (&mut *rewrite, T::decode(message.clone())) {
        (Some(rewrite), Ok(mut decoded)) => {
            rewrite(&mut decoded).then(|| decoded.encode_to_vec().into())
        }
        _ => Some(message),
    }
}

fn with_header(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(HEADER_BYTES + message.len());
    framed.put_u8(0);
    framed.put_u32(message.len().try_into().unwrap_or(u32::MAX));
    framed.put_slice(message);
    framed.freeze()
}

/// An answer whose messages are rewritten as they arrive.
struct RewrittenBody {
    body: Incoming,
    /// The beginning of the next message.
    received: BytesMut,
    lies: Arc<Lies>,
    rewrite: fn(&Lies, Bytes) -> Option<Bytes>,
}

impl RewrittenBody {
    /// The next message of which all has arrived and that is not lost.
    fn next(&mut self) -> Option<Bytes> {
        loop {
            let [_, size @ ..] = *self.received.first_chunk::<HEADER_BYTES>()?;
            let size = HEADER_BYTES + u32::from_be_bytes(size) as usize;
            if self.received.len() < size {
                return None;
            }
            let message = self.received.split_to(size).freeze().slice(HEADER_BYTES..);
            if let Some(message) = (self.rewrite)(&self.lies, message) {
                return Some(with_header(&message));
            }
        }
    }
}

impl Body for RewrittenBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        loop {
            if let Some(message) = self.next() {
                return Poll::Ready(Some(Ok(Frame::data(message))));
            }
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.received.extend_from_slice(&data),
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
    }
}
