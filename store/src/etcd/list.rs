//! A list at one revision, in pages, two parts of it at a time.

use std::collections::BTreeSet;

use bytes::Bytes;
use etcd_client::{GetOptions, GetResponse, KvClient, ResponseHeader};
use futures::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;

use super::{
    failure::{self, Failure},
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
    /// The revision of the first page is compacted.
    Compacted,
    /// The page exceeds the client's limit.
    TooLarge,
    Failed(Failure),
}

/// Lists everything below `prefix`, at one revision.
///
/// A value that is too large by itself is reported as a problem of its key. Its entry has an empty value, which cannot be decoded:
/// without an entry the key would be taken for a deleted one. `parts` are prefixes that are listed concurrently. With `sender` the entries go there page by page, and the snapshot has
/// none.
pub(super) async fn list(
    session: Session,
    known: &KnownPrefixes,
    prefix: &str,
    parts: &[Vec<u8>],
    sender: Option<&PageSender>,
) -> Result<Snapshot, Failure> {
    let check = Mutex::new(known.begin_list(prefix));
    let listed = list_checked(&session, &check, prefix, parts, sender).await;
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

async fn list_checked(
    session: &Session,
    check: &Mutex<ListCheck>,
    prefix: &str,
    parts: &[Vec<u8>],
    sender: Option<&PageSender>,
) -> Result<Snapshot, Failure> {
    for _ in 0..MAX_LIST_ATTEMPTS {
        check.lock().restart();
        if let Some(sender) = sender {
            sender.begin().await;
        }
        match pages(session, check, prefix, parts, sender).await {
            Ok(snapshot) => return Ok(snapshot),
            Err(PageError::Failed(failure)) => return Err(failure),
            Err(PageError::Compacted) => {}
            Err(PageError::TooLarge) => {
                let action = format!("list {prefix}");
                let reason = format!("a key alone is larger than {MAX_RESPONSE_BYTES} bytes");
                return Err(StoreError::Refused { action, reason }.into());
            }
        }
    }
    let reason = format!(
        "its revisions were compacted {MAX_LIST_ATTEMPTS} times while {prefix} was being listed"
    );
    Err(session.unavailable(reason).into())
}

async fn pages(
    session: &Session,
    check: &Mutex<ListCheck>,
    prefix: &str,
    parts: &[Vec<u8>],
    sender: Option<&PageSender>,
) -> Result<Snapshot, PageError> {
    let whole = Range {
        from: first_key(prefix),
        end: prefix_end(prefix),
    };
    let mut first = Pages::new(session, check, sender, 0);
    // etcd answers with the revision it read, which pins the pages that follow.
    let Some(from) = first.next(whole.from, &whole.end).await? else {
        return Ok(first.read);
    };
    let revision = first.read.revision;
    let rest = split(
        &Range {
            from,
            end: whole.end,
        },
        parts,
    );
    let ranges =
        stream::iter(rest).map(|range| Pages::new(session, check, sender, revision).all(range));
    let mut snapshot = first.read;
    let parts: Vec<Snapshot> = ranges.buffered(CONCURRENT_LISTS).try_collect().await?;
    for part in parts {
        snapshot.entries.extend(part.entries);
        snapshot.problems.extend(part.problems);
    }
    Ok(snapshot)
}

/// A range of keys as in etcd.
#[derive(Debug, PartialEq, Eq)]
struct Range {
    from: Vec<u8>,
    /// A zero byte means "no end".
    end: Vec<u8>,
}

/// Splits a range at some keys, in order.
fn split(range: &Range, cuts: &[Vec<u8>]) -> Vec<Range> {
    let is_within = |cut: &&Vec<u8>| **cut > range.from && (range.end == [0] || **cut < range.end);
    let cuts: BTreeSet<&Vec<u8>> = cuts.iter().filter(is_within).collect();
    let ends = cuts.iter().copied().chain([&range.end]);
    let starts = std::iter::once(&range.from).chain(cuts.iter().copied());
    starts
        .zip(ends)
        .map(|(from, end)| Range {
            from: from.clone(),
            end: end.clone(),
        })
        .collect()
}

/// Reads page after page.
struct Pages<'a> {
    session: &'a Session,
    check: &'a Mutex<ListCheck>,
    sender: Option<&'a PageSender>,
    kv: KvClient,
    limit: i64,
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
            read,
        }
    }

    async fn all(mut self, range: Range) -> Result<Snapshot, PageError> {
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
            if let Some(sender) = self.sender {
                sender
                    .expect(usize::try_from(page.count()).unwrap_or_default())
                    .await;
            }
        }
        let next = page
            .kvs()
            .last()
            .filter(|_| page.more())
            .map(|last| [last.key(), &[0]].concat());
        self.check(&page, &from, limit)
            .map_err(|error| PageError::Failed(error.into()))?;
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

    fn check(&self, page: &GetResponse, from: &[u8], limit: i64) -> Result<(), StoreError> {
        let mut check = self.check.lock();
        let said = ListPage {
            from,
            limit,
            count: page.count(),
            revision: self.read.revision,
            has_more: page.more(),
        };
        check.begin_page(said, page.kvs().len())?;
        let mut previous: &[u8] = &[];
        for pair in page.kvs() {
            check.add(previous, &pair.0)?;
            previous = pair.key();
        }
        Ok(())
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

/// The first possible key with `prefix`. etcd takes an empty key as none.
pub(super) fn first_key(prefix: &str) -> Vec<u8> {
    if prefix.is_empty() {
        vec![0]
    } else {
        prefix.as_bytes().to_vec()
    }
}

/// The first key after all keys with `prefix`. etcd takes a zero byte as "no end".
pub(super) fn prefix_end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
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

    #[test]
    fn range_is_split_where_types_begin_without_gaps() {
        let range = |from: &str, end: &str| Range {
            from: from.into(),
            end: end.into(),
        };
        let cuts = ["/a/pod/", "/a/node/", "/b/", "/a/endpoints/"].map(Vec::from);
        let expected = [
            range("/a/endpoints/x", "/a/node/"),
            range("/a/node/", "/a/pod/"),
            range("/a/pod/", "/a0"),
        ];
        assert_eq!(split(&range("/a/endpoints/x", "/a0"), &cuts), expected);
        let no_end = Range {
            from: b"/a/pod/x".to_vec(),
            end: vec![0],
        };
        let [first, last] = &split(&no_end, &cuts)[..] else {
            panic!()
        };
        assert_eq!(
            (&*first.end, &*last.from, &*last.end),
            (&b"/b/"[..], &b"/b/"[..], &[0][..])
        );
        assert_eq!(split(&range("/z", "/z0"), &cuts), [range("/z", "/z0")]);
    }

    #[test]
    fn prefix_ends_before_first_key_without_it() {
        assert_eq!(prefix_end("/a/"), b"/a0");
        assert_eq!(prefix_end(""), [0]);
    }
}
