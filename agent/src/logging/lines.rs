//! The thread that writes to standard error, so that no other thread waits for its reader: a full pipe or journal blocks.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, RecvError, Sender, SyncSender, TryRecvError, channel, sync_channel},
    },
    thread,
    time::Duration,
};

use tracing::warn;

/// How much may be queued for a slow reader. Further lines are dropped, and counted.
const CAPACITY_BYTES: usize = 1 << 20;
/// How long the end waits for queued lines.
const FLUSH_LIMIT: Duration = Duration::from_millis(500);

/// A message to the thread.
#[derive(Debug)]
enum Message {
    Line(Vec<u8>),
    /// Answered when everything before it is written.
    Flush(SyncSender<()>),
}

/// The queue of the thread. Writing never blocks; each write is one or more lines. Clones write to the same queue.
#[derive(Debug, Clone)]
pub struct LogLines {
    messages: Sender<Message>,
    /// How many bytes are queued.
    waiting: Arc<AtomicUsize>,
    /// How many writes were dropped since the last report.
    lost: Arc<AtomicUsize>,
}

impl LogLines {
    /// Starts the thread. It writes to standard error through its own descriptor: the standard library's lock is never held
    /// while it waits.
    pub(super) fn to_standard_error() -> io::Result<Self> {
        Self::start(File::from(io::stderr().as_fd().try_clone_to_owned()?))
    }

    pub(super) fn start(out: impl Write + Send + 'static) -> io::Result<Self> {
        let (messages, receiver) = channel();
        let lines = Self {
            messages,
            waiting: Arc::default(),
            lost: Arc::default(),
        };
        let (waiting, lost) = (Arc::clone(&lines.waiting), Arc::clone(&lines.lost));
        let thread = thread::Builder::new().name("log".to_owned());
        thread.spawn(move || write_all(out, &receiver, &waiting, &lost))?;
        Ok(lines)
    }
}

impl Write for LogLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let waiting = self.waiting.fetch_add(bytes.len(), Ordering::Relaxed);
        let is_taken = waiting + bytes.len() <= CAPACITY_BYTES
            && self.messages.send(Message::Line(bytes.to_vec())).is_ok();
        if !is_taken {
            self.waiting.fetch_sub(bytes.len(), Ordering::Relaxed);
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(bytes.len())
    }

    /// Waits until everything is written, with a short timeout.
    fn flush(&mut self) -> io::Result<()> {
        let (reply, done) = sync_channel(1);
        let flushed = self.messages.send(Message::Flush(reply)).is_ok();
        if flushed && done.recv_timeout(FLUSH_LIMIT).is_ok() {
            Ok(())
        } else {
            Err(io::ErrorKind::TimedOut.into())
        }
    }
}

/// Runs in the thread, until all writers are gone.
fn write_all(
    mut out: impl Write,
    messages: &Receiver<Message>,
    waiting: &AtomicUsize,
    lost: &AtomicUsize,
) {
    while let Ok(message) = next(messages, lost) {
        match message {
            Message::Line(line) => {
                waiting.fetch_sub(line.len(), Ordering::Relaxed);
                // If standard error is closed there is nothing to do.
                let _ = out.write_all(&line);
            }
            Message::Flush(reply) => {
                let _ = out.flush();
                // The waiting side may have given up.
                let _ = reply.try_send(());
            }
        }
    }
}

/// The next message. Dropped lines come after all queued ones, so they are reported when those are written.
fn next(messages: &Receiver<Message>, lost: &AtomicUsize) -> Result<Message, RecvError> {
    match messages.try_recv() {
        Ok(message) => Ok(message),
        Err(TryRecvError::Disconnected) => Err(RecvError),
        Err(TryRecvError::Empty) => {
            let lost = lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                // It is queued as a separate line.
                warn!(
                    lines = lost,
                    "log lines are lost: the reader of standard error was too slow"
                );
            }
            messages.recv()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, os::unix::net::UnixStream};

    use super::*;

    /// More than a socket and the queue hold together.
    const MANY: usize = 4 * CAPACITY_BYTES;

    #[test]
    fn log_lines_reader_that_stops_holds_up_no_writer() {
        let (out, mut reader) = UnixStream::pair().unwrap();
        let mut lines = LogLines::start(out).unwrap();
        let line = [b'x'; 1024];
        for _ in 0..MANY / line.len() {
            lines.write_all(&line).unwrap();
        }
        assert_eq!(lines.flush().unwrap_err().kind(), io::ErrorKind::TimedOut);
        let lost = lines.lost.load(Ordering::Relaxed);
        assert!(lost > 0 && lines.waiting.load(Ordering::Relaxed) <= CAPACITY_BYTES);
        // Queued lines are written when the reader continues.
        let read = thread::spawn(move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).unwrap();
            all.len()
        });
        drop(lines);
        assert_eq!(read.join().unwrap(), MANY - lost * line.len());
    }

    #[test]
    fn lost_log_lines_are_counted_when_the_queue_is_empty() {
        let (out, mut reader) = UnixStream::pair().unwrap();
        let mut lines = LogLines::start(out).unwrap();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        // As in the thread, which has the process's subscriber; here one message is queued.
        let (messages, receiver) = channel();
        messages.send(Message::Line(Vec::new())).unwrap();
        let lost = AtomicUsize::new(3);
        tracing::subscriber::with_default(subscriber, || {
            next(&receiver, &lost).unwrap();
            assert_eq!(lost.load(Ordering::Relaxed), 3, "what waits comes first");
            thread::scope(|scope| {
                scope.spawn(|| {
                    while lost.load(Ordering::Relaxed) > 0 {
                        thread::yield_now();
                    }
                    messages.send(Message::Line(Vec::new())).unwrap();
                });
                next(&receiver, &lost).unwrap();
            });
        });
        lines.flush().unwrap();
        drop(lines);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert!(
            text.contains("log lines are lost") && text.contains("lines=3"),
            "{text}"
        );
    }
}
