//! A list at one revision, in pages.

use bytes::Bytes;
use etcd_client::{GetOptions, GetResponse, KvClient, ResponseHeader};

use super::{
    failure::{self, Failure},
    session::{LARGEST_RESPONSE, Session},
};
use crate::{Entry, Problem, Snapshot, StoreError};

/// Keys per page. For each page etcd 3.4 counts all keys that are left, so small pages cost more than they carry: 50,000
/// keys of 700 bytes took 0.61 s in pages of 200, 0.23 s of 1,000, 0.14 s of 5,000 and 0.16 s in one.
const PAGE: i64 = 5000;
/// Keys of the first page, before it is known how large values are.
const FIRST_PAGE: i64 = 500;
/// What a page is to carry, so that a few thousand large values do not come as one answer, which would be refused.
const PAGE_BYTES: usize = 4 << 20;
/// How often a list may start again because its revision was compacted away.
const ATTEMPTS: usize = 5;

/// What stops a page.
enum Stop {
    /// The revision of the first page is gone.
    Compacted,
    /// The page exceeds what the client accepts.
    TooLarge,
    Failed(Failure),
}

/// Everything below `prefix`, at one revision.
///
/// A value that is too large by itself is a problem of its key, and its entry has an empty value, which is none that
/// anything can be read from: the key is there, and must not be taken for a deleted one.
pub(super) async fn list(session: Session, prefix: &str) -> Result<Snapshot, Failure> {
    for _ in 0..ATTEMPTS {
        match pages(&session, prefix).await {
            Ok(snapshot) => return Ok(snapshot),
            Err(Stop::Failed(failure)) => return Err(failure),
            Err(Stop::Compacted) => {}
            Err(Stop::TooLarge) => {
                let action = format!("list {prefix}");
                let reason = format!("a key alone is larger than {LARGEST_RESPONSE} bytes");
                return Err(StoreError::Refused { action, reason }.into());
            }
        }
    }
    let reason = format!("its revisions were compacted {ATTEMPTS} times while {prefix} was being listed");
    Err(session.unavailable(reason).into())
}

async fn pages(session: &Session, prefix: &str) -> Result<Snapshot, Stop> {
    let mut kv = session.kv();
    let end = prefix_end(prefix);
    let mut snapshot = Snapshot::default();
    let mut from = first_key(prefix);
    let mut limit = FIRST_PAGE;
    loop {
        let options =
            GetOptions::new().with_range(end.clone()).with_limit(limit).with_revision(snapshot.revision);
        let mut page = match page(session, &mut kv, from.clone(), options.clone()).await {
            Err(Stop::TooLarge) if limit > 1 => {
                limit = (limit / 8).max(1);
                continue;
            }
            Err(Stop::TooLarge) => {
                let page = page(session, &mut kv, from, options.with_keys_only()).await?;
                snapshot.problems.extend(page.kvs().iter().map(|pair| too_large(pair.key())));
                page
            }
            page => page?,
        };
        // Step by step, for where one value is too large the next may be too.
        limit = next_limit(page.kvs().iter().map(|pair| pair.value().len())).min(limit * 10);
        if snapshot.revision == 0 {
            // etcd answers with the revision it read, which pins the pages that follow.
            snapshot.revision = page.header().map_or(0, ResponseHeader::revision);
        }
        let next = page.kvs().last().filter(|_| page.more()).map(|last| [last.key(), &[0]].concat());
        snapshot.entries.extend(page.take_kvs().into_iter().map(entry));
        let Some(next) = next else { return Ok(snapshot) };
        from = next;
    }
}

/// How many keys to ask for next, by the sizes of the last values.
fn next_limit(sizes: impl ExactSizeIterator<Item = usize>) -> i64 {
    let count = sizes.len();
    let average = sizes.sum::<usize>() / count.max(1);
    i64::try_from(PAGE_BYTES / average.max(1)).unwrap_or(PAGE).clamp(1, PAGE)
}

async fn page(
    session: &Session,
    kv: &mut KvClient,
    from: Vec<u8>,
    options: GetOptions,
) -> Result<GetResponse, Stop> {
    let answer = session.answer(kv.get(from, Some(options))).await;
    match answer.map_err(|error| Stop::Failed(error.into()))? {
        Ok(page) => Ok(page),
        Err(error) if failure::is_compacted(&error) => Err(Stop::Compacted),
        Err(error) if failure::is_too_large(&error) => Err(Stop::TooLarge),
        Err(error) => Err(Stop::Failed(session.failure("list", error))),
    }
}

fn too_large(key: &[u8]) -> Problem {
    Problem {
        source: key_text(key.to_vec()),
        object: None,
        field: None,
        reason: format!("the value is larger than {LARGEST_RESPONSE} bytes, which is the most that is read"),
    }
}

pub(super) fn entry(pair: etcd_client::KeyValue) -> Entry {
    let (create_revision, mod_revision) = (pair.create_revision(), pair.mod_revision());
    let (key, value) = pair.into_key_value();
    Entry { key: key_text(key), value: Bytes::from(value), create_revision, mod_revision }
}

/// Contiv's keys are ASCII. Another one is kept readable, and is refused where keys are parsed. Different keys stay
/// different: each byte that is no UTF-8 is a replacement character and the byte.
pub(super) fn key_text(key: Vec<u8>) -> String {
    String::from_utf8(key).unwrap_or_else(|error| {
        let mut text = String::new();
        for chunk in error.as_bytes().utf8_chunks() {
            text.push_str(chunk.valid());
            text.extend(
                chunk.invalid().iter().map(|byte| format!("{}{byte:02x}", char::REPLACEMENT_CHARACTER)),
            );
        }
        text
    })
}

/// The first key that may begin with `prefix`. etcd reads an empty key as none.
pub(super) fn first_key(prefix: &str) -> Vec<u8> {
    if prefix.is_empty() { vec![0] } else { prefix.as_bytes().to_vec() }
}

/// The first key after all keys that begin with `prefix`. etcd reads a zero byte as "no end".
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
    fn a_page_has_as_many_keys_as_their_values_allow() {
        assert_eq!(next_limit([600; 500].into_iter()), PAGE);
        assert_eq!(next_limit([16 << 10; 500].into_iter()), 256);
        assert_eq!(next_limit([8 << 20; 3].into_iter()), 1);
        assert_eq!(next_limit([].into_iter()), PAGE);
    }

    #[test]
    fn keys_that_are_no_utf8_stay_readable_and_different() {
        assert_eq!(key_text(b"/a\xffb\xf0\x9f/".to_vec()), "/a\u{fffd}ffb\u{fffd}f0\u{fffd}9f/");
        assert_ne!(key_text(b"/a\xff".to_vec()), key_text(b"/a\xfe".to_vec()));
        assert_eq!(key_text("/\u{e9}".as_bytes().to_vec()), "/\u{e9}");
    }

    #[test]
    fn a_prefix_ends_before_the_first_key_without_it() {
        assert_eq!(prefix_end("/a/"), b"/a0");
        assert_eq!(prefix_end(""), [0]);
    }
}
