//! The pages of a list.

use tokio::sync::mpsc;

use crate::Entry;

/// The receiver of the pages of a list.
#[derive(Debug)]
pub struct PageSender(pub(crate) mpsc::Sender<Page>);

#[derive(Debug)]
pub(crate) enum Page {
    Begin,
    Expect(usize),
    Entries(Vec<Entry>),
}

impl PageSender {
    /// A list begins; the pages of one before that has failed do not count.
    pub async fn begin(&self) {
        // Without a receiver the list is cancelled.
        let _ = self.0.send(Page::Begin).await;
    }

    /// The list has about so many entries, so that its receiver can reserve memory once.
    pub async fn expect(&self, entries: usize) {
        let _ = self.0.send(Page::Expect(entries)).await;
    }

    /// Some entries of the list.
    pub async fn send(&self, entries: Vec<Entry>) {
        let _ = self.0.send(Page::Entries(entries)).await;
    }
}
