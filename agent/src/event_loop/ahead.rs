//! Decodes what a list of the store brings while the rest of it is on its way, in a thread of its own: most of a snapshot is
//! decoded when it is complete.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        mpsc::{Receiver, RecvError, Sender, TryRecvError, channel},
    },
    thread,
};

use contiv_model::processor::Names;
use contiv_store::{Delivery, Entry, Feed, FeedHandle, Preview, Store};
use tokio::sync::{mpsc, oneshot};

use super::intake::{self, Part};

/// So many entries are decoded between two looks at what is asked for.
const AT_ONCE: usize = 500;

/// What goes to the thread. There is never more of it than the list has brought.
#[derive(Debug)]
enum Message {
    Begin,
    Show(Vec<Entry>),
    Take(oneshot::Sender<Vec<Part>>),
}

/// A store that is followed for the loop.
#[derive(Debug)]
pub struct Followed {
    pub(super) events: mpsc::Receiver<Delivery>,
    pub(super) feed: FeedHandle,
    pub(super) ahead: DecodedAhead,
}

impl Followed {
    /// Follows everything below `prefix`. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(store: Arc<dyn Store>, prefix: &str) -> io::Result<Self> {
        let (shown, messages) = channel();
        let thread = thread::Builder::new().name("decode-ahead".to_owned());
        // It ends when nobody is left to send it anything: neither the feed nor the loop.
        thread.spawn(move || Decoder::default().run(&messages))?;
        let ahead = DecodedAhead(Some(shown.clone()));
        let (events, feed) = Feed::start_with_preview(store, prefix, Arc::new(Shown(shown)));
        Ok(Self { events, feed, ahead })
    }

    /// What is followed elsewhere: nothing is decoded before a snapshot is there.
    #[cfg(test)]
    pub(crate) fn elsewhere(events: mpsc::Receiver<Delivery>, feed: FeedHandle) -> Self {
        Self { events, feed, ahead: DecodedAhead::default() }
    }
}

/// The feed's end.
#[derive(Debug)]
struct Shown(Sender<Message>);

impl Preview for Shown {
    // Without the thread the loop decodes everything, so nothing is lost with what cannot be sent.
    fn begin(&self) {
        let _ = self.0.send(Message::Begin);
    }

    fn show(&self, entries: &[Entry]) {
        for entries in entries.chunks(AT_ONCE) {
            let _ = self.0.send(Message::Show(entries.to_vec()));
        }
    }
}

/// The loop's end.
#[derive(Debug, Default)]
pub(super) struct DecodedAhead(Option<Sender<Message>>);

impl DecodedAhead {
    /// What has been decoded of the list that was made last, and is forgotten here. Waits for a few hundred entries at most.
    pub(super) async fn take(&self) -> Vec<Part> {
        let Some(sender) = &self.0 else { return Vec::new() };
        let (reply, parts) = oneshot::channel();
        // Without the thread nothing is decoded.
        let _ = sender.send(Message::Take(reply));
        parts.await.unwrap_or_default()
    }
}

/// The thread's state: the list that is under way.
#[derive(Debug, Default)]
struct Decoder {
    shown: VecDeque<Vec<Entry>>,
    parts: Vec<Part>,
    /// Names that many objects hold would be in memory many times, and leave holes when the processor shares them.
    names: Names,
}

impl Decoder {
    fn run(mut self, messages: &Receiver<Message>) {
        while let Ok(message) = self.next(messages) {
            match message {
                Some(Message::Begin) => self = Self::default(),
                Some(Message::Show(entries)) => self.shown.push_back(entries),
                Some(Message::Take(reply)) => {
                    // A loop that has ended needs nothing.
                    let _ = reply.send(std::mem::take(&mut self).parts);
                }
                None => self.decode_some(),
            }
        }
    }

    /// The next message. None if there is something to decode instead; an error if nobody is left to send one.
    fn next(&self, messages: &Receiver<Message>) -> Result<Option<Message>, RecvError> {
        if self.shown.is_empty() {
            return messages.recv().map(Some);
        }
        match messages.try_recv() {
            Ok(message) => Ok(Some(message)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(RecvError),
        }
    }

    fn decode_some(&mut self) {
        let Some(entries) = self.shown.pop_front() else { return };
        let decoded = intake::decode_all(&entries, &mut self.names);
        self.parts.push(Part { entries, decoded });
    }
}
