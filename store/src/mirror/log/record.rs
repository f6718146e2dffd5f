//! The encoding of log records: each has its length and a checksum, so that truncated and changed ones are detected.

use std::{
    collections::BTreeSet,
    io::{self, BufRead, Read},
};

use bytes::{Buf, Bytes, TryGetError};
use thiserror::Error;
use tracing::warn;

use crate::{Batch, Change, Entry};

/// The layout of records. A segment of another layout is not read.
const FORMAT: u64 = 1;
/// Before each payload: its length, and the checksum over both.
const FRAME_BYTES: usize = 12;

const SEGMENT: u8 = 0;
const CHANGES: u8 = 1;
const LIST: u8 = 2;
const ENTRY: u8 = 3;
const LIST_END: u8 = 4;
const PUT: u8 = 5;
const DELETE: u8 = 6;
/// A change that is not saved. Earlier versions do not read a record that has one.
const DEVIATING: u8 = 7;

/// A record of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Record {
    /// The first record of each segment: the store that is logged.
    Segment { source: String },
    /// Changes of the store, and the keys of those that are not saved.
    Changes {
        number: u64,
        batch: Batch,
        deviating: BTreeSet<String>,
    },
    /// The complete content follows, as entries. The saved values of the keys in `keep` stay.
    List {
        number: u64,
        revision: i64,
        keep: BTreeSet<String>,
    },
    /// An entry of a list.
    Entry(Entry),
    /// The list is complete.
    ListEnd,
}

pub(super) fn put_segment(out: &mut Vec<u8>, source: &str) {
    frame(out, SEGMENT, |out| {
        put_u64(out, FORMAT);
        put_bytes(out, source.as_bytes());
    });
}

pub(super) fn put_changes(
    out: &mut Vec<u8>,
    number: u64,
    Batch { revision, changes }: &Batch,
    deviating: &BTreeSet<String>,
) {
    frame(out, CHANGES, |out| {
        put_u64(out, number);
        put_i64(out, *revision);
        for change in changes {
            match change {
                Change::Put(entry) => {
                    out.push(PUT);
                    put_fields(out, entry);
                }
                Change::Delete { key } => {
                    out.push(DELETE);
                    put_bytes(out, key.as_bytes());
                }
            }
        }
        for key in deviating {
            out.push(DEVIATING);
            put_bytes(out, key.as_bytes());
        }
    });
}

pub(super) fn put_list(out: &mut Vec<u8>, number: u64, revision: i64, keep: &BTreeSet<String>) {
    frame(out, LIST, |out| {
        put_u64(out, number);
        put_i64(out, revision);
        for key in keep {
            put_bytes(out, key.as_bytes());
        }
    });
}

pub(super) fn put_entry(out: &mut Vec<u8>, entry: &Entry) {
    frame(out, ENTRY, |out| put_fields(out, entry));
}

pub(super) fn put_list_end(out: &mut Vec<u8>) {
    frame(out, LIST_END, |_| ());
}

fn frame(out: &mut Vec<u8>, tag: u8, payload: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend([0; FRAME_BYTES]);
    out.push(tag);
    payload(out);
    let length = ((out.len() - start - FRAME_BYTES) as u64).to_le_bytes();
    let sum = checksum(length, &out[start + FRAME_BYTES..]);
    out[start..start + 8].copy_from_slice(&length);
    out[start + 8..start + FRAME_BYTES].copy_from_slice(&sum.to_le_bytes());
}

fn checksum(length: [u8; 8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length);
    hasher.update(payload);
    hasher.finalize()
}

