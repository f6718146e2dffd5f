//! A list at one revision, in pages, two parts of it at a time.

use bytes::Bytes;
use etcd_client::{GetOptions, GetResponse, KvClient, ResponseHeader};
use futures::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;

use super::{
    failure::{self, Failure},
    key_range::{KeyRange, KeyRanges},
    key_text::key_text,
    known::{KnownPrefixes, ListCheck, ListPage},
    session::{MAX_PAGE_BYTES, MAX_RESPONSE_BYTES, Session},
};
use crate::{Entry, PageSender, Problem, Snapshot, StoreError};

/// Keys per page. For each page etcd 3.4 counts all remaining keys, so small pages are expensive: 50,000 keys of 700 bytes took
/// 0.61 s in pages of 200, 0.23 s of 1,000, 0.14 s of 5,000 and 0.16 s in one.
const PAGE_KEYS: i64 = 5000;
/// Lists of more keys have pages with a part of the remaining keys, so that counting them does not become most of the work: with two
/// million keys in pages of 5,000 etcd counted for half a minute.
const LONG_LIST_KEYS: i64 = 200_000;
/// This part.
const LONG_LIST_PAGES: i64 = 20;
/// The target size of such a page.
const LONG_LIST_PAGE_BYTES: usize = MAX_PAGE_BYTES / 2;
/// The minimum size of the last pages. They have a third of the remaining keys, so that little work remains after the last answer.
const MIN_LAST_PAGE_KEYS: i64 = 1000;
/// Keys of the first page, before the size of values is known.
const FIRST_PAGE_KEYS: i64 = 500;
/// The target size of a page, so that a few thousand large values do not exceed the limit of one answer.
const PAGE_BYTES: usize = 4 << 20;
/// Parts that are listed concurrently: etcd answers each request on one processor, while we read another answer.
const CONCURRENT_LISTS: usize = 2;
/// How often a list may restart because its revision was compacted.
const MAX_LIST_ATTEMPTS: usize = 5;

/// Why a page failed.
enum PageError {
    /// The revision is compacted.
    Compacted,
    /// The revision is not there yet.
    Future,
    /// The page exceeds the client's limit.
    TooLarge,
    Failed(Failure),
}

/// Lists `keys`, at one revision.
///
/// A value that is too large by itself is reported as a problem of its key. Its entry has an empty value, which cannot be decoded:
/// without an entry the key would be taken for a deleted one. `parts` are prefixes that are listed concurrently. With `sender` the
/// entries go there page by page, and the snapshot has none.
pub(super) async fn list(
    session: Session,
    known: &KnownPrefixes,
    keys: &KeyRanges,
    parts: &[Vec<u8>],
    sender: Option<&PageSender>,
) -> Result<Snapshot, Failure> {
    let prefix = &keys.prefix;
    let check = Mutex::new(known.begin_list(prefix));
    let listed = list_checked(&session, &check, keys, parts, sender).await;
    match (listed, check.into_inner()) {
        (Ok(snapshot), check) => {
            known.end_list(prefix, check)?;
            Ok(snapshot)
        }
        (Err(failure @ Failure::Store(StoreError::Inconsistent { .. })), _) => Err(failure),
        (Err(failure), check) => {
            known.abandon_list(prefix, check);
            Err(failure)
        }
    }
}

/// Lists `keys` as they were at this revision.
pub(super) async fn list_at(
    session: Session,
    keys: &KeyRanges,
    parts: &[Vec<u8>],
    revision: i64,
) -> Result<Snapshot, Failure> {
    // What was then says nothing about what is now.
    let (known, prefix) = (KnownPrefixes::default(), &keys.prefix);
    let check = Mutex::new(known.begin_list(prefix));
    check.lock().restart();
    let requested = revision;
    match pages(&session, &check, keys, parts, None, revision).await {
        Ok(snapshot) => {
            known.end_list(prefix, check.into_inner())?;
            Ok(snapshot)
        }
        Err(PageError::Failed(failure)) => Err(failure),
        Err(PageError::Compacted) => {
            let oldest = requested + 1;
            Err(StoreError::Compacted { requested, oldest }.into())
        }
        Err(PageError::Future) => {
            let newest = requested - 1;
            Err(StoreError::Rewound { requested, newest }.into())
        }
        Err(PageError::TooLarge) => Err(too_large_key(prefix)),
    }
}

