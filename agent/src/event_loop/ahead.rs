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

use contiv_store::{Delivery, Entry, Feed, FeedHandle, Preview, Store};
use tokio::sync::{mpsc, oneshot};

use super::intake::Ahead;

/// So many entries are decoded between two looks at what is asked for.
const AT_ONCE: usize = 500;

/// What goes to the thread. What waits there is among what the list has brought.
#[derive(Debug)]
enum Message {
    Begin,
    Show(Vec<Entry>),
    Take(oneshot::Sender<Ahead>),
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
        let (shown, ahead) = start_decoder()?;
        let (events, feed) = Feed::start_with_preview(store, prefix, Arc::new(shown));
        Ok(Self { events, feed, ahead })
    }

    /// What is followed elsewhere: nothing is decoded before a snapshot is there.
    #[cfg(test)]
    pub(crate) fn elsewhere(events: mpsc::Receiver<Delivery>, feed: FeedHandle) -> Self {
        Self { events, feed, ahead: DecodedAhead::default() }
    }
}

fn start_decoder() -> io::Result<(Shown, DecodedAhead)> {
    let (sender, messages) = channel();
    let thread = thread::Builder::new().name("decode-ahead".to_owned());
    // It ends when nobody is left to send it anything: neither the feed nor the loop.
    thread.spawn(move || Decoder::default().run(&messages))?;
    Ok((Shown(sender.clone()), DecodedAhead(Some(sender))))
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
    pub(super) async fn take(&self) -> Ahead {
        let Some(sender) = &self.0 else { return Ahead::default() };
        let (reply, ahead) = oneshot::channel();
        // Without the thread nothing is decoded.
        let _ = sender.send(Message::Take(reply));
        ahead.await.unwrap_or_default()
    }
}

/// The thread's state: the list that is under way.
#[derive(Debug, Default)]
struct Decoder {
    shown: VecDeque<Vec<Entry>>,
    ahead: Ahead,
}

impl Decoder {
    fn run(mut self, messages: &Receiver<Message>) {
        while let Ok(message) = self.next(messages) {
            match message {
                Some(Message::Begin) => self = Self::default(),
                Some(Message::Show(entries)) => self.shown.push_back(entries),
                Some(Message::Take(reply)) => {
                    // A loop that has ended needs nothing.
                    let _ = reply.send(std::mem::take(&mut self).ahead);
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
        self.ahead.decode(&entries);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use contiv_store::Snapshot;

    use super::*;
    use crate::event_loop::intake::snapshot;

    fn entries(from: usize, count: usize) -> Vec<Entry> {
        let key = |i| format!("/vnf-agent/contiv-ksr/k8s/service/s{i:05}/namespace/default");
        let entry = |i| Entry { key: key(i), value: "{}".into(), create_revision: 1, mod_revision: 1 };
        (from..from + count).map(entry).collect()
    }

    /// How many parts are decoded so long after these lists, of which the last counts, have been shown.
    async fn decoded(shown: &Shown, ahead: &DecodedAhead, lists: &[&Vec<Entry>], after: Duration) -> usize {
        for list in lists {
            shown.begin();
            list.chunks(700).for_each(|page| shown.show(page));
        }
        thread::sleep(after);
        let list = lists.last().copied().cloned().unwrap_or_default();
        let mut ahead = ahead.take().await;
        let (count, shown) = (ahead.parts(), Snapshot { entries: list, ..Snapshot::default() });
        assert_eq!(snapshot(&shown, &mut ahead), snapshot(&shown, &mut Ahead::default()));
        count
    }

    #[tokio::test]
    async fn what_was_shown_of_the_last_list_is_decoded_and_handed_out_once() {
        let (shown, ahead) = start_decoder().unwrap();
        let (one, other) = (entries(0, 1500), entries(7000, 1200));
        // Pages of 700 become pieces of 500 and 200.
        for (lists, parts) in [(&[&one][..], 5), (&[&one, &other], 3)] {
            // A slow machine takes its time, and what is not decoded by then is not handed out later.
            let mut after = Duration::from_millis(10);
            while decoded(&shown, &ahead, lists, after).await < parts {
                after *= 2;
                assert!(after < Duration::from_secs(30), "not all of {parts} parts are decoded");
            }
            assert_eq!(ahead.take().await.parts(), 0);
        }
    }

    #[tokio::test]
    async fn without_its_thread_nothing_is_decoded_ahead() {
        let (sender, messages) = channel();
        drop(messages);
        let (shown, ahead) = (Shown(sender.clone()), DecodedAhead(Some(sender)));
        shown.begin();
        shown.show(&entries(0, 3));
        assert_eq!(ahead.take().await.parts(), 0);
        assert_eq!(DecodedAhead::default().take().await.parts(), 0);
    }
}