fn put_fields(
    out: &mut Vec<u8>,
    Entry {
        key,
        value,
        create_revision,
        mod_revision,
    }: &Entry,
) {
    put_bytes(out, key.as_bytes());
    put_bytes(out, value);
    put_i64(out, *create_revision);
    put_i64(out, *mod_revision);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u64(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend(number.to_le_bytes());
}

fn put_i64(out: &mut Vec<u8>, number: i64) {
    out.extend(number.to_le_bytes());
}

/// The next record; none at the end, and if the remaining bytes are damaged.
pub(super) fn read(reader: &mut impl BufRead) -> Option<Record> {
    let payload = match read_payload(reader) {
        Ok(payload) => payload?,
        Err(error) => {
            warn!(%error, "the mirror's log cannot be read to its end");
            return None;
        }
    };
    decode(payload).ok()
}

fn read_payload(reader: &mut impl BufRead) -> io::Result<Option<Bytes>> {
    let mut frame = Vec::with_capacity(FRAME_BYTES);
    reader.take(FRAME_BYTES as u64).read_to_end(&mut frame)?;
    let (Some(length), Some(sum)) = (
        frame.first_chunk(),
        frame.last_chunk().filter(|_| frame.len() == FRAME_BYTES),
    ) else {
        return Ok(None);
    };
    let mut payload = Vec::new();
    // Memory is not reserved beforehand, as a damaged length may be huge.
    reader
        .take(u64::from_le_bytes(*length))
        .read_to_end(&mut payload)?;
    let is_whole = payload.len() as u64 == u64::from_le_bytes(*length)
        && checksum(*length, &payload) == u32::from_le_bytes(*sum);
    Ok(is_whole.then(|| payload.into()))
}

/// A payload with a right checksum that cannot be decoded, as one of a later version.
#[derive(Debug, Error)]
#[error("a record that this version does not know")]
struct Unknown;

impl From<TryGetError> for Unknown {
    fn from(_: TryGetError) -> Self {
        Self
    }
}

fn decode(mut payload: Bytes) -> Result<Record, Unknown> {
    let payload = &mut payload;
    match payload.try_get_u8()? {
        SEGMENT if payload.try_get_u64_le()? == FORMAT => Ok(Record::Segment {
            source: get_text(payload)?,
        }),
        CHANGES => {
            let (number, revision) = (payload.try_get_u64_le()?, payload.try_get_i64_le()?);
            let (mut changes, mut deviating) = (Vec::new(), BTreeSet::new());
            while payload.has_remaining() {
                match payload.try_get_u8()? {
                    PUT => changes.push(Change::Put(get_entry(payload)?)),
                    DELETE => changes.push(Change::Delete {
                        key: get_text(payload)?,
                    }),
                    DEVIATING => drop(deviating.insert(get_text(payload)?)),
                    _ => return Err(Unknown),
                }
            }
            Ok(Record::Changes {
                number,
                batch: Batch { revision, changes },
                deviating,
            })
        }
        LIST => {
            let (number, revision) = (payload.try_get_u64_le()?, payload.try_get_i64_le()?);
            let mut keep = BTreeSet::new();
            while payload.has_remaining() {
                keep.insert(get_text(payload)?);
            }
            Ok(Record::List {
                number,
                revision,
                keep,
            })
        }
        ENTRY => Ok(Record::Entry(get_entry(payload)?)),
        LIST_END => Ok(Record::ListEnd),
        _ => Err(Unknown),
    }
}

fn get_entry(payload: &mut Bytes) -> Result<Entry, Unknown> {
    let (key, value) = (get_text(payload)?, get_bytes(payload)?);
    let (create_revision, mod_revision) = (payload.try_get_i64_le()?, payload.try_get_i64_le()?);
    Ok(Entry {
        key,
        value,
        create_revision,
        mod_revision,
    })
}

fn get_text(payload: &mut Bytes) -> Result<String, Unknown> {
    String::from_utf8(get_bytes(payload)?.into()).map_err(|_| Unknown)
}

fn get_bytes(payload: &mut Bytes) -> Result<Bytes, Unknown> {
    let length = usize::try_from(payload.try_get_u64_le()?).map_err(|_| Unknown)?;
    if length <= payload.len() {
        Ok(payload.split_to(length))
    } else {
        Err(Unknown)
    }
}

#[cfg(test)]
mod tests;
