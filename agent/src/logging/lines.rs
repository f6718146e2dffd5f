//! The thread that writes to standard error, so that no other one waits for whoever reads it: a pipe or a journal that nobody
//! empties takes nothing more.

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

/// How much may wait for a slow reader. What comes then is lost, and counted.
const CAPACITY_BYTES: usize = 1 << 20;
/// How long the end waits for what is not written yet.
const FLUSH_LIMIT: Duration = Duration::from_millis(500);

/// What the thread is told.
#[derive(Debug)]
enum Message {
    Line(Vec<u8>),
    /// To be answered when all before it is written.
    Flush(SyncSender<()>),
}

/// The way to the thread. Whoever writes waits for nothing; each write is a line or several. Clones write to the same.
#[derive(Debug, Clone)]
pub struct LogLines {
    messages: Sender<Message>,
    /// How many bytes the thread has not taken up.
    waiting: Arc<AtomicUsize>,
    /// How many writes found no room since that was told last.
    lost: Arc<AtomicUsize>,
}

impl LogLines {
    /// Starts the thread. It writes to standard error by a descriptor of its own: the lock of the standard library's is never held
    /// while it waits.
    pub(super) fn to_standard_error() -> io::Result<Self> {
        Self::start(File::from(io::stderr().as_fd().try_clone_to_owned()?))
    }

    pub(super) fn start(out: impl Write + Send + 'static) -> io::Result<Self> {
        let (messages, receiver) = channel();
        let lines = Self { messages, waiting: Arc::default(), lost: Arc::default() };
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

    /// Waits until everything is written, but not for long.
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

/// Runs in the thread, until nobody is left to write anything.
fn write_all(mut out: impl Write, messages: &Receiver<Message>, waiting: &AtomicUsize, lost: &AtomicUsize) {
    while let Ok(message) = next(messages, lost) {
        match message {
            Message::Line(line) => {
                waiting.fetch_sub(line.len(), Ordering::Relaxed);
                // With nobody to tell there is nothing to do.
                let _ = out.write_all(&line);
            }
            Message::Flush(reply) => {
                let _ = out.flush();
                // Whoever waited may have given up.
                let _ = reply.try_send(());
            }
        }
    }
}

/// The next message. What was lost came after all that waits, so it is told when that is written.
fn next(messages: &Receiver<Message>, lost: &AtomicUsize) -> Result<Message, RecvError> {
    match messages.try_recv() {
        Ok(message) => Ok(message),
        Err(TryRecvError::Disconnected) => Err(RecvError),
        Err(TryRecvError::Empty) => {
            let lost = lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                // It comes back as a line of its own.
                warn!(lines = lost, "log lines are lost: whoever reads them was too slow");
            }
            messages.recv()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, os::unix::net::UnixStream};

    use super::*;

    /// More than a socket and the queue take together.
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
        // What was taken comes when somebody reads again.
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
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        // As in the thread, which has the process's subscriber; here one message waits.
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
        assert!(text.contains("log lines are lost") && text.contains("lines=3"), "{text}");
    }
}
