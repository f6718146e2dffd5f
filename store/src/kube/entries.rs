//! Where the objects of a list go: into one list, or into pages for a feed.

use super::object::ReceivedObject;
use crate::{Entry, PageSender, Problem};

/// Entries per page.
const PAGE_SIZE: usize = 500;

/// The entries of a list.
#[derive(Debug)]
pub(super) struct Entries<'a> {
    /// Entries whose keys do not have this prefix are left out.
    prefix: &'a str,
    /// Receives full pages. None: all entries are kept in `rest`.
    pages: Option<&'a PageSender>,
    /// The entries that were not sent.
    pub(super) rest: Vec<Entry>,
    pub(super) problems: Vec<Problem>,
}

impl<'a> Entries<'a> {
    pub(super) const fn new(prefix: &'a str, pages: Option<&'a PageSender>) -> Self {
        Self {
            prefix,
            pages,
            rest: Vec::new(),
            problems: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, received: ReceivedObject) {
        let (entry, problems) = received.into_entry();
        self.problems.extend(problems);
        self.rest
            .extend(entry.filter(|entry| entry.key.starts_with(self.prefix)));
    }

    /// Sends the entries if they fill a page.
    pub(super) async fn send_full_page(&mut self) {
        if self.rest.len() >= PAGE_SIZE {
            self.send_rest().await;
        }
    }

    /// Sends the entries that were not sent.
    pub(super) async fn send_rest(&mut self) {
        if let Some(pages) = self.pages.filter(|_| !self.rest.is_empty()) {
            pages.send(std::mem::take(&mut self.rest)).await;
        }
    }

    /// Begins; what was added before does not count.
    pub(super) async fn begin(&mut self) {
        self.rest.clear();
        self.problems.clear();
        if let Some(pages) = self.pages {
            pages.begin().await;
        }
    }
}