async fn list_checked(
    session: &Session,
    check: &Mutex<ListCheck>,
    keys: &KeyRanges,
    parts: &[Vec<u8>],
    sender: Option<&PageSender>,
) -> Result<Snapshot, Failure> {
    for _ in 0..MAX_LIST_ATTEMPTS {
        check.lock().restart();
        if let Some(sender) = sender {
            sender.begin().await;
        }
        match pages(session, check, keys, parts, sender, 0).await {
            Ok(snapshot) => return Ok(snapshot),
            Err(PageError::Failed(failure)) => return Err(failure),
            // Another member may not have the revision of the first page.
            Err(PageError::Compacted | PageError::Future) => {}
            Err(PageError::TooLarge) => return Err(too_large_key(&keys.prefix)),
        }
    }
    let reason = format!(
        "its revisions were compacted {MAX_LIST_ATTEMPTS} times while {} was being listed",
        keys.prefix
    );
    Err(session.unavailable(reason).into())
}

fn too_large_key(prefix: &str) -> Failure {
    let action = format!("list {prefix}");
    let reason = format!("a key alone is larger than {MAX_RESPONSE_BYTES} bytes");
    StoreError::Refused { action, reason }.into()
}

/// At `revision`; with 0, at the newest.
async fn pages(
    session: &Session,
    check: &Mutex<ListCheck>,
    keys: &KeyRanges,
    parts: &[Vec<u8>],
    sender: Option<&PageSender>,
    revision: i64,
) -> Result<Snapshot, PageError> {
    let Some((whole, others)) = keys.ranges.split_first() else {
        return Ok(Snapshot::default());
    };
    let mut first = Pages::new(session, check, sender, revision);
    // etcd answers with the revision it read, which pins the pages that follow.
    let from = first.next(whole.from.clone(), &whole.end).await?;
    let revision = first.read.revision;
    let rest = from.map(|from| KeyRange {
        from,
        end: whole.end.clone(),
    });
    let rest = rest.map(|rest| rest.split(parts)).unwrap_or_default();
    let others = others.iter().map(|other| (other.clone(), true));
    let ranges: Vec<_> = rest
        .into_iter()
        .map(|rest| (rest, false))
        .chain(others)
        .collect();
    let ranges = stream::iter(ranges)
        .map(|(range, begins)| Pages::new(session, check, sender, revision).all(range, begins));
    let mut snapshot = first.read;
    let parts: Vec<Snapshot> = ranges.buffered(CONCURRENT_LISTS).try_collect().await?;
    for part in parts {
        snapshot.entries.extend(part.entries);
        snapshot.problems.extend(part.problems);
    }
    Ok(snapshot)
}

/// Reads page after page.
struct Pages<'a> {
    session: &'a Session,
    check: &'a Mutex<ListCheck>,
    sender: Option<&'a PageSender>,
    kv: KvClient,
    limit: i64,
    /// Whether the next page begins a range, and says how many keys there are.
    begins_range: bool,
    read: Snapshot,
}

impl<'a> Pages<'a> {
    /// Pages at `revision`; with 0, at the revision of the first page.
    fn new(
        session: &'a Session,
        check: &'a Mutex<ListCheck>,
        sender: Option<&'a PageSender>,
        revision: i64,
    ) -> Self {
        let read = Snapshot {
            revision,
            ..Snapshot::default()
        };
        Self {
            session,
            check,
            sender,
            kv: session.kv(),
            limit: FIRST_PAGE_KEYS,
            begins_range: true,
            read,
        }
    }

    /// Reads a range, or what is left of one that has begun.
    async fn all(mut self, range: KeyRange, begins: bool) -> Result<Snapshot, PageError> {
        self.begins_range = begins;
        let mut from = range.from;
        while let Some(next) = self.next(from, &range.end).await? {
            from = next;
        }
        Ok(self.read)
    }

    /// Reads the page that begins with this key. Returns the first key of the next one, if any.
    async fn next(&mut self, from: Vec<u8>, end: &[u8]) -> Result<Option<Vec<u8>>, PageError> {
        let range = GetOptions::new()
            .with_range(end)
            .with_revision(self.read.revision);
        let mut page = loop {
            let options = range.clone().with_limit(self.limit);
            match get_page(self.session, &mut self.kv, from.clone(), options.clone()).await {
                Err(PageError::TooLarge) if self.limit > 1 => self.limit = (self.limit / 8).max(1),
                Err(PageError::TooLarge) => {
                    let options = options.with_keys_only();
                    let page = get_page(self.session, &mut self.kv, from.clone(), options).await?;
                    self.read
                        .problems
                        .extend(page.kvs().iter().map(|pair| too_large(pair.key())));
                    break page;
                }
                page => break page?,
            }
        };
        let limit = self.limit;
        // It grows in steps, since the next value may be too large as well.
        let sizes = page.kvs().iter().map(|pair| pair.value().len());
        self.limit = next_limit(sizes, page.count()).min(self.limit * 10);
        if self.read.revision == 0 {
            self.read.revision = page.header().map_or(0, ResponseHeader::revision);
        }
        let next = page
            .kvs()
            .last()
            .filter(|_| page.more())
            .map(|last| [last.key(), &[0]].concat());
        let announced = self
            .check(&page, &from, limit)
            .map_err(|error| PageError::Failed(error.into()))?;
        if let Some(sender) = self.sender.filter(|_| self.begins_range) {
            let announced = usize::try_from(announced).unwrap_or_default();
            sender.expect(announced).await;
        }
        self.begins_range = false;
        let mut entries = Vec::with_capacity(page.kvs().len());
        for pair in page.take_kvs() {
            let mut entry = entry(pair);
            if entry.value.len() > MAX_RESPONSE_BYTES {
                self.read.problems.push(too_large(entry.key.as_bytes()));
                entry.value = Bytes::new();
            }
            entries.push(entry);
        }
        match self.sender {
            Some(sender) => sender.send(entries).await,
            None => self.read.entries.extend(entries),
        }
        Ok(next)
    }

