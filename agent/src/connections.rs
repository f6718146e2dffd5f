//! Limits a listener's connections, so that clients leave file descriptors for the agent's own work, and closes idle ones.

use std::{
    fs, io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::serve::{IncomingStream, Listener};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{Notify, OwnedSemaphorePermit, Semaphore, futures::OwnedNotified},
    time::{Instant, Sleep, sleep, timeout},
};

/// A connection without any byte in either direction for this long is closed. The slowest answer takes half of it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long an evicted connection may take to close before the next one is evicted too.
const EVICTION_INTERVAL: Duration = Duration::from_millis(50);

/// The open connections of all listeners that share this.
#[derive(Debug, Clone)]
pub(crate) struct Connections {
    /// One permit for each connection.
    slots: Arc<Semaphore>,
    /// Every open connection waits for it, the oldest first.
    ending: Arc<Notify>,
}

/// How many files this process may have open.
pub(crate) fn open_files_limit() -> usize {
    open_files(&fs::read_to_string("/proc/self/limits"))
}

/// Parses the limit of open files in the content of `/proc/PID/limits`. If unreadable: Linux's initial limit.
fn open_files(limits: &io::Result<String>) -> usize {
    let soft = |line: &str| {
        line.strip_prefix("Max open files")?
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    };
    limits
        .as_deref()
        .ok()
        .and_then(|limits| limits.lines().find_map(soft))
        .unwrap_or(1024)
}

impl Connections {
    /// At most `most`, and no more than a sixteenth of the files that this process may have open: two HTTP listeners and all
    /// health checks have that many each, and the agent's own work needs about two dozen.
    pub(crate) fn of_this_process(most: usize) -> Self {
        Self::at_most((open_files_limit() / 16).clamp(1, most))
    }

    /// If there are more than `most`, the oldest is closed, so that no client can keep all others out.
    pub(crate) fn at_most(most: usize) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(most)),
            ending: Arc::default(),
        }
    }

    /// Applies the limit to connections accepted here.
    pub(crate) const fn on(self, listener: TcpListener) -> BoundedListener {
        BoundedListener {
            listener,
            connections: self,
        }
    }

    async fn admit(&self, stream: TcpStream) -> Connection {
        let slot = loop {
            if self.slots.available_permits() == 0 {
                self.ending.notify_one();
            }
            // The semaphore is never closed.
            if let Ok(Ok(slot)) =
                timeout(EVICTION_INTERVAL, Arc::clone(&self.slots).acquire_owned()).await
            {
                break slot;
            }
        };
        let mut ending = Box::pin(Arc::clone(&self.ending).notified_owned());
        ending.as_mut().enable();
        Connection {
            stream,
            silence: Box::pin(sleep(IDLE_TIMEOUT)),
            ending,
            _slot: slot,
        }
    }
}

/// Accepts connections, and evicts the oldest if there are too many.
#[derive(Debug)]
pub(crate) struct BoundedListener {
    listener: TcpListener,
    connections: Connections,
}

impl Listener for BoundedListener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let (stream, peer) = Listener::accept(&mut self.listener).await;
        (self.connections.admit(stream).await, peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// The address of the client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) SocketAddr);

impl axum::extract::connect_info::Connected<IncomingStream<'_, BoundedListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, BoundedListener>) -> Self {
        Self(*stream.remote_addr())
    }
}

/// A connection that is closed on eviction, or when idle.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    silence: Pin<Box<Sleep>>,
    ending: Pin<Box<OwnedNotified>>,
    _slot: OwnedSemaphorePermit,
}

impl Connection {
    /// Polls the connection, unless it is being closed.
    fn unless_ended<T>(
        &mut self,
        context: &mut Context<'_>,
        work: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if self.ending.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        match work(Pin::new(&mut self.stream), context) {
            Poll::Pending => {
                ready!(self.silence.as_mut().poll(context));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            done @ Poll::Ready(_) => {
                self.silence.as_mut().reset(Instant::now() + IDLE_TIMEOUT);
                done
            }
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.get_mut()
            .unless_ended(context, |stream, context| stream.poll_read(context, buffer))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut()
            .unless_ended(context, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().unless_ended(context, |stream, context| {
            stream.poll_write_vectored(context, parts)
        })
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
