//! A proxy before a real etcd that changes what it says.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    io,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Duration,
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
    time::{Instant, Sleep, sleep_until},
};

use super::{liar::Passed, reserved_port::ReservedPort};

const WATCH: &str = "/etcdserverpb.Watch/Watch";
const RANGE: &str = "/etcdserverpb.KV/Range";
/// The tag of `RangeRequest.revision`: field 4, a varint.
const REVISION_TAG: u8 = 4 << 3;
/// The bytes before each message of gRPC: a flag, and the size.
const HEADER_BYTES: usize = 5;

/// What a client asks for with `etcdserverpb.WatchRequest`.
#[derive(Clone, PartialEq, Message)]
struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    create_request: Option<WatchCreateRequest>,
}

#[derive(Clone, PartialEq, Message)]
struct WatchCreateRequest {
    #[prost(int64, tag = "3")]
    start_revision: i64,
    #[prost(bool, tag = "4")]
    progress_notify: bool,
}

/// Changes a message. False: it is lost.
type Rewrite<T> = Box<dyn FnMut(&mut T) -> bool + Send>;
/// Passes a message on, of a watch that began at this revision.
type Pass = Box<dyn FnMut(PbWatchResponse, i64) -> Passed + Send>;

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
    new_changes: Mutex<Option<Pass>>,
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

    /// Passes on so what watches bring that ask for notifications of progress: those of new changes, and not of past ones. The number
    /// is the revision at which the watch began.
    pub fn pass_new_changes(
        &self,
        pass: impl FnMut(PbWatchResponse, i64) -> Passed + Send + 'static,
    ) {
        *self.lies.new_changes.lock() = Some(Box::new(pass));
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
    let start = Arc::<OnceLock<i64>>::default();
    let body = if path == WATCH {
        note_start(body, Arc::clone(&start))
    } else {
        body
    };
    let (head, body) = sender
        .send_request(Request::from_parts(head, body))
        .await?
        .into_parts();
    let lies = Arc::clone(lies);
    let rewrite: RewriteMessage = match path.as_str() {
        WATCH => Box::new(move |message| match start.get() {
            Some(start) => passed(&lies, message, *start),
            None => rewritten(&lies.watches, message),
        }),
        RANGE => Box::new(move |message| rewritten(&lies.ranges, message)),
        _ => return Ok(Response::from_parts(head, body.boxed())),
    };
    let body = RewrittenBody {
        body,
        received: BytesMut::new(),
        rewrite,
        waiting: BTreeMap::new(),
        sent: 0,
        newest: Instant::now(),
        timer: None,
    };
    Ok(Response::from_parts(head, body.boxed()))
}

/// Notes the revision at which a watch of new changes begins.
fn note_start(body: AnyBody, start: Arc<OnceLock<i64>>) -> AnyBody {
    let mut sent = BytesMut::new();
    body.map_frame(move |frame| {
        if let Some(data) = frame.data_ref()
            && start.get().is_none()
        {
            sent.extend_from_slice(data);
            let request = split_message(&mut sent).map(WatchRequest::decode);
            if let Some(Ok(WatchRequest {
                create_request: Some(request),
            })) = request
                && request.progress_notify
            {
                let _ = start.set(request.start_revision);
            }
        }
        frame
    })
    .boxed()
}

/// Takes the first message off, once all of it is there.
fn split_message(received: &mut BytesMut) -> Option<Bytes> {
    let [_, size @ ..] = *received.first_chunk::<HEADER_BYTES>()?;
    let size = HEADER_BYTES + u32::from_be_bytes(size) as usize;
    (received.len() >= size).then(|| received.split_to(size).freeze().slice(HEADER_BYTES..))
}

/// The message of a range with another revision: of a field that is there twice, the last counts.
fn read_at(framed: &Bytes, revision: u64) -> Bytes {
    let mut message = BytesMut::from(framed.get(HEADER_BYTES..).unwrap_or_default());
    message.put_u8(REVISION_TAG);
    prost::encoding::encode_varint(revision, &mut message);
    with_header(&message)
}

/// What becomes of a message.
#[derive(Default)]
struct RewrittenMessage {
    /// How much later it comes, and what follows it.
    delay: Duration,
    message: Option<Bytes>,
    /// What comes so much later still, and alone.
    late: Option<(Duration, Bytes)>,
}

type RewriteMessage = Box<dyn FnMut(Bytes) -> RewrittenMessage + Send + Sync>;

fn rewritten<T: Message + Default>(
    rewrite: &Mutex<Option<Rewrite<T>>>,
    message: Bytes,
) -> RewrittenMessage {
    let mut rewrite = rewrite.lock();
    let message = match (&mut *rewrite, T::decode(message.clone())) {
        (Some(rewrite), Ok(mut decoded)) => {
            rewrite(&mut decoded).then(|| decoded.encode_to_vec().into())
        }
        _ => Some(message),
    };
    RewrittenMessage {
        message,
        ..RewrittenMessage::default()
    }
}

/// A message of a watch of new changes.
fn passed(lies: &Lies, message: Bytes, start: i64) -> RewrittenMessage {
    let mut pass = lies.new_changes.lock();
    let (Some(pass), Ok(decoded)) = (&mut *pass, PbWatchResponse::decode(message.clone())) else {
        return rewritten(&lies.watches, message);
    };
    let Passed {
        message,
        delay,
        late,
        ..
    } = pass(decoded, start);
    let encode = |message: PbWatchResponse| Bytes::from(message.encode_to_vec());
    RewrittenMessage {
        delay,
        message: message.map(encode),
        late: late.map(|(delay, message)| (delay, encode(message))),
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
    rewrite: RewriteMessage,
    /// Messages that are passed on when it is time.
    waiting: BTreeMap<(Instant, u64), Bytes>,
    sent: u64,
    /// When the last of them is passed on that others do not overtake.
    newest: Instant,
    /// Ends when the first of them is due.
    timer: Option<Pin<Box<Sleep>>>,
}

impl RewrittenBody {
    /// Rewrites the messages of which all has arrived.
    fn rewrite_received(&mut self) {
        while let Some(message) = split_message(&mut self.received) {
            let RewrittenMessage {
                delay,
                message,
                late,
            } = (self.rewrite)(message);
            self.newest = self.newest.max(Instant::now() + delay);
            let late = late.map(|(delay, message)| (self.newest + delay, message));
            let message = message.map(|message| (self.newest, message));
            for (due, message) in message.into_iter().chain(late) {
                self.sent += 1;
                self.waiting.insert((due, self.sent), with_header(&message));
            }
        }
    }

    /// The next message that is due.
    fn poll_due(&mut self, context: &mut Context<'_>) -> Poll<Bytes> {
        loop {
            let Some(first) = self.waiting.first_entry() else {
                return Poll::Pending;
            };
            let (due, _) = *first.key();
            if due <= Instant::now() {
                return Poll::Ready(first.remove());
            }
            let mut timer = Box::pin(sleep_until(due));
            let is_due = timer.as_mut().poll(context).is_ready();
            self.timer = Some(timer);
            if !is_due {
                return Poll::Pending;
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
            self.rewrite_received();
            if let Poll::Ready(message) = self.poll_due(context) {
                return Poll::Ready(Some(Ok(Frame::data(message))));
            }
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.received.extend_from_slice(&data),
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                Poll::Ready(end) => return Poll::Ready(end),
            }
        }
    }
}