    /// Checks a page. Returns how many keys the list announces until now.
    fn check(&self, page: &GetResponse, from: &[u8], limit: i64) -> Result<i64, StoreError> {
        let said = ListPage {
            from,
            limit,
            count: page.count(),
            revision: self.read.revision,
            has_more: page.more(),
            begins_range: self.begins_range,
        };
        let pairs = page.kvs().iter().map(|pair| &pair.0);
        let mut check = self.check.lock();
        check.read_page(said, pairs)?;
        Ok(check.announced())
    }
}

/// The number of keys of the next page, from the sizes of the values of this page, and the number of keys from this page on.
fn next_limit(sizes: impl ExactSizeIterator<Item = usize>, keys: i64) -> i64 {
    let count = sizes.len();
    let left = keys.saturating_sub(i64::try_from(count).unwrap_or(i64::MAX));
    let average = sizes.sum::<usize>() / count.max(1);
    let (keys, bytes) = if left > LONG_LIST_KEYS {
        (left / LONG_LIST_PAGES, LONG_LIST_PAGE_BYTES)
    } else {
        ((left / 3).clamp(MIN_LAST_PAGE_KEYS, PAGE_KEYS), PAGE_BYTES)
    };
    let fitting = i64::try_from(bytes / average.max(1))
        .unwrap_or(PAGE_KEYS)
        .max(1);
    fitting.min(keys)
}

async fn get_page(
    session: &Session,
    kv: &mut KvClient,
    from: Vec<u8>,
    options: GetOptions,
) -> Result<GetResponse, PageError> {
    let answer = session.answer(kv.get(from, Some(options))).await;
    match answer.map_err(|error| PageError::Failed(error.into()))? {
        Ok(page) => Ok(page),
        Err(error) if failure::is_compacted(&error) => Err(PageError::Compacted),
        Err(error) if failure::is_future(&error) => Err(PageError::Future),
        Err(error) if failure::is_too_large(&error) => Err(PageError::TooLarge),
        Err(error) => Err(PageError::Failed(session.failure("list", error))),
    }
}

fn too_large(key: &[u8]) -> Problem {
    Problem {
        source: key_text(key.to_vec()),
        object: None,
        field: None,
        reason: format!(
            "the value is larger than {MAX_RESPONSE_BYTES} bytes, which is the most that is read"
        ),
        is_warning: false,
    }
}

pub(super) fn entry(pair: etcd_client::KeyValue) -> Entry {
    let (create_revision, mod_revision) = (pair.create_revision(), pair.mod_revision());
    let (key, value) = pair.into_key_value();
    Entry {
        key: key_text(key),
        value: Bytes::from(value),
        create_revision,
        mod_revision,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_size_follows_value_sizes_and_remaining_keys() {
        assert_eq!(next_limit([600; 500].into_iter(), 100_500), PAGE_KEYS);
        assert_eq!(next_limit([600; 500].into_iter(), 20_500), PAGE_KEYS);
        assert_eq!(next_limit([600; 500].into_iter(), 9500), 3000);
        assert_eq!(next_limit([600; 500].into_iter(), 400_500), 20_000);
        assert_eq!(
            next_limit([600; 500].into_iter(), 4_000_500),
            55_924,
            "32 MiB"
        );
        assert_eq!(next_limit([600; 500].into_iter(), 501), MIN_LAST_PAGE_KEYS);
        assert_eq!(next_limit([16 << 10; 500].into_iter(), 100_500), 256);
        assert_eq!(next_limit([8 << 20; 3].into_iter(), 4), 1);
        assert_eq!(next_limit([].into_iter(), 0), MIN_LAST_PAGE_KEYS);
    }
}
